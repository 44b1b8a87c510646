"""Every metric of the operator, from the registry that serves them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Gauge, Histogram

from tools.reference_text import PROSE, code, codes, header, table
from trainmaster.kube.metrics import KubeMetrics
from trainmaster.operator.metrics import JobMetrics
from trainmaster.operator.webhook_server import WebhookMetrics

COUNTED = "_total"


def rows() -> list[tuple[str, str, str, str]]:
    """Name, type, labels and meaning, sorted by name; those of the process are Prometheus' own."""
    registry = KubeMetrics().registry
    JobMetrics(registry)
    WebhookMetrics(registry)
    declared = registry._collector_to_names  # there is no other way to metrics that were never counted yet
    return sorted(_row(one) for one in declared if isinstance(one, Counter | Gauge | Histogram))


def _row(metric: Counter | Gauge | Histogram) -> tuple[str, str, str, str]:
    [family] = metric.describe()
    name = family.name + (COUNTED if family.type == "counter" else "")
    return code(name), family.type, codes(metric._labelnames), family.documentation + "."


def files() -> Iterator[tuple[str, str]]:
    text = (PROSE / "metrics.md").read_text()
    listed = table(("metric", "type", "labels", "meaning"), rows())
    yield "reference/metrics.md", header("the operator's registry") + text.replace("{metrics}\n", listed)
