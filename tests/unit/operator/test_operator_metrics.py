"""What dashboards of mpi-operator ask for beside its counters."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from trainmaster.objects.meta import Meta, Object
from trainmaster.operator.metrics import JobMetrics


def a_job(name: str) -> Object:
    return Object(Meta(name=name, namespace="team", uid=name))


def test_every_mpijob_is_known_by_its_launcher_as_long_as_there_is_one() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)

    def known(name: str) -> float | None:
        return registry.get_sample_value("mpi_operator_job_info", {"launcher": f"{name}-launcher", "namespace": "team"})

    for name in ("one", "two"):
        metrics.on_mpi_job(None, a_job(name))
    metrics.on_mpi_job(a_job("two"), a_job("two"))
    metrics.on_mpi_job(a_job("one"), None)

    assert (known("one"), known("two")) == (None, 1)


def test_who_leads_is_asked_when_somebody_wants_to_know() -> None:
    registry, leading = CollectorRegistry(), [False]
    JobMetrics(registry).leading(lambda: leading[0])

    before = registry.get_sample_value("mpi_operator_is_leader")
    leading[0] = True

    assert (before, registry.get_sample_value("mpi_operator_is_leader")) == (0, 1)
