"""From a scheduler's sentence to what to do: room is asked for only where the sentence is about amounts."""

import pytest

from trainmaster.cli import placement

ROOM = "There is no room for w-0"
ELSEWHERE = "check nodeSelector"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("0/1 nodes are available: needs 9 cpu, 2 of 2 free", id="a pod"),
        pytest.param("0/1 nodes are available: no room for another pod, 110 at most", id="number of pods"),
        pytest.param("group g needs 3 pods (2.7 cpu) together; the cluster has 2 cpu in all", id="a gang, for ever"),
        pytest.param("group g needs 3 pods (2.7 cpu) together; 1 cpu free, 1.7 more needed", id="a gang, for now"),
        pytest.param("group g needs 2 pods together; they would not fit even if nothing else ran", id="in pieces"),
        pytest.param("0/1 nodes are available: 2 free cpu kept for group h, which came first", id="kept for another"),
        pytest.param("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", id="kube-scheduler"),
        pytest.param("0/3 nodes are available: 3 Too many pods.", id="kube-scheduler, number of pods"),
    ],
)
def test_where_amounts_are_short_room_is_asked_for(message):
    sentence = placement.remedy_of("w-0", message)

    assert sentence.startswith(ROOM)
    assert ELSEWHERE not in sentence


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        pytest.param("PersistentVolumeClaim d does not exist", "the PersistentVolumeClaim d that w-0", id="no claim"),
        pytest.param(
            "group g needs 2 pods together; PersistentVolumeClaim d does not exist (requested by w-0)",
            "the PersistentVolumeClaim d that w-0",
            id="no claim for a gang",
        ),
        pytest.param('persistentvolumeclaim "d" not found', "the PersistentVolumeClaim d that w-0", id="not found"),
        pytest.param("PersistentVolumeClaim d is not bound yet", "describe pvc/d", id="claim without a volume"),
        pytest.param(
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "get pvc", id="some claim"
        ),
        pytest.param("group g does not exist", "the PodGroup g that w-0", id="no group"),
        pytest.param("group g needs 9 pods together; 4 exist", "schedulingPolicy.minAvailable", id="too few pods"),
        pytest.param(
            "group g needs 2 of task worker together; not all of them exist", "minAvailable", id="too few of a task"
        ),
        pytest.param(
            "cannot find enough sibling pods, current pods number: 4, minMember of group: 9",
            "minAvailable",
            id="scheduler-plugins, too few pods",
        ),
        pytest.param("pod group is not ready, 4 Pending, 9 minAvailable.", "minAvailable", id="Volcano, too few pods"),
        pytest.param("queue q is closed", "Open the queue q", id="closed queue"),
        pytest.param("queue q has 1 of 2 cpu left, 3 asked for", "left to queue q for w-0", id="full queue"),
        pytest.param("0/1 nodes are available: no label a=b as nodeSelector wants", "nodeSelector", id="label"),
        pytest.param("0/1 nodes are available: taint a=b:NoSchedule is not tolerated", "tolerations", id="taint"),
        pytest.param("0/1 nodes are available: host port 80 is taken by x", "host ports", id="port"),
        pytest.param(
            "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.",
            "host ports",
            id="kube-scheduler, port",
        ),
        pytest.param("Scheduling is blocked due to non-empty scheduling gates", "schedulingGates", id="gates"),
        pytest.param("something new", "Mend what the message above names", id="anything else"),
    ],
)
def test_where_something_else_is_missing_that_is_named_and_no_room_is_asked_for(message, remedy):
    sentence = placement.remedy_of("w-0", message)

    assert remedy in sentence
    assert "resources.requests, free" not in sentence


def test_where_some_nodes_are_full_and_others_unfit_both_are_told():
    sentence = placement.remedy_of("w-0", "0/2 nodes are available: 1 no label a=b; 1 needs 9 cpu, 2 of 2 free")

    assert sentence.startswith(ROOM)
    assert ELSEWHERE in sentence
