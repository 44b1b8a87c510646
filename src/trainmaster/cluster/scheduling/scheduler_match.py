"""The small languages in which pods choose nodes and each other: selectors, taints and tolerations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainmaster.cluster.scheduling.scheduler_pod import Node, Pod, mapping, mappings
from trainmaster.objects.meta import Json

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
NAMESPACE_NAME = "kubernetes.io/metadata.name"


def matches_labels(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = mapping(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(rule, labels) for rule in mappings(selector, "matchExpressions"))


def matches_node(selector: Json, node: Node) -> bool:
    """A NodeSelector: one of its terms must hold, and an empty term never does."""
    return any(matches_term(term, node) for term in mappings(selector, "nodeSelectorTerms"))


def matches_term(term: Json, node: Node) -> bool:
    expressions, fields = mappings(term, "matchExpressions"), mappings(term, "matchFields")
    if not expressions and not fields:
        return False
    by_name = {"metadata.name": node.name}
    return all(_holds(rule, node.labels) for rule in expressions) and all(_holds(rule, by_name) for rule in fields)


def untolerated(pod: Pod, node: Node) -> Json | None:
    """The first taint that keeps the pod away, cordoning included."""
    if not node.taints and not node.is_cordoned:
        return None
    taints = (*node.taints, CORDON) if node.is_cordoned else node.taints
    hard = (taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute"))
    return next((taint for taint in hard if not _is_tolerated(taint, pod.tolerations)), None)


def dislikes(pod: Pod, node: Node) -> int:
    """How many taints would rather not have the pod."""
    soft = (taint for taint in node.taints if taint.get("effect") == "PreferNoSchedule")
    return sum(not _is_tolerated(taint, pod.tolerations) for taint in soft)


def show_taint(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def selects_namespace(term: Json, own: str, other: str) -> bool:
    """Whether a pod affinity term of a pod in namespace `own` looks at pods in `other`.

    Of a namespace only the label that every namespace has is known here: its name.
    """
    names, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if selector is None:
        return other in names if names else other == own
    return other in names or matches_labels(selector, {NAMESPACE_NAME: other})


def _is_tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _holds(rule: Json, labels: Mapping[str, str]) -> bool:
    """An unknown operator holds nowhere: better a pod that waits with a reason than one in the wrong place."""
    operator = _OPERATORS.get(str(rule.get("operator")))
    return operator is not None and operator(labels.get(str(rule.get("key"))), rule.get("values") or [])


def _compare(value: str | None, values: list[Any], is_right: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(values) == 1 and is_right(int(value), int(values[0]))
    except ValueError:
        return False


_OPERATORS: Mapping[str, Callable[[str | None, list[Any]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
    "Gt": lambda value, values: _compare(value, values, lambda a, b: a > b),
    "Lt": lambda value, values: _compare(value, values, lambda a, b: a < b),
}
