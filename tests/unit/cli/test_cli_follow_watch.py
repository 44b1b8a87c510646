"""What a follower hears of its jobs, whatever becomes of them, of the watches and of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.cli.follow import Follower, JobRef, Progress
from trainmaster.testing.operation import passing

UID = "uid-PyTorchJob-ddp"
HOUR = 3600.0
ENDED = {"terminated": {"exitCode": 0, "finishedAt": "2023-11-14T22:14:10Z"}}
DONE = {"phase": "Succeeded", "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": ENDED}]}


class Shown:
    """A screen that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[tuple[str, str]] = []
        self.conditions: list[str] = []

    def line(self, rank, container, text):
        self.lines.append(text)

    def warning(self, job, reason, message):
        self.warnings.append((reason, message))

    def condition(self, job, condition):
        self.conditions.append(condition.type)

    def silence(self, rank, container): ...
    def changed(self, progress): ...


class Followed:
    """A job of the stage, followed until it is over or the virtual time is."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.resource = stage.job()
        self.shown = Shown()
        self.progress: Progress | None = None

    def run(self, beside: Callable[[], Any], *, seconds: float = HOUR) -> int | None:
        async def work(session: Any) -> int:
            job = JobRef(self.resource, "default", "ddp", UID)
            self.progress = await Follower(session.client, [job], self.shown).follow()
            return 0

        code: int | None = self.stage.run("run", work, beside=beside, seconds=seconds)
        return code

    def succeed(self) -> None:
        self.stage.job(conditions=self.stage.conditions(("Succeeded", "")))

    def vanish(self) -> None:
        self.stage.api.remove(self.resource, "default", "ddp")

    def is_watch(self, plural: str) -> Callable[[str, str, bytes], bool]:
        """Whether the latest request is a watch of that kind."""
        return lambda method, path, body: self.stage.api.sent[-1].stream and path.endswith(f"/{plural}")


@pytest.fixture
def followed(stage):
    return Followed(stage)


def test_a_job_that_is_deleted_is_over(followed):
    async def delete():
        await passing(10)
        followed.vanish()

    assert followed.run(delete) == 0
    assert [job.name for job in followed.progress.gone] == ["ddp"]


def test_another_job_of_the_name_is_not_the_one_that_is_followed(followed, stage):
    async def replace():
        await passing(10)
        followed.vanish()
        successor = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}}
        status = {"conditions": stage.conditions(("Succeeded", ""))}
        stage.api.put(followed.resource, {**successor, "metadata": {"name": "ddp", "uid": "x"}, "status": status})

    assert followed.run(replace) == 0
    assert followed.shown.conditions == []
    assert [job.name for job in followed.progress.gone] == ["ddp"]


def test_history_that_the_server_has_forgotten_is_made_up_for_by_a_new_list(followed, stage):
    async def compact():
        await passing(10)
        stage.api.hold_watches()
        followed.succeed()
        stage.api.compact()
        stage.api.drop_watches()
        stage.api.hold_watches(False)

    assert followed.run(compact) == 0
    assert followed.shown.conditions == ["Succeeded"]


@pytest.mark.parametrize("what", ["pytorchjobs", "pods"])
@pytest.mark.parametrize(("status", "words"), [(401, "does not accept who you are"), (403, "right")])
def test_who_may_not_read_what_is_followed_is_told_so(followed, stage, capsys, what, status, words):
    stage.api.fail_next(f"GET */{what}", status)

    async def nothing():
        await passing(0)

    assert followed.run(nothing) == 1
    assert words in capsys.readouterr().err


def test_pods_that_are_heard_of_later_than_the_end_of_their_job_are_looked_for(followed, stage):
    is_deaf = [True]
    stage.api.on_request(lambda method, path, body: 503 if is_deaf and path.endswith("/pods") else None)

    async def end():
        await passing(9)
        stage.pod("worker-0", status=DONE, log=b"my only line\n")
        is_deaf.clear()
        followed.succeed()

    assert followed.run(end) == 0
    assert followed.shown.lines == ["my only line"]
