"""Objects in another version than the one they are stored in.

Custom resources only change their apiVersion. Two of Kubernetes' own kinds are stored once and served twice: events
(core and events.k8s.io name the same things differently) and autoscalers (v1 knows CPU only, v2 any metric).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.schema_values import fill, prune
from trainmaster.cluster.storage.store import Entry
from trainmaster.objects.meta import encode, mutable

_EVENT_NAMES = {  # core: events.k8s.io
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_NAMES_BACK = {newer: core for core, newer in _EVENT_NAMES.items()}
_METRICS = "autoscaling.alpha.kubernetes.io/metrics"


def entry_as(kind: Kind, entry: Entry) -> Entry:
    """The entry as `kind` shows it. No copy where that is how it is stored, which is almost always."""
    if kind.is_storage_version:
        return entry
    value = shown_as(kind, entry.value)
    return Entry(entry.key, entry.revision, encode(value), value)


def shown_as(kind: Kind, stored: Mapping[str, Any]) -> dict[str, Any]:
    made = {**stored, "apiVersion": kind.api_version}
    if kind.group == "events.k8s.io":
        return {_EVENT_NAMES.get(key, key): value for key, value in made.items()}
    if kind.prefix == "autoscaling/horizontalpodautoscalers":
        return _autoscaler_v1(made)
    if kind.custom and kind.shape.has_defaults:
        made = mutable(made)
        fill(kind.shape, made)
    return made


def stored_from(kind: Kind, shown: dict[str, Any]) -> dict[str, Any]:
    """What to store for an object that was written in version `kind`."""
    if kind.is_storage_version:
        return shown
    if kind.group == "events.k8s.io":
        return {_EVENT_NAMES_BACK.get(key, key): value for key, value in {**shown, "apiVersion": "v1"}.items()}
    if kind.prefix == "autoscaling/horizontalpodautoscalers":
        return _autoscaler_v2(shown)
    stored = {**shown, "apiVersion": f"{kind.group}/{kind.storage_version}"}
    prune(kind.storage_shape, stored)
    return stored


def _autoscaler_v1(stored: dict[str, Any]) -> dict[str, Any]:
    spec = dict(stored.get("spec") or {})
    metrics = spec.pop("metrics", None) or []
    behavior = spec.pop("behavior", None)
    cpu = next((metric for metric in metrics if _is_cpu_utilization(metric)), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    others = [metric for metric in metrics if metric is not cpu]
    metadata = dict(stored["metadata"])
    hidden = {_METRICS: others, "autoscaling.alpha.kubernetes.io/behavior": behavior}
    kept = {key: encode(value).decode() for key, value in hidden.items() if value}
    if kept:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **kept}
    return {**stored, "metadata": metadata, "spec": spec}


def _is_cpu_utilization(metric: Mapping[str, Any]) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and "averageUtilization" in (resource.get("target") or {})


def _autoscaler_v2(shown: dict[str, Any]) -> dict[str, Any]:
    spec = dict(shown.get("spec") or {})
    percentage = spec.pop("targetCPUUtilizationPercentage", None)
    if percentage is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return {**shown, "apiVersion": "autoscaling/v2", "spec": spec}
