"""A gang that waits: its PodGroup says why, before there is any pod that could."""

import pytest

from trainmaster.cli.describe import DescribeOptions, describe
from trainmaster.cli.follow import Follower, JobRef
from trainmaster.engine.gang import VOLCANO
from trainmaster.objects.resource import EVENTS
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.operation import passing

WHY = "group ddp needs 2.7 cpu before its pods are made; the cluster has 2 cpu in all"
OWNER = "uid-PyTorchJob-ddp"


def a_group(stage, *, owner=OWNER, phase="Pending", uid="group"):
    owners = [{"kind": "PyTorchJob", "name": "ddp", "uid": owner, "controller": True}] if owner else []
    held = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": WHY}
    body = {"apiVersion": VOLCANO.api_version, "kind": "PodGroup", "status": {"phase": phase, "conditions": [held]}}
    stage.api.put(VOLCANO, {**body, "metadata": {"name": "ddp", "uid": uid, "ownerReferences": owners}})


def an_event(stage, name="e", *, uid="group", kind="PodGroup", about="ddp", reason="Unschedulable"):
    api_version = VOLCANO.api_version if kind == "PodGroup" else "v1"
    regarding = {"apiVersion": api_version, "kind": kind, "name": about, "namespace": "default", "uid": uid}
    body = {"involvedObject": regarding, "type": "Warning", "reason": reason, "message": WHY}
    stage.api.put(EVENTS, {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, **body})


def described(stage, capsys):
    stage.run("describe", lambda session: describe(session, DescribeOptions(("ddp",))))
    return capsys.readouterr().out


class Told:
    """A screen that keeps the warnings."""

    def __init__(self):
        self.warnings = []

    def warning(self, job, reason, message):
        self.warnings.append((reason, message))

    def line(self, rank, container, text): ...
    def silence(self, rank, container): ...
    def condition(self, job, condition): ...
    def notice(self, message): ...
    def changed(self, progress): ...


def followed(stage, resource):
    told = Told()
    job = JobRef(resource, "default", "ddp", OWNER)

    async def end():
        await passing(5)
        stage.job(conditions=stage.conditions(("Succeeded", "")))

    async def work(session):
        await Follower(session.client, [job], told).follow()
        return 0

    assert stage.run("run", work, beside=end) == 0
    return told.warnings


def test_what_holds_a_gang_up_is_described_though_it_has_no_pods(stage, capsys):
    stage.job(conditions=stage.conditions(("Created", "")))
    a_group(stage)
    an_event(stage)

    out = described(stage, capsys)

    assert f"Held up:\n  all pods together: Unschedulable: {WHY}" in out
    assert "podgroup/ddp" in out
    assert "What to do: There is no room for the pods of pytorchjob/ddp together" in out


def test_pods_that_say_the_same_are_named_instead(stage, capsys):
    stage.job(conditions=stage.conditions(("Created", "")))
    a_group(stage)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WHY}
    stage.pod("worker-0", status={"phase": "Pending", "conditions": [condition]})

    out = described(stage, capsys)

    assert f"  worker-0: Unschedulable: {WHY}" in out
    assert "all pods together" not in out


@pytest.mark.parametrize(
    "group",
    [
        pytest.param({"owner": "another"}, id="of another job"),
        pytest.param({"phase": "Running"}, id="placed since"),
    ],
)
def test_a_group_that_does_not_hold_the_job_up_is_not_told(stage, capsys, group):
    stage.job(conditions=stage.conditions(("Created", "")))
    a_group(stage, **group)

    assert "Held up" not in described(stage, capsys)


@pytest.mark.parametrize("owner", [OWNER, ""], ids=["made by the operator", "made by the user"])
def test_who_follows_a_job_is_told_what_its_gang_waits_for(stage, owner):
    resource = stage.job()
    a_group(stage, owner=owner)
    an_event(stage)

    assert followed(stage, resource) == [("FailedScheduling", WHY)]


def test_what_a_gang_waits_for_is_told_once_however_many_pods_say_it(stage):
    resource = stage.job()
    a_group(stage)
    an_event(stage)
    for title in ("worker-0", "worker-1"):
        stage.pod(title)
        an_event(stage, title, uid=title, kind="Pod", about=f"ddp-{title}", reason="FailedScheduling")

    assert followed(stage, resource) == [("FailedScheduling", WHY)]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param({"uid": "newer"}, id="one that was replaced"),
        pytest.param({"owner": "another"}, id="another job's"),
        pytest.param(None, id="one that is gone"),
    ],
)
def test_events_about_other_groups_of_the_name_are_not_told(stage, group):
    resource = stage.job()
    if group is not None:
        a_group(stage, **group)
    an_event(stage)

    assert followed(stage, resource) == []


def test_who_may_not_read_groups_is_told_by_their_events(stage):
    resource = stage.job()
    an_event(stage)
    stage.api.fail_next("GET */podgroups/ddp", Fault(403))

    assert followed(stage, resource) == [("FailedScheduling", WHY)]
