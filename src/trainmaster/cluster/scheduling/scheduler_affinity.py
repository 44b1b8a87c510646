"""Pods that want each other near, or far: required terms forbid nodes, preferred ones weigh them.

Near is told by a node label, the topology key: nodes with the same value are one place. A node without the label is
no place at all, so nothing can be required near there, and nothing is forbidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from trainmaster.cluster.scheduling import scheduler_match as match
from trainmaster.cluster.scheduling.scheduler_pod import Node, Pod, mapping, mappings
from trainmaster.objects.meta import Json, encode

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Place(Protocol):
    """A node and the pods on it. `guards` are those of them that have something against others.

    `counts` remembers how many match a selector, for as long as the pods stay the same.
    """

    @property
    def node(self) -> Node: ...
    @property
    def pods(self) -> Mapping[str, Pod]: ...
    @property
    def guards(self) -> Mapping[str, Pod]: ...
    @property
    def counts(self) -> dict[tuple[str, bytes], int]: ...


def is_social(pod: Pod) -> bool:
    """Whether it matters to the pod where others are."""
    return bool(pod.spread) or "podAffinity" in pod.affinity or "podAntiAffinity" in pod.affinity


def is_guard(pod: Pod) -> bool:
    return bool(required_terms(pod, "podAntiAffinity"))


def required_terms(pod: Pod, kind: str) -> list[Json]:
    return mappings(mapping(pod.affinity, kind), _REQUIRED)


def node_selector(pod: Pod) -> Json | None:
    return mapping(pod.affinity, "nodeAffinity").get(_REQUIRED)


def node_preference(pod: Pod, node: Node) -> int:
    terms = mappings(mapping(pod.affinity, "nodeAffinity"), _PREFERRED)
    return sum(term.get("weight", 0) for term in terms if match.matches_term(mapping(term, "preference"), node))


def conflict(pod: Pod, place: Place, places: Iterable[Place]) -> str | None:
    """Why the pod may not run beside what is there, or None."""
    everywhere = list(places)
    for term in required_terms(pod, "podAntiAffinity"):
        if (other := _first(term, pod, _domain(term, place.node, everywhere))) is not None:
            return f"anti-affinity with {other.name}"
    for term in required_terms(pod, "podAffinity"):
        if not _is_met(term, pod, place, everywhere):
            return f"no pod it has affinity with in the same {term.get('topologyKey')}"
    guard = next(_objectors(pod, place.node, everywhere), None)
    return f"{guard.name} there has anti-affinity with it" if guard else _crowding(pod, place, everywhere)


def preference(pod: Pod, place: Place, places: Iterable[Place]) -> int:
    """The sum of preferred weights, of nodes and of neighbours, that running here would earn."""
    weight = node_preference(pod, place.node)
    if not is_social(pod):
        return weight
    everywhere = list(places)
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for item in mappings(mapping(pod.affinity, kind), _PREFERRED):
            term = mapping(item, "podAffinityTerm")
            if _first(term, pod, _domain(term, place.node, everywhere)) is not None:
                weight += sign * item.get("weight", 0)
    return weight


def _crowding(pod: Pod, place: Place, places: list[Place]) -> str | None:
    """Topology spread: no place may have more than maxSkew pods more than the emptiest that the pod could use."""
    for constraint in pod.spread:
        key, skew = str(constraint.get("topologyKey")), constraint.get("maxSkew") or 1
        if constraint.get("whenUnsatisfiable") == "ScheduleAnyway":
            continue
        if key not in place.node.labels:
            return f"no label {key} to spread by"
        counts: dict[str, int] = {}
        for other in places:
            if key in other.node.labels and _selects(pod, other.node):
                counts[other.node.labels[key]] = counts.get(other.node.labels[key], 0) + _count(constraint, pod, other)
        count = counts.get(place.node.labels[key], 0) + _is_counted(constraint, pod, pod)
        if count - min(counts.values(), default=0) > skew:
            return f"would be {count} in {key} {place.node.labels[key]}, more than {skew} above the fewest"
    return None


def _selects(pod: Pod, node: Node) -> bool:
    selector = node_selector(pod)
    wanted = pod.selector.items()
    return all(node.labels.get(key) == value for key, value in wanted) and (
        selector is None or match.matches_node(selector, node)
    )


def _count(constraint: Json, pod: Pod, place: Place) -> int:
    key = (pod.namespace, encode(constraint.get("labelSelector")))
    if key not in place.counts:
        place.counts[key] = sum(_is_counted(constraint, pod, one) for one in place.pods.values())
    return place.counts[key]


def _is_counted(constraint: Json, pod: Pod, other: Pod) -> bool:
    if other.is_terminating or other.namespace != pod.namespace:
        return False
    return match.matches_labels(constraint.get("labelSelector"), other.labels)


def _is_met(term: Json, pod: Pod, place: Place, places: list[Place]) -> bool:
    if term.get("topologyKey") not in place.node.labels:
        return False
    if _first(term, pod, _domain(term, place.node, places)) is not None:
        return True
    # The first of a set of pods that want each other may go anywhere, or none of them ever would.
    return _wants(term, pod, pod) and _first(term, pod, places) is None


def _objectors(pod: Pod, node: Node, places: list[Place]) -> Iterator[Pod]:
    for place in places:
        for guard in place.guards.values():
            terms = required_terms(guard, "podAntiAffinity")
            if any(_wants(term, guard, pod) and _is_same(term, node, place.node) for term in terms):
                yield guard


def _domain(term: Json, node: Node, places: Iterable[Place]) -> Iterator[Place]:
    return (place for place in places if _is_same(term, node, place.node))


def _is_same(term: Json, one: Node, other: Node) -> bool:
    key = str(term.get("topologyKey"))
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _first(term: Json, pod: Pod, places: Iterable[Place]) -> Pod | None:
    return next((other for place in places for other in place.pods.values() if _wants(term, pod, other)), None)


def _wants(term: Json, pod: Pod, other: Pod) -> bool:
    """Whether a term of `pod` speaks of `other`."""
    if not match.selects_namespace(term, pod.namespace, other.namespace):
        return False
    return match.matches_labels(term.get("labelSelector"), other.labels)
