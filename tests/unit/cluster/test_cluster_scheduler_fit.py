from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.scheduling.scheduler_fit import Room, refusal_of
from trainmaster.cluster.scheduling.scheduler_pod import NANO, need_of, node_of, pod_of, show
from trainmaster.testing.scheduling import HOSTNAME, Books, a_node, a_pod, tainted

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
GI = 1024**3 * NANO


def answer(pod: dict[str, Any], node: dict[str, Any]) -> str | None:
    room = Room(node_of(node))
    refusal = refusal_of(pod_of(pod), room, {room.node.name: room})
    return None if refusal is None else refusal.told()


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}, **({"restartPolicy": restart} if restart else {})}


def node_affinity(operator: str, *values: str, key: str = "zone", kind: str = "matchExpressions") -> dict[str, Any]:
    term = {kind: [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def social(kind: str, topology: str = HOSTNAME, **term: Any) -> dict[str, Any]:
    full = {"topologyKey": topology, **term}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [full]}}}


def selecting(**labels: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}}


def test_a_pod_needs_its_containers_together_or_its_largest_init_container():
    spec = {
        "initContainers": [container(cpu="3", memory="1Gi"), container(cpu="1", memory="5Gi")],
        "containers": [container(cpu="1", memory="1Gi"), container(cpu="500m", memory="1Gi")],
    }

    need = need_of(spec)

    assert need == {"cpu": 3 * NANO, "memory": 5 * GI, "pods": NANO}


def test_an_init_container_that_keeps_running_counts_beside_all_that_start_after_it():
    spec = {
        "initContainers": [container(cpu="5"), container("Always", cpu="1"), container(cpu="4500m")],
        "containers": [container(cpu="4")],
    }

    need = need_of(spec)

    assert need["cpu"] == 5500 * NANO // 1000


def test_overhead_is_added_and_a_limit_without_request_counts_as_one():
    spec = {
        "containers": [{"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}],
        "overhead": {"cpu": "250m"},
    }

    need = need_of(spec)

    assert need == {"cpu": 1250 * NANO // 1000, "memory": GI, "pods": NANO}


def test_requests_of_the_whole_pod_replace_the_sum_of_its_containers():
    spec = {"containers": [container(cpu="1", memory="1Gi")], "resources": {"requests": {"cpu": "3"}}}

    need = need_of(spec)

    assert need == {"cpu": 3 * NANO, "memory": GI, "pods": NANO}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"cpu": "2"}, None, id="all of it fits"),
        pytest.param({"cpu": "2001m"}, "needs 2.01 cpu, 2 of 2 free", id="a thousandth too much does not"),
        pytest.param({"memory": "6Gi"}, "needs 6Gi memory, 4Gi of 4Gi free", id="memory"),
        pytest.param({"gpu": "1"}, "needs 1 nvidia.com/gpu, 0 of 0 free", id="a device the node has none of"),
        pytest.param(
            {"cpu": "3", "memory": "8Gi"}, "needs 3 cpu, 2 of 2 free, needs 8Gi memory, 4Gi of 4Gi free", id="two"
        ),
    ],
)
def test_requests_are_compared_exactly_and_answered_with_numbers(asked, expected):
    assert answer(a_pod(**asked), a_node()) == expected


def test_tenths_add_up_without_rounding():
    books = Books(a_node(cpu="1"), *(a_pod(f"p{index}", cpu="100m") for index in range(11)))

    books.settle()

    assert len(books.placed()) == 10


def test_the_slots_for_pods_are_counted():
    books = Books(a_node(pods="2"), *(a_pod(f"p{index}", age=9 - index) for index in range(3)))

    books.settle()

    assert sorted(books.placed()) == ["p0", "p1"]
    assert books.why("p2") == "0/1 nodes are available: no room for another pod, 2 at most (requested by p2)"


def test_a_pod_that_ended_gives_its_room_back():
    books = Books(a_node(), a_pod("old", cpu="2"), a_pod("new", cpu="1"))
    books.settle()

    books.end_pod("old")
    books.settle()

    assert books.placed()["new"] == "node"


def test_a_pod_being_deleted_keeps_its_room_until_it_has_ended():
    leaving = a_pod("old", cpu="2", phase="Running", spec={"nodeName": "node"})
    leaving["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    books = Books(a_node(), leaving, a_pod("new", cpu="1"))

    books.settle()

    assert "new" not in books.placed()


def test_a_pod_that_names_its_node_takes_room_there_even_when_it_is_full():
    books = Books(a_node(), a_pod("first", cpu="2", spec={"nodeName": "node"}))
    books.add(a_pod("second", cpu="2", spec={"nodeName": "node"}), a_pod("third", cpu="1"))

    books.settle()

    assert books.why("third") == "0/1 nodes are available: needs 1 cpu, 0 of 2 free (requested by third)"


def test_room_counts_pods_that_were_there_before_the_node_was_seen():
    books = Books(a_pod("early", cpu="2", spec={"nodeName": "node"}), a_pod("late", cpu="1"))

    books.add(a_node())
    books.settle()

    assert "late" not in books.placed()


@pytest.mark.parametrize(
    ("labels", "spec", "fits"),
    [
        pytest.param({"zone": "a"}, {"nodeSelector": {"zone": "a"}}, True, id="selector"),
        pytest.param({"zone": "b"}, {"nodeSelector": {"zone": "a"}}, False, id="selector of another value"),
        pytest.param({"zone": "a"}, node_affinity("In", "a", "b"), True, id="in"),
        pytest.param({}, node_affinity("In", "a"), False, id="in without label"),
        pytest.param({}, node_affinity("NotIn", "a"), True, id="not in without label"),
        pytest.param({"zone": "a"}, node_affinity("NotIn", "a"), False, id="not in"),
        pytest.param({"zone": "a"}, node_affinity("Exists"), True, id="exists"),
        pytest.param({}, node_affinity("Exists"), False, id="exists without label"),
        pytest.param({}, node_affinity("DoesNotExist"), True, id="does not exist"),
        pytest.param({"zone": "7"}, node_affinity("Gt", "6"), True, id="greater"),
        pytest.param({"zone": "6"}, node_affinity("Gt", "6"), False, id="not greater"),
        pytest.param({"zone": "x"}, node_affinity("Lt", "6"), False, id="no number"),
        pytest.param({"zone": "5"}, node_affinity("Lt", "6"), True, id="less"),
        pytest.param({"zone": "5"}, node_affinity("Near", "6"), False, id="unknown operator"),
        pytest.param({"zone": "5"}, node_affinity("Exists", kind="none"), False, id="empty term"),
        pytest.param({}, node_affinity("In", "node", key="metadata.name", kind="matchFields"), True, id="by name"),
        pytest.param({}, node_affinity("In", "other", key="metadata.name", kind="matchFields"), False, id="other name"),
    ],
)
def test_a_node_must_match_what_the_pod_selects(labels, spec, fits):
    assert (answer(a_pod(spec=spec), a_node(labels=labels)) is None) == fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True, id="equal"),
        pytest.param({"key": "gpu", "value": "yes"}, True, id="of all effects"),
        pytest.param({"key": "gpu", "value": "no"}, False, id="another value"),
        pytest.param({"key": "cpu", "operator": "Exists"}, False, id="another key"),
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="exists"),
        pytest.param({"operator": "Exists"}, True, id="all taints"),
        pytest.param({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
    ],
)
def test_a_taint_must_be_tolerated(toleration, fits):
    spec = {"tolerations": [toleration]} if toleration else {}

    why = answer(a_pod(spec=spec), tainted(a_node(), TAINT))

    assert why == (None if fits else "taint gpu=yes:NoSchedule is not tolerated")


def test_cordoned_and_unready_nodes_take_nothing():
    assert answer(a_pod(), tainted(a_node(), cordoned=True)) == "cordoned"
    assert answer(a_pod(), a_node(ready="False")) == "not ready"


def test_preferred_nodes_are_chosen_when_they_have_room():
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    terms = [{"weight": 10, "preference": preference}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}
    books = Books(a_node("a"), a_node("b", labels={"disk": "ssd"}))
    books.add(*(a_pod(f"p{index}", age=9 - index, cpu="2", spec=spec) for index in range(2)))

    books.settle()

    assert books.placed() == {"p0": "b", "p1": "a"}


def test_a_node_that_would_rather_not_is_taken_last():
    reluctant = tainted(a_node("a"), {"key": "slow", "effect": "PreferNoSchedule"})
    books = Books(reluctant, a_node("b"), a_pod("p0", cpu="2", age=2), a_pod("p1", cpu="2", age=1))

    books.settle()

    assert books.placed() == {"p0": "b", "p1": "a"}


def test_requests_are_packed_so_that_a_whole_node_stays_free():
    books = Books(a_node("a"), a_node("b"), a_pod("p0", cpu="500m", age=3), a_pod("p1", cpu="500m", age=2))
    books.settle()

    books.add(a_pod("whole", cpu="2"))
    books.settle()

    assert len(books.placed()) == 3


def test_pods_that_ask_for_nothing_are_spread():
    books = Books(a_node("a"), a_node("b"), *(a_pod(f"p{index}") for index in range(4)))

    books.settle()

    assert sorted(books.placed().values()) == ["a", "a", "b", "b"]


def host_port(number: int, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": number, **more}]}]}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        pytest.param(host_port(80), host_port(80), True, id="same"),
        pytest.param(host_port(80), host_port(81), False, id="another port"),
        pytest.param(host_port(80), host_port(80, protocol="UDP"), False, id="another protocol"),
        pytest.param(host_port(80, hostIP="10.0.0.1"), host_port(80, hostIP="10.0.0.2"), False, id="another address"),
        pytest.param(host_port(80, hostIP="10.0.0.1"), host_port(80), True, id="every address"),
        pytest.param(host_port(0), host_port(0), False, id="no host port"),
        pytest.param(
            {**host_port(0), "hostNetwork": True}, {**host_port(0), "hostNetwork": True}, True, id="host network"
        ),
    ],
)
def test_a_host_port_is_given_once_per_node(one, other, clash):
    books = Books(a_node(), a_pod("one", age=1, spec=one), a_pod("other", spec=other))

    books.settle()

    assert ("other" not in books.placed()) == clash
    assert books.why("other") == (
        "0/1 nodes are available: host port 80 is taken by one (requested by other)" if clash else ""
    )


def test_pods_that_cannot_stand_each_other_get_nodes_of_their_own():
    apart = social("podAntiAffinity", **selecting(app="x"))
    pods = [a_pod(f"p{index}", age=9 - index, labels={"app": "x"}, spec=apart) for index in range(3)]
    books = Books(a_node("a"), a_node("b"), *pods)

    books.settle()

    assert books.placed() == {"p0": "a", "p1": "b"}
    assert books.why("p2") == (
        "0/2 nodes are available: 1 anti-affinity with p0; 1 anti-affinity with p1 (requested by p2)"
    )


def test_a_pod_that_objects_to_others_keeps_them_away_although_they_do_not_mind():
    guard = a_pod("guard", age=1, spec={**social("podAntiAffinity", **selecting(app="x"))})
    books = Books(a_node(), guard, a_pod("other", labels={"app": "x"}), a_pod("third", labels={"app": "y"}))

    books.settle()

    assert sorted(books.placed()) == ["guard", "third"]
    assert "guard there has anti-affinity with it" in books.why("other")


def test_pods_that_want_each_other_share_a_zone_and_the_first_may_choose():
    near = social("podAffinity", "zone", **selecting(app="x"))
    nodes = [a_node("a", labels={"zone": "1"}), a_node("b", labels={"zone": "2"}), a_node("c", labels={"zone": "1"})]
    pods = [a_pod(f"p{index}", cpu="2", age=9 - index, labels={"app": "x"}, spec=near) for index in range(3)]
    books = Books(*nodes, *pods)

    books.settle()

    assert books.placed() == {"p0": "a", "p1": "c"}
    assert "no pod it has affinity with in the same zone" in books.why("p2")


def test_a_term_without_selector_speaks_of_nobody_and_a_node_without_the_label_is_no_place():
    nobody = social("podAntiAffinity")
    nowhere = social("podAffinity", "rack", **selecting(app="x"))
    books = Books(a_node(), a_pod("a", labels={"app": "x"}, spec=nowhere), a_pod("b", spec=nobody), a_pod("c"))

    books.settle()

    assert sorted(books.placed()) == ["b", "c"]


def test_affinity_with_pods_of_another_namespace_must_name_it():
    there = a_pod("there", namespace="other", labels={"app": "x"}, spec={"nodeName": "node"})
    here = social("podAffinity", **selecting(app="x"))
    named = social("podAffinity", namespaces=["other"], **selecting(app="x"))
    all_of_them = social("podAffinity", namespaceSelector={}, **selecting(app="x"))
    books = Books(a_node(), there)

    books.add(a_pod("here", spec=here), a_pod("named", spec=named), a_pod("all", spec=all_of_them))
    books.settle()

    assert sorted(books.placed()) == ["all", "named", "there"]


def test_preferred_neighbours_are_a_matter_of_taste_and_room_decides():
    weighed = [{"weight": 5, "podAffinityTerm": {"topologyKey": HOSTNAME, **selecting(app="x")}}]
    liking = {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}}
    avoiding = {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}}
    there = a_pod("there", cpu="1", labels={"app": "x"}, spec={"nodeName": "b"})
    books = Books(a_node("a", cpu="1"), a_node("b"), there)

    books.add(a_pod("shy", cpu="1", age=3, spec=avoiding), a_pod("friend", cpu="1", age=2, spec=liking))
    books.settle()

    assert books.placed() == {"there": "b", "shy": "a", "friend": "b"}


def spread(skew: int = 1, key: str = "zone", when: str = "DoNotSchedule") -> dict[str, Any]:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, **selecting(app="x")}
    return {"topologySpreadConstraints": [constraint]}


@pytest.mark.parametrize(
    ("constraint", "placed"),
    [
        pytest.param(spread(1), 3, id="one apart"),
        pytest.param(spread(2), 4, id="two apart"),
        pytest.param(spread(1, "rack"), 0, id="no such label"),
        pytest.param(spread(1, when="ScheduleAnyway"), 4, id="anyway"),
    ],
)
def test_pods_are_spread_over_zones_as_evenly_as_they_ask(constraint, placed):
    nodes = [a_node("a", labels={"zone": "1"}), a_node("b", labels={"zone": "2"}, cpu="1")]
    books = Books(*nodes, *(a_pod(f"p{index}", cpu="900m", labels={"app": "x"}, spec=constraint) for index in range(4)))
    books.add(a_node("c", labels={"zone": "1"}))

    books.settle()

    assert len(books.placed()) == placed


def test_all_nodes_speak_in_one_sentence():
    nodes = [a_node("a"), a_node("b", cpu="4"), tainted(a_node("c"), TAINT), a_node("d", ready="False")]
    books = Books(*nodes, a_pod(cpu="8"))

    why = books.why("pod")

    assert why == (
        "0/4 nodes are available: 1 not ready; 1 taint gpu=yes:NoSchedule is not tolerated; "
        "needs 8 cpu, at most 4 of 4 free on 2 nodes (requested by pod)"
    )


def test_the_sentence_has_what_is_free_now():
    books = Books(a_node(), a_pod("other", cpu="500m", spec={"nodeName": "node"}), a_pod("ddp-worker-1", cpu="4"))

    why = books.why("ddp-worker-1")

    assert why == "0/1 nodes are available: needs 4 cpu, 1.5 of 2 free (requested by ddp-worker-1)"


def test_without_nodes_the_sentence_says_so():
    assert Books(a_pod()).why("pod") == "0/0 nodes are available: there is none (requested by pod)"


def claim(phase: str) -> dict[str, Any]:
    metadata = {"name": "data", "namespace": "default"}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "status": {"phase": phase}}


def test_a_pod_waits_for_its_volume_claim_and_says_which():
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    books = Books(a_node(), a_pod(spec={"volumes": volumes}))

    missing = books.why("pod")
    books.add(claim("Pending"))
    unbound = books.why("pod")
    books.add(claim("Bound"))
    books.settle()

    assert missing == "PersistentVolumeClaim data does not exist (requested by pod)"
    assert unbound == "PersistentVolumeClaim data is not bound yet (requested by pod)"
    assert books.placed() == {"pod": "node"}


def test_an_ephemeral_volume_is_a_claim_named_after_pod_and_volume():
    books = Books(a_node(), a_pod(spec={"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}]}))

    assert books.why("pod") == "PersistentVolumeClaim pod-tmp does not exist (requested by pod)"


def test_gated_and_leaving_pods_are_left_alone():
    leaving = a_pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    books = Books(a_node(), leaving, a_pod("gated", spec={"schedulingGates": [{"name": "wait"}]}))

    decisions = books.settle()

    assert not books.placed()
    assert not decisions.unschedulable


@pytest.mark.parametrize(
    ("name", "amount", "up", "expected"),
    [
        ("cpu", 1500 * NANO // 1000, False, "1.5"),
        ("cpu", 1999 * NANO // 1000, False, "1.99"),
        ("cpu", 1999 * NANO // 1000, True, "2"),
        ("cpu", 0, False, "0"),
        ("memory", 3 * GI, False, "3Gi"),
        ("memory", 1536 * 1024**2 * NANO, False, "1.5Gi"),
        ("memory", 512 * NANO, False, "512"),
        ("nvidia.com/gpu", 8 * NANO, True, "8"),
    ],
)
def test_amounts_are_shown_shortly_and_never_nicer_than_they_are(name, amount, up, expected):
    assert show(name, amount, up=up) == expected
