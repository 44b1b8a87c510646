"""What holds in every cluster and every history: pods and groups come, get places, end and go, in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.cluster.scheduling.scheduler_fit import could_fit, refusal_of
from trainmaster.cluster.scheduling.scheduler_gang import KUBE_BATCH, PLUGINS, VOLCANO, is_complete, missing, tally_of
from trainmaster.cluster.scheduling.scheduler_plan import Decisions, Snapshot, plan
from trainmaster.testing.scheduling import Books, a_group, a_node, a_pod, a_queue, tainted

ROUNDS = 200
"""Far more than any of these clusters needs to run everything that can run, one after the other."""

amounts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["100m", "500m", "1", "1500m", "2", "3"]),
        "memory": st.sampled_from(["100Mi", "1Gi", "3Gi"]),
        "gpu": st.sampled_from(["1", "2"]),
    },
)
specs: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"nodeSelector": {"zone": "a"}},
        {"priority": 10},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    ]
)
ages = st.integers(0, 30)


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for index in range(draw(st.integers(1, 3))):
        size = {"cpu": draw(st.sampled_from(["1", "2", "4"])), "gpu": draw(st.sampled_from(["0", "2"]))}
        node = a_node(f"n{index}", labels={"zone": draw(st.sampled_from(["a", "b"]))}, **size)
        made.append(tainted(node, {"key": "gpu", "effect": "NoSchedule"}) if draw(st.booleans()) else node)
    return made


@st.composite
def loads(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pods on their own, and groups with fewer, just as many, or more pods than they need."""
    made = [
        a_pod(f"p{index}", age=draw(ages), spec=draw(specs), **draw(amounts))
        for index in range(draw(st.integers(0, 5)))
    ]
    for index in range(draw(st.integers(0, 3))):
        name, least, age = f"g{index}", draw(st.integers(1, 4)), draw(ages)
        queue = draw(st.sampled_from(["default", "q"]))
        made.append(a_group(name, minMember=least, age=age, queue=queue))
        made += [
            a_pod(f"{name}-{member}", group=name, age=age, spec=draw(specs), **draw(amounts))
            for member in range(least + draw(st.integers(-1, 2)))
        ]
    return made


clusters = st.builds(lambda first, then: [*first, a_queue("q", weight=2), *then], nodes(), loads())


def check(books: Books, decisions: Decisions) -> None:
    """After a pass was carried out: nobody has too much, and no group has only a part."""
    seen = books.state.snapshot(books.now)
    for room in seen.rooms:
        assert all(room.free(name) >= 0 for name in room.used), f"{room.node.name} is over-committed: {room.used}"
    for bundle in decisions.bundles:
        for binding in bundle:
            node = next(room.node for room in seen.rooms if room.node.name == binding.node)
            assert could_fit(binding.pod, node)
    for key, group in seen.groups.items():
        tally = tally_of(seen.members[key])
        if tally.bound:
            assert tally.held >= group.min_member, f"only a part of {group} runs"


@given(clusters)
@settings(max_examples=150, deadline=None)
def test_nodes_are_never_over_committed_and_groups_never_started_in_part(objects):
    books = Books(*objects)

    for _ in range(5):
        check(books, books.step())
        running = sorted(books.placed())
        for name in running[: len(running) // 2]:
            if books.pod(name).phase == "Pending":
                books.end_pod(name)


@given(clusters)
@settings(max_examples=100, deadline=None)
def test_the_same_cluster_gets_the_same_decisions_in_whatever_order_it_was_seen(objects):
    books = Books(*objects)

    again = Books(*reversed(objects))

    assert answers(books.plan()) == answers(again.plan())


@given(clusters)
@settings(max_examples=150, deadline=None)
def test_what_fits_is_placed_unless_something_in_front_of_it_waits_for_the_room(objects):
    books = Books(*objects)

    books.settle()

    seen = books.state.snapshot(books.now)
    rooms = {room.node.name: room for room in seen.rooms}
    for pod in seen.waiting:
        fitting = [room for room in rooms.values() if refusal_of(pod, room, rooms) is None]
        if pod.group_annotation and not is_extra(seen, pod):
            continue
        why = books.why(pod.name)
        assert not fitting or "which came first" in why, f"{pod.name} would fit but: {why}"


def is_extra(seen: Snapshot, pod: Any) -> bool:
    group = next(group for key, group in seen.groups.items() if key.name == pod.group_annotation)
    return missing(group, tally_of(seen.members[group.key])) == 0


@given(clusters)
@settings(max_examples=60, deadline=None)
def test_whatever_fits_an_empty_cluster_runs_in_the_end_however_many_small_ones_keep_coming(objects):
    books = Books(*objects)
    expected = {pod.name for pod in books.state.pods.values() if runs_alone(objects, pod.name)}

    done: set[str] = set()
    for number in range(ROUNDS):
        books.settle()
        done |= set(books.placed())
        if expected <= done:
            break
        books.add(a_pod(f"new-{number}", age=-number - 1, cpu="100m"))
        oldest = next((name for name in books.placed() if books.pod(name).phase == "Pending"), None)
        if oldest is not None:
            books.end_pod(oldest)

    assert expected <= done


def runs_alone(objects: list[dict[str, Any]], name: str) -> bool:
    """Whether the pod gets a place in a cluster that has only it, or its group as it needs it."""
    pod = next(obj for obj in objects if obj["metadata"]["name"] == name)
    group = pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name")
    kept = [
        obj
        for obj in objects
        if obj["kind"] != "Pod"
        or obj is pod
        or (group and obj["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == group)
    ]
    books = Books(*kept)
    books.settle()
    seen = books.state.snapshot(books.now)
    key = next((key for key in seen.groups if key.name == group), None)
    if key is not None and not is_complete(seen.groups[key], tally_of(seen.members[key])):
        return False
    return name in books.placed() and (key is None or len(seen.members[key]) == seen.groups[key].min_member)


def answers(decisions: Decisions) -> Any:
    bindings = [sorted((binding.pod.key, binding.node) for binding in bundle) for bundle in decisions.bundles]
    return bindings, decisions.unschedulable, decisions.group_statuses


garbage = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
group_fields = ("minMember", "minTaskMember", "minResources", "queue", "priorityClassName", "scheduleTimeoutSeconds")
status_fields = ("phase", "conditions", "running", "succeeded", "scheduleStartTime")


@given(
    st.sampled_from([VOLCANO, KUBE_BATCH, PLUGINS]),
    garbage | st.dictionaries(st.sampled_from(group_fields), garbage),
    garbage | st.dictionaries(st.sampled_from(status_fields), garbage),
    garbage | st.dictionaries(st.sampled_from(("weight", "capability", "state")), garbage),
)
@settings(max_examples=200, deadline=None)
def test_groups_and_queues_may_hold_any_nonsense_as_their_definitions_allow(api_group, spec, status, queue):
    group, rules = a_group(api_group=api_group), a_queue("default")
    members = [a_pod("one", group="train", label_group="train", cpu="1")]
    books = Books(a_node(), {**group, "spec": spec, "status": status}, {**rules, "spec": queue}, *members)

    books.step()
    decisions = books.step()

    assert isinstance(decisions, Decisions)


def test_a_thousand_pods_are_placed_on_ten_nodes_in_one_pass():
    nodes = [a_node(f"n{index}", cpu="64", memory="256Gi") for index in range(10)]
    books = Books(*nodes, *(a_pod(f"p{index}", cpu="500m", memory="1Gi") for index in range(1000)))

    decisions = plan(books.state.snapshot(books.now))

    assert len(decisions.bindings) == 1000
