"""What a follower hears of its jobs, whatever becomes of them, of the watches and of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.cli.follow import Follower, JobRef, Progress
from trainmaster.testing.fakeapi import Fault
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
        self.notices: list[str] = []

    def line(self, rank, container, text):
        self.lines.append(text)

    def warning(self, job, reason, message):
        self.warnings.append((reason, message))

    def condition(self, job, condition):
        self.conditions.append(condition.type)

    def notice(self, message):
        self.notices.append(message)

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

    def asked(self, plural: str, *, watch: bool = False) -> list[dict[str, str]]:
        """Parameters of the lists, or of the watches, of that kind."""
        sent = self.stage.api.sent
        return [dict(one.params) for one in sent if one.path.endswith(f"/{plural}") and one.stream is watch]


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


# While the server is away, or as good as away.


def test_a_job_that_vanishes_while_the_watch_is_down_is_over(followed, stage):
    async def vanish_unseen():
        await passing(10)
        stage.api.hold_watches()
        followed.vanish()
        stage.api.compact()
        stage.api.drop_watches(broken=True)
        stage.api.hold_watches(False)

    assert followed.run(vanish_unseen, seconds=4 * HOUR) == 0
    assert [job.name for job in followed.progress.gone] == ["ddp"]


def test_an_hour_without_the_server_is_told_once_and_costs_few_requests(followed, stage):
    is_away: list[bool] = []
    stage.api.on_request(lambda method, path, body: Fault(message="connection refused") if is_away else None)
    requests: list[int] = []

    async def go_away():
        await passing(10)
        is_away.append(True)
        before = len(stage.api.requests)
        stage.api.drop_watches(broken=True)
        await passing(HOUR)
        requests.append(len(stage.api.requests) - before)
        is_away.clear()
        followed.succeed()

    assert followed.run(go_away, seconds=2 * HOUR) == 0
    away, back = followed.shown.notices
    assert "the API server is not available" in away
    assert "connection refused" in away
    assert back == "the API server is available again"
    assert 3 * 120 <= requests[0] <= 3 * 260
    assert followed.shown.conditions == ["Succeeded"]


def test_a_server_that_ends_every_watch_at_once_is_not_besieged(followed, stage):
    def cut(method: str, path: str, body: bytes) -> None:
        if stage.api.sent[-1].stream:
            asyncio.get_running_loop().call_soon(stage.api.drop_watches)

    stage.api.on_request(cut)
    requests: list[int] = []

    async def wait():
        await passing(HOUR)
        requests.append(len(stage.api.requests))
        followed.succeed()

    assert followed.run(wait, seconds=2 * HOUR) == 0
    assert requests[0] <= 3 * 260
    assert followed.shown.conditions == ["Succeeded"]


def test_a_server_that_tells_its_news_and_ends_the_watch_is_not_besieged_either(followed, stage):
    def cut(method: str, path: str, body: bytes) -> None:
        if stage.api.sent[-1].stream:
            asyncio.get_running_loop().call_soon(stage.api.send_bookmarks)
            asyncio.get_running_loop().call_later(0.1, stage.api.drop_watches)

    stage.api.on_request(cut)
    requests: list[int] = []

    async def wait():
        await passing(HOUR)
        requests.append(len(stage.api.requests))
        followed.succeed()

    assert followed.run(wait, seconds=2 * HOUR) == 0
    assert requests[0] <= 3 * 2000
    assert followed.shown.notices == []


def test_a_kind_that_is_not_served_any_more_ends_it_after_a_while(followed, stage, capsys):
    async def uninstall():
        await passing(10)
        stage.api.resources.discard(followed.resource)
        stage.api.drop_watches()

    assert followed.run(uninstall) == 1
    assert "404" in capsys.readouterr().err


def test_a_server_that_does_not_serve_the_kind_yet_is_waited_for(followed, stage):
    async def restart():
        await passing(10)
        stage.api.resources.discard(followed.resource)
        stage.api.drop_watches()
        await passing(20)
        stage.api.resources.add(followed.resource)
        followed.succeed()

    assert followed.run(restart) == 0


def test_credentials_that_expire_on_the_way_end_it(followed, stage, capsys):
    is_expired: list[bool] = []
    stage.api.on_request(lambda method, path, body: 401 if is_expired else None)

    async def expire():
        await passing(HOUR)
        is_expired.append(True)

    assert followed.run(expire, seconds=2 * HOUR) == 1
    assert "your credentials may have expired" in capsys.readouterr().err


def test_a_log_that_breaks_off_while_the_server_is_away_goes_on_afterwards(followed, stage):
    is_away: list[bool] = []
    stage.api.on_request(lambda method, path, body: Fault() if is_away or _is_first_log(stage) else None)

    async def go_away():
        await passing(10)
        stage.pod("worker-0", status=DONE, log=b"my only line\n")
        await passing(0.1)
        is_away.append(True)
        stage.api.drop_watches(broken=True)
        await passing(HOUR)
        is_away.clear()
        await passing(60)
        followed.succeed()

    assert followed.run(go_away, seconds=2 * HOUR) == 0
    assert followed.shown.lines == ["my only line"]
    assert followed.shown.warnings == []


def _is_first_log(stage: Any) -> bool:
    return [one.path.endswith("/log") for one in stage.api.sent].count(True) == 1 and stage.api.sent[-1].path[
        -4:
    ] == "/log"


# Events are decoration.


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_job_is_followed_without_events_where_they_may_not_be_read(followed, stage, verb):
    def refuse(method: str, path: str, body: bytes) -> int | None:
        is_meant = path.endswith("/events") and stage.api.sent[-1].stream is (verb == "watch")
        return 403 if is_meant else None

    stage.api.on_request(refuse)
    stage.pod("worker-0")

    async def end():
        await passing(10)
        followed.succeed()

    assert followed.run(end) == 0
    (notice,) = followed.shown.notices
    assert "events cannot be read" in notice
    assert followed.shown.conditions == ["Succeeded"]


def test_a_server_that_has_no_events_to_give_does_not_hold_a_job_up(followed, stage):
    stage.api.on_request(lambda method, path, body: 500 if path.endswith("/events") else None)

    async def end():
        await passing(HOUR)
        followed.succeed()

    assert followed.run(end, seconds=2 * HOUR) == 0


# What is asked for is what is needed.


def test_only_what_belongs_to_the_job_is_asked_for_and_in_pages(followed, stage):
    async def end():
        await passing(10)
        stage.pod("worker-0")
        await passing(10)
        followed.succeed()

    assert followed.run(end) == 0
    for watch in (False, True):
        jobs, pods, events = (followed.asked(plural, watch=watch) for plural in ("pytorchjobs", "pods", "events"))
        assert {one["fieldSelector"] for one in jobs} == {"metadata.name=ddp"}
        assert {one["labelSelector"] for one in pods} == {"training.kubeflow.org/job-name in (ddp)"}
        assert {one["fieldSelector"] for one in events} == {
            "involvedObject.name=ddp,type=Warning",
            "involvedObject.kind=Pod,type=Warning",
        }
    lists = [one for plural in ("pytorchjobs", "pods", "events") for one in followed.asked(plural)]
    assert {one["limit"] for one in lists} == {"500"}


def test_a_job_of_more_pods_than_fit_on_a_page_is_seen_whole(followed, stage):
    for index in range(1200):
        stage.pod(f"worker-{index}", status={"phase": "Pending"})

    async def end():
        await passing(10)
        followed.succeed()

    assert followed.run(end) == 0
    assert len(followed.progress.ranks) == 1200
    assert len(followed.asked("pods")) == 6  # three pages, and three more when the job had ended


def test_a_name_that_is_too_long_for_a_label_does_not_end_it(stage):
    name = "a" * 64
    resource = stage.job(name=name)
    shown = Shown()

    async def end():
        await passing(10)
        stage.job(name=name, conditions=stage.conditions(("Failed", "")))

    async def work(session):
        await Follower(session.client, [JobRef(resource, "default", name, f"uid-PyTorchJob-{name}")], shown).follow()
        return 0

    assert stage.run("run", work, beside=end) == 0
    (asked, *_) = (dict(one.params) for one in stage.api.sent if one.path.endswith("/pods"))
    assert asked["labelSelector"] == "training.kubeflow.org/job-name"
