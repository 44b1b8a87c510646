from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.scheduling.scheduler_gang import KUBE_BATCH, PLUGINS, VOLCANO
from trainmaster.cluster.scheduling.scheduler_plan import PROMISE
from trainmaster.cluster.scheduling.scheduler_queue import PATIENCE
from trainmaster.testing.scheduling import NOW, Books, a_group, a_node, a_pod, a_queue, group_key


def members(count: int, group: str = "train", first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [a_pod(f"{group}-{index}", group=group, **more) for index in range(first, first + count)]


def on_node(pod: dict[str, Any], node: str = "node") -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def test_a_group_is_placed_as_a_whole():
    books = Books(a_node(cpu="4"), a_group(minMember=3), *members(3, cpu="1"))

    decisions = books.step()

    assert [len(bundle) for bundle in decisions.bundles] == [3]
    assert books.phase() == "Running"


def test_a_group_that_does_not_fit_as_a_whole_gets_nothing_and_is_told_what_is_missing():
    books = Books(a_node(cpu="4", memory="8Gi"), a_group(minMember=3), *members(3, cpu="2", memory="1Gi"))
    books.add(a_node("small", cpu="2", memory="8Gi"), on_node(a_pod("other", cpu="2"), "small"))

    books.settle()

    assert not [name for name in books.placed() if name.startswith("train")]
    assert books.why("train-0") == ("group train needs 3 pods (6 cpu, 3Gi) together; 4 cpu free, 2 more needed")


def test_a_group_larger_than_the_cluster_is_told_so_and_keeps_nobody_waiting():
    books = Books(a_node(cpu="4"), a_group(minMember=3, age=9), *members(3, cpu="2", age=9), a_pod("small", cpu="1"))

    books.settle()

    assert books.placed() == {"small": "node"}
    assert books.why("train-0") == "group train needs 3 pods (6 cpu) together; the cluster has 4 cpu in all"


def test_a_group_that_fits_in_sum_but_not_on_nodes_says_how_many_fit():
    books = Books(a_node("a", cpu="3"), a_node("b", cpu="3"), a_group(minMember=3), *members(3, cpu="2"))

    books.settle()

    assert not books.placed()
    assert books.why("train-0") == (
        "group train needs 3 pods (6 cpu) together; they would not fit even if nothing else ran"
    )


def test_of_a_group_that_must_wait_the_first_pod_without_a_place_says_why():
    books = Books(a_node("a", cpu="3"), a_node("b", cpu="2"), a_node("c", cpu="2"), a_group(minMember=3))
    books.add(on_node(a_pod("other", cpu="1"), "b"), *members(3, cpu="2"))

    books.settle()

    assert books.why("train-0") == (
        "group train needs 3 pods (6 cpu) together; 2 of them fit, but 0/3 nodes are available: "
        "needs 2 cpu, at most 1 of 3 free on 3 nodes (requested by train-2)"
    )


def test_a_large_pod_of_a_group_is_given_its_place_before_small_ones_take_it():
    books = Books(a_node("a", cpu="4"), a_node("b", cpu="2"), a_group(minMember=3))
    books.add(*members(2, cpu="1"), a_pod("train-big", group="train", cpu="4"))

    books.settle()

    assert books.placed() == {"train-0": "b", "train-1": "b", "train-big": "a"}


def test_when_not_all_are_needed_those_that_fit_are_taken():
    books = Books(a_node(cpu="2"), a_group(minMember=2), a_pod("train-big", group="train", cpu="2", age=5))
    books.add(*members(2, cpu="1"))

    books.settle()

    assert books.placed() == {"train-0": "node", "train-1": "node"}


def test_a_group_waits_until_enough_pods_exist():
    books = Books(a_node(cpu="4"), a_group(minMember=3), *members(2, cpu="1"))

    books.settle()
    waiting = books.why("train-0")
    books.add(*members(1, first=2, cpu="1"))
    books.settle()

    assert waiting == "group train needs 3 pods together; 2 exist"
    assert len(books.placed()) == 3


def test_a_group_that_does_not_exist_keeps_its_pods_waiting_until_it_does():
    books = Books(a_node(cpu="4"), *members(2, cpu="1"))

    books.settle()
    waiting = books.why("train-0")
    books.add(a_group(minMember=2))
    books.settle()

    assert waiting == "group train does not exist"
    assert len(books.placed()) == 2


def test_two_groups_that_half_fit_do_not_block_each_other():
    books = Books(a_node(cpu="4"), a_group("a", minMember=3), a_group("b", minMember=3))
    books.add(*members(3, "a", cpu="1"), *members(3, "b", cpu="1"))

    books.settle()
    first = sorted(books.placed())
    for name in first:
        books.end_pod(name)
    books.settle()

    assert first == ["a-0", "a-1", "a-2"]
    assert sorted(set(books.placed()) - set(first)) == ["b-0", "b-1", "b-2"]


def test_pods_beyond_the_minimum_come_as_they_fit_and_after_what_others_need():
    books = Books(a_node(cpu="4"), a_group("a", minMember=1, age=9), *members(4, "a", cpu="1", age=9))
    books.add(a_group("b", minMember=2, age=5), *members(2, "b", cpu="1", age=5))

    books.settle()

    assert sorted(books.placed()) == ["a-0", "a-1", "b-0", "b-1"]
    assert books.why("a-2") == "0/1 nodes are available: needs 1 cpu, 0 of 4 free (requested by a-2)"


def test_pods_beyond_the_minimum_keep_nothing_from_those_behind_them():
    books = Books(a_node(cpu="3"), a_group(minMember=1, age=9), a_pod("train-0", group="train", cpu="1", age=9))
    books.add(a_pod("train-1", group="train", cpu="3", age=9))
    books.settle()

    books.add(a_pod("small", cpu="1"))
    books.settle()

    assert sorted(books.placed()) == ["small", "train-0"]


def test_a_lost_member_is_replaced_beside_those_that_run():
    books = Books(a_node(cpu="3"), a_group(minMember=3), *members(3, cpu="1"))
    books.settle()

    books.drop_pod("train-1")
    books.settle()
    between = books.phase()
    books.add(a_pod("train-1b", group="train", cpu="1"))
    books.settle()

    assert between == "Running"
    assert books.placed()["train-1b"] == "node"


def test_groups_that_were_begun_and_not_finished_go_before_older_ones():
    books = Books(a_node(cpu="4"), a_group("old", minMember=2, age=9), *members(2, "old", cpu="1", age=9))
    for name in ("a", "b"):
        books.add(a_group(name, minMember=2, phase="Inqueue"), *members(2, name, cpu="1"))
        books.add(on_node(books.objects[f"Pod/{name}-0"]))

    books.settle()

    assert sorted(books.placed()) == ["a-0", "a-1", "b-0", "b-1"]


def test_members_that_are_on_their_way_out_do_not_count_for_their_successors():
    books = Books(a_node(cpu="4"), a_group(minMember=2, phase="Running"))
    for pod in members(2, cpu="1"):
        leaving = on_node(pod)
        leaving["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        books.add(leaving)

    books.add(a_pod("train-new-0", group="train", cpu="1"))
    books.settle()

    assert "train-new-0" not in books.placed()


def test_a_member_that_succeeded_early_still_counts():
    books = Books(a_node(cpu="3"), a_group(minMember=2), *members(2, cpu="1"))
    books.settle()

    books.end_pod("train-0")
    books.drop_pod("train-1")
    books.add(a_pod("train-2", group="train", cpu="1"))
    books.settle()

    assert books.placed()["train-2"] == "node"


def test_the_minimum_of_each_task_must_fit():
    group = a_group(minMember=2, minTaskMember={"ps": 1, "worker": 1})
    workers = members(2, cpu="1", task="worker")
    books = Books(a_node(cpu="2"), group, *workers)

    books.settle()
    waiting = books.why("train-0")
    books.add(a_pod("train-ps", group="train", task="ps", cpu="1"))
    books.settle()

    assert waiting == "group train needs 1 of task ps, 1 of task worker together; not all of them exist"
    assert sorted(books.placed()) == ["train-0", "train-ps"]


def test_a_member_without_its_volume_keeps_the_group_waiting():
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    books = Books(a_node(cpu="4"), a_group(minMember=2), *members(1, cpu="1"))
    books.add(a_pod("train-1", group="train", spec={"volumes": volumes}))

    books.settle()

    assert books.why("train-0") == "group train needs 2 pods together; PersistentVolumeClaim data does not exist"


@pytest.mark.parametrize(
    ("api_group", "pod"),
    [
        pytest.param(VOLCANO, {"group": "train"}, id="volcano"),
        pytest.param(KUBE_BATCH, {"group": "train", "spec": {"schedulerName": "kube-batch"}}, id="kube-batch"),
        pytest.param(PLUGINS, {"label_group": "train"}, id="scheduler-plugins"),
    ],
)
def test_groups_of_all_three_makers_are_all_or_nothing(api_group, pod):
    books = Books(a_node(cpu="2"), a_group(api_group=api_group, minMember=2), a_pod("one", cpu="1", **pod))

    books.settle()
    alone = books.placed()
    books.add(a_pod("two", cpu="1", **pod))
    books.settle()

    assert not alone
    assert sorted(books.placed()) == ["one", "two"]


def test_higher_priority_goes_first_and_the_class_of_the_group_decides():
    books = Books(a_node(cpu="2"), priority_class("high", 100), a_group("low", minMember=1, age=9))
    books.add(*members(1, "low", cpu="2", age=9), a_group("high", minMember=1, priorityClassName="high"))
    books.add(*members(1, "high", cpu="2"))

    books.settle()

    assert sorted(books.placed()) == ["high-0"]


def test_pods_go_by_their_own_priority():
    books = Books(a_node(cpu="2"), a_pod("old", cpu="2", age=9), a_pod("urgent", cpu="2", spec={"priority": 5}))

    books.settle()

    assert sorted(books.placed()) == ["urgent"]


def test_small_ones_do_not_starve_a_large_one_that_came_first():
    books = Books(a_node(cpu="4"), on_node(a_pod("running", cpu="1")), a_group(minMember=2, age=9))
    books.add(*members(2, cpu="2", age=9), *(a_pod(f"small-{index}", cpu="1") for index in range(9)))

    books.settle()
    kept = books.why("small-0")
    books.end_pod("running")
    books.settle()

    assert kept == ("0/1 nodes are available: 3 free cpu kept for group train, which came first (requested by small-0)")
    assert {"train-0", "train-1"} <= set(books.placed())


def test_what_cannot_delay_the_large_one_fills_the_gaps():
    books = Books(a_node(cpu="8", gpu="2"), on_node(a_pod("running", gpu="1", cpu="1")))
    books.add(a_pod("large", gpu="2", cpu="2", age=9), a_pod("gap", cpu="5"), a_pod("too-much", cpu="1"))

    books.settle()

    assert sorted(books.placed()) == ["gap", "running"]
    assert "2 free cpu kept for pod large" in books.why("too-much")


def test_pods_that_ask_for_nothing_are_never_in_the_way():
    books = Books(a_node(cpu="2"), on_node(a_pod("running", cpu="1")), a_pod("large", cpu="2", age=9), a_pod("idle"))

    books.settle()

    assert "idle" in books.placed()


def test_nodes_that_the_waiting_one_could_not_use_stay_open():
    books = Books(a_node("a", labels={"zone": "a"}), a_node("b"), on_node(a_pod("running", cpu="1"), "a"))
    books.add(a_pod("large", cpu="2", age=9, spec={"nodeSelector": {"zone": "a"}}), a_pod("other", cpu="1"))

    books.settle()

    assert books.placed()["other"] == "b"


def test_a_pod_that_waits_for_another_pod_and_not_for_room_keeps_nobody_away():
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    books = Books(a_node(cpu="2"), a_pod("lonely", cpu="2", age=9, spec=near), a_pod("other", cpu="2"))

    books.settle()

    assert books.placed() == {"other": "node"}


def test_what_is_promised_to_others_does_not_count_as_free():
    books = Books(a_node(cpu="4"), a_group("first", minMember=1, age=9, minResources={"cpu": "3"}))
    books.add(a_group(minMember=1), *members(1, cpu="2"))

    books.settle()

    assert books.why("train-0") == "group train needs 1 pod (2 cpu) together; 1 cpu free, 1 more needed"


def test_a_group_that_waits_for_host_ports_is_told_which():
    ported = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    books = Books(a_node(), on_node(a_pod("other", spec=ported)), a_group(minMember=1), *members(1, spec=ported))

    books.settle()

    assert books.why("train-0") == (
        "group train needs 1 pod together; 0 of them fit, but "
        "0/1 nodes are available: host port 80 is taken by other (requested by train-0)"
    )


def test_a_group_that_waits_for_admission_keeps_its_place_before_later_ones():
    books = Books(a_node(cpu="4"), on_node(a_pod("running", cpu="1")))
    books.add(a_group("first", minMember=1, age=9, minResources={"cpu": "4"}))
    books.add(a_group("second", minMember=1, minResources={"cpu": "1"}))

    books.settle()

    (condition,) = books.objects["PodGroup/second"]["status"]["conditions"]
    assert condition["message"] == (
        "group second needs 1 cpu before its pods are made; 3 free cpu kept for group first, which came first"
    )


def test_a_queue_that_is_full_admits_no_more_groups():
    books = Books(a_node(cpu="4"), a_queue("q", cpu="2"), a_group("a", minMember=1, queue="q", age=9))
    books.add(*members(1, "a", cpu="2", age=9), a_group("b", minMember=1, queue="q", minResources={"cpu": "1"}))

    books.settle()

    assert books.phase("b") == "Pending"


def test_a_queue_of_twice_the_weight_gets_twice_as_much():
    books = Books(a_node(cpu="9"), a_queue("heavy", weight=2), a_queue("light"))
    for queue in ("heavy", "light"):
        for index in range(9):
            name = f"{queue}{index}"
            books.add(a_group(name, minMember=1, queue=queue), *members(1, name, cpu="1"))

    books.settle()

    assert sum(name.startswith("heavy") for name in books.placed()) == 6


def test_a_queue_with_more_than_its_share_still_gets_its_turn_after_long_enough():
    books = Books(a_node(cpu="2"), a_queue("a"), a_queue("b"), a_group("running", minMember=1, queue="a"))
    books.add(on_node(a_pod("running-0", group="running", cpu="1")))
    books.add(a_group("old", minMember=1, queue="a", age=PATIENCE + 1), *members(1, "old", cpu="1"))
    books.add(a_group("new", minMember=1, queue="b"), *members(1, "new", cpu="1"))

    books.settle()

    assert sorted(books.placed()) == ["old-0", "running-0"]


def test_a_queue_takes_no_more_than_its_capability_and_keeps_its_rest_for_the_first():
    books = Books(a_node(cpu="8"), a_queue("q", cpu="4"))
    for name, count, age in (("a", 3, 9), ("b", 2, 8), ("c", 1, 7)):
        books.add(a_group(name, minMember=count, queue="q", age=age), *members(count, name, cpu="1", age=age))

    books.settle()

    assert sorted(books.placed()) == ["a-0", "a-1", "a-2"]
    assert books.why("b-0") == ("group b needs 2 pods (2 cpu) together; queue q has 1 of 4 cpu left, 2 asked for")
    assert books.why("c-0") == "group c needs 1 pod (1 cpu) together; queue q keeps its 1 cpu for group b"


def test_a_closed_queue_admits_nobody():
    closed = a_queue("q")
    closed["status"] = {"state": "Closed"}
    books = Books(a_node(cpu="8"), closed, a_group(queue="q", minMember=1), *members(1, cpu="1"))

    books.settle()

    assert books.why("train-0") == "group train needs 1 pod (1 cpu) together; queue q is closed"


def test_a_queue_that_nobody_made_does_not_keep_a_job_from_running():
    books = Books(a_node(cpu="8"), a_group(queue="project-y", minMember=1), *members(1, cpu="1"))

    books.settle()

    assert books.placed() == {"train-0": "node"}


def test_a_group_without_pods_is_admitted_when_its_resources_would_fit():
    books = Books(a_node(cpu="4"), a_group(minMember=2, minResources={"cpu": "4"}))

    books.settle()

    assert books.phase() == "Inqueue"


def test_a_group_whose_minimum_is_not_stated_is_admitted_at_once():
    books = Books(a_node(cpu="4"), a_group(minMember=4))

    books.settle()

    assert books.phase() == "Inqueue"


def test_a_group_without_pods_waits_for_its_resources_and_says_so():
    books = Books(a_node(cpu="4"), on_node(a_pod("other", cpu="1")), a_group(minMember=2, minResources={"cpu": "4"}))

    books.settle()
    before = books.objects["PodGroup/train"]["status"]
    books.end_pod("other")
    books.settle()

    assert before["phase"] == "Pending"
    assert [(each["type"], each["message"]) for each in before["conditions"]] == [
        ("Unschedulable", "group train needs 4 cpu before its pods are made; 3 cpu free, 1 more needed")
    ]
    assert books.phase() == "Inqueue"


def test_what_was_promised_to_one_group_is_not_promised_to_another():
    books = Books(a_node(cpu="4"), a_group("a", minMember=1, age=9, minResources={"cpu": "3"}))
    books.add(a_group("b", minMember=1, minResources={"cpu": "2"}))

    books.settle()

    assert (books.phase("a"), books.phase("b")) == ("Inqueue", "Pending")


def test_a_promise_keeps_later_pods_away_but_not_for_ever():
    books = Books(a_node(cpu="4"), a_group(minMember=1, age=9, minResources={"cpu": "3"}))
    books.settle()

    books.add(a_pod("later", cpu="2"))
    wake_at = books.settle().wake_at
    kept = books.why("later")
    books.now = NOW + PROMISE
    books.settle()

    assert wake_at == NOW + PROMISE
    assert "kept for groups that were admitted and have no pods yet" in kept
    assert books.placed() == {"later": "node"}


def test_a_group_waiting_for_admission_is_not_starved_by_small_pods():
    books = Books(a_node(cpu="4"), on_node(a_pod("running", cpu="2")))
    books.add(a_group(minMember=2, age=9, minResources={"cpu": "4"}), a_pod("small", cpu="1"))

    books.settle()
    small_waits = "small" not in books.placed()
    books.end_pod("running")
    books.settle()

    assert small_waits
    assert books.phase() == "Inqueue"


def test_a_group_keeps_its_phase_while_all_its_pods_are_made_anew():
    books = Books(a_node(cpu="2"), a_group(minMember=2, minResources={"cpu": "2"}), *members(2, cpu="1"))
    books.settle()

    for name in ("train-0", "train-1"):
        books.drop_pod(name)
    books.settle()
    without_pods = books.phase()
    books.add(on_node(a_pod("other", cpu="1")), *members(2, cpu="1"))
    books.settle()

    assert without_pods == "Running"
    assert books.phase() == "Inqueue"


def test_a_group_whose_pods_have_all_ended_is_completed_and_counts_them():
    books = Books(a_node(cpu="2"), a_group(minMember=2), *members(2, cpu="1"))
    books.settle()

    books.end_pod("train-0")
    books.end_pod("train-1", "Failed")
    books.settle()

    status = books.objects["PodGroup/train"]["status"]
    assert (status["phase"], status["succeeded"], status["failed"]) == ("Completed", 1, 1)
    assert "running" not in status


def test_the_condition_of_a_group_turns_when_it_is_placed():
    books = Books(a_node(cpu="2"), on_node(a_pod("other", cpu="1")), a_group(minMember=2), *members(2, cpu="1"))
    books.settle()

    books.now += 5
    books.end_pod("other")
    books.settle()

    conditions = {each["type"]: each for each in books.objects["PodGroup/train"]["status"]["conditions"]}
    assert conditions["Unschedulable"]["status"] == "False"
    assert conditions["Scheduled"]["status"] == "True"
    assert conditions["Scheduled"]["lastTransitionTime"] == "2024-01-01T00:00:05Z"


def test_a_scheduler_plugins_group_steps_through_its_own_phases():
    pods = [a_pod(f"p{index}", label_group="train", cpu="1") for index in range(2)]
    books = Books(a_node(cpu="2"), a_group(api_group=PLUGINS, minMember=2))

    phases = []
    for change in ((), pods, [on_node(pod) for pod in pods]):
        books.add(*change)
        books.settle()
        phases.append(books.phase())
    for pod in ("p0", "p1"):
        books.end_pod(pod)
    books.settle()

    assert [*phases, books.phase()] == ["Pending", "Scheduling", "Running", "Finished"]


def test_a_scheduler_plugins_group_that_waits_too_long_is_overdue():
    group = a_group(api_group=PLUGINS, minMember=2, scheduleTimeoutSeconds=30)
    books = Books(a_node(cpu="2"), on_node(a_pod("other", cpu="1")), group)
    books.add(*(a_pod(f"p{index}", label_group="train", cpu="1") for index in range(2)))

    before = books.settle()
    books.now = NOW + 30
    after = books.settle()

    assert (before.overdue, before.wake_at) == ({}, NOW + 30)
    assert after.overdue == {
        group_key(api_group=PLUGINS): (
            "not scheduled within 30 s: group train needs 2 pods (2 cpu) together; 1 cpu free, 1 more needed"
        )
    }


def test_a_group_being_deleted_places_nobody():
    group = a_group(minMember=1)
    group["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    books = Books(a_node(), group, *members(1))

    decisions = books.settle()

    assert not books.placed()
    assert decisions.unschedulable == {"default/train-0": "group train is being deleted"}


def test_when_nothing_changes_there_is_nothing_to_write():
    books = Books(a_node(cpu="2"), a_group(minMember=2), *members(2, cpu="1"), a_group("b", minMember=2))
    books.settle()

    decisions = books.plan()

    assert (decisions.bundles, decisions.group_statuses) == ([], {})
