"""What a container printed is shown once and whole, however soon it ends and whatever becomes of its pod."""

from typing import Any

import pytest

from trainmaster.cli.follow import Follower, JobRef, Progress
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.operation import passing

UID = "uid-PyTorchJob-ddp"
RUNNING: dict[str, Any] = {"running": {}}
ENDED = {"terminated": {"exitCode": 3, "finishedAt": "2023-11-14T22:14:10Z"}}
LOOPING = {"waiting": {"reason": "CrashLoopBackOff"}}


class Shown:
    """A screen that keeps lines and warnings."""

    def __init__(self):
        self.lines, self.warnings, self.attempts = [], [], []
        self.progress = Progress()

    def line(self, rank, container, text):
        self.lines.append(text)

    def silence(self, rank, container):
        self.attempts.append(rank.pod.status.container_statuses[0].restart_count)

    def warning(self, job, reason, message):
        self.warnings.append((reason, message))

    def condition(self, job, condition): ...
    def notice(self, message): ...
    def changed(self, progress): ...


def status(state, restarts=0):
    last = {"lastState": ENDED} if restarts else {}
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "pytorch", "restartCount": restarts, "state": state, **last}],
    }


def followed(stage, *later, kept=None):
    """The job's pod is first seen as it is, then with each of these statuses."""
    shown = Shown()
    job = JobRef(stage.job(), "default", "ddp", UID)

    async def go_on():
        for one in later:
            await passing(1)
            stage.pod("worker-0", status=one, log=b"now\n")
        await passing(1)
        stage.job(conditions=stage.conditions(("Failed", "")))

    async def work(session):
        follower = Follower(session.client, [job], shown, kept=kept)
        shown.progress = await follower.follow()
        return 0

    assert stage.run("run", work, beside=go_on) == 0
    return shown


def archive(**attempts):
    """Logs that outlive their pods: `archive(_0=["line"])`."""
    return lambda uid, container, attempt: attempts.get(f"_{attempt}")


def asked(stage):
    return [dict(request.params) for request in stage.api.sent if request.path.endswith("/log")]


def test_a_log_that_is_gone_with_its_pod_is_said_to_be_lost(stage):
    stage.pod("worker-0", status=status(ENDED))
    stage.api.fail_next("GET */log", Fault(404))

    shown = followed(stage)

    lost = "what ddp-worker-0 printed is lost: it was deleted before its log could be read"
    assert shown.warnings == [("LogLost", lost)]
    assert {title for _, title in shown.progress.lost} == {"worker-0"}


def test_where_logs_outlive_pods_nothing_is_lost(stage):
    stage.pod("worker-0", status=status(ENDED))
    stage.api.fail_next("GET */log", Fault(404))

    shown = followed(stage, kept=archive(_0=["my last words"]))

    assert shown.lines == ["my last words"]
    assert not shown.warnings
    assert not shown.progress.lost


def test_an_attempt_that_was_over_before_it_was_heard_of_is_shown_before_the_next(stage):
    stage.pod("worker-0", status={"phase": "Pending"})

    shown = followed(stage, status(RUNNING, 1))

    assert [("previous" in params, "follow" in params) for params in asked(stage)] == [(True, False), (False, True)]
    assert shown.attempts == [0, 1]


@pytest.mark.parametrize("state", [RUNNING, LOOPING], ids=["running again", "about to run again"])
def test_where_logs_outlive_pods_every_attempt_is_shown(stage, state):
    stage.pod("worker-0", status={"phase": "Pending"})

    shown = followed(stage, status(state, 2), kept=archive(_0=["first"], _1=["second"]))

    assert shown.lines == ["first", "second", "now"]
    assert shown.attempts == [0, 1, 2]


def test_what_a_pod_did_before_it_was_seen_is_not_asked_for(stage):
    stage.pod("worker-0", status=status(RUNNING, 3), log=b"now\n")

    shown = followed(stage)

    assert ["previous" in params for params in asked(stage)] == [False]
    assert shown.lines == ["now"]


def test_the_log_of_a_later_attempt_is_not_taken_for_that_of_the_one_asked_for(stage):
    stage.pod("worker-0", status=status(RUNNING), log=b"second\n")

    shown = followed(stage, kept=archive(_0=["first"], _1=["second"]))

    assert shown.lines == ["first"]
