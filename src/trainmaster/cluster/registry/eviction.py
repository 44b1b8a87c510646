"""Eviction: a deletion that asks first whether any disruption budget of the pod's namespace forbids it.

There is no controller that keeps budgets' status; what they allow is worked out from the pods at the moment of
asking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.binding import SUCCESS, check_named
from trainmaster.cluster.registry.decoding import part_of
from trainmaster.cluster.registry.deletion import Deleter
from trainmaster.cluster.registry.status_error import ApiError, not_found, too_many
from trainmaster.cluster.registry.writing import PODS, Object
from trainmaster.cluster.storage.store import Store

_BUDGETS = "policy/poddisruptionbudgets"
_REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    def __init__(self, store: Store, deleter: Deleter) -> None:
        self._store = store
        self._deleter = deleter

    async def evict(self, namespace: str, name: str, eviction: Mapping[str, Any], *, dry_run: bool) -> Object:
        asked = part_of(definitions.shape("policy", "v1", "Eviction"), eviction, "Eviction")
        check_named(asked, name, "Eviction")
        entry = self._store.get(PODS.prefix, f"{namespace}/{name}")
        if entry is None:
            raise not_found(PODS, name)
        if not is_finished(entry.value):
            self._check_budgets(namespace, entry.value)
        options = asked.get("deleteOptions") or {}
        await self._deleter.delete(PODS, namespace, name, options, dry_run=dry_run)
        return dict(SUCCESS)

    def _check_budgets(self, namespace: str, pod: Mapping[str, Any]) -> None:
        pods: list[Mapping[str, Any]] = [entry.value for entry in self._store.list(PODS.prefix, namespace)]
        for entry in self._store.list(_BUDGETS, namespace):
            spec = entry.value.get("spec") or {}
            if selects(spec.get("selector"), pod) and allowed(spec, pods) < 1:
                raise _refusal(entry.value["metadata"]["name"])


def _refusal(budget: str) -> ApiError:
    refusal = too_many(_REFUSAL)
    cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget} does not allow a disruption now"}
    refusal.details = {"causes": [cause]}
    return refusal


def is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")


def allowed(spec: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> int:
    """How many of the selected pods may go now."""
    selected = [pod for pod in pods if selects(spec.get("selector"), pod)]
    healthy = sum(_is_ready(pod) for pod in selected)
    if spec.get("maxUnavailable") is not None:
        return healthy - (len(selected) - _share(spec["maxUnavailable"], len(selected)))
    return healthy - _share(spec.get("minAvailable", 0), len(selected))


def _share(amount: int | str, total: int) -> int:
    if isinstance(amount, str):
        return math.ceil(int(amount.removesuffix("%")) * total / 100)
    return amount


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def selects(selector: Mapping[str, Any] | None, obj: Mapping[str, Any]) -> bool:
    """A label selector as objects carry it; an empty one selects all, an absent one nothing."""
    if selector is None:
        return False
    labels = obj["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    held, values = labels.get(expression.get("key") or ""), expression.get("values") or ()
    operator = expression.get("operator")
    if operator == "In":
        return held in values
    if operator == "NotIn":
        return held not in values
    return (held is not None) == (operator == "Exists")
