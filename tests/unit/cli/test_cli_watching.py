"""get -w, wait and delete while the server is away, and lists that are longer than a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from trainmaster.cli.delete import DeleteOptions, delete
from trainmaster.cli.get import GetOptions, get
from trainmaster.cli.wait import WaitOptions, wait
from trainmaster.objects.resource import PODS
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.operation import passing

HOUR = 3600.0
VERBS = {
    "get": partial(get, options=GetOptions(("pod/ddp-worker-0",), watch=True, output="name")),
    "wait": partial(wait, options=WaitOptions(("pod/ddp-worker-0",), "jsonpath={.status.phase}=Failed", "-1s")),
    "delete": partial(delete, options=DeleteOptions(("pod/ddp-worker-0",))),
}


def away_for(stage: Any, seconds: float, requests: list[int], *, fault: Fault | int) -> Callable[[], Any]:
    """From the tenth second on the server fails so."""
    is_away: list[bool] = []
    stage.api.on_request(lambda method, path, body: fault if is_away else None)

    async def go_away() -> None:
        await passing(10)
        is_away.append(True)
        before = len(stage.api.requests)
        stage.api.drop_watches(broken=True)
        await passing(seconds)
        requests.append(len(stage.api.requests) - before)
        is_away.clear()
        await passing(60)

    return go_away


def held(stage: Any) -> None:
    """A pod that stays when it is deleted."""
    stage.pod("worker-0")
    body = stage.api.object(PODS, "default", "ddp-worker-0")
    stage.api.put(PODS, {**body, "metadata": {**body["metadata"], "finalizers": ["example.com/hold"]}})


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", [Fault(message="connection refused"), 503], ids=["no answer", "503"])
def test_an_hour_without_the_server_is_told_once_and_costs_few_requests(stage, capsys, verb, fault):
    held(stage)
    requests: list[int] = []

    assert stage.run(verb, VERBS[verb], beside=away_for(stage, HOUR, requests, fault=fault), seconds=2 * HOUR) is None

    told = capsys.readouterr().err.splitlines()
    assert ["is not available" in line for line in told] == [True, False]
    assert told[1] == "warning: the API server is available again"
    assert requests[0] <= 260


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("status", "words"), [(401, "your credentials may have expired"), (403, "right")])
def test_a_refusal_on_the_way_ends_it(stage, capsys, verb, status, words):
    held(stage)

    assert stage.run(verb, VERBS[verb], beside=away_for(stage, HOUR, [], fault=status), seconds=2 * HOUR) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "code"), [("wait", 1), ("delete", 0)])
def test_what_vanishes_while_the_server_is_away_is_noticed(stage, verb, code):
    held(stage)

    async def vanish():
        await passing(10)
        stage.api.hold_watches()
        stage.api.remove(PODS, "default", "ddp-worker-0")
        stage.api.compact()
        stage.api.drop_watches(broken=True)
        stage.api.hold_watches(False)

    assert stage.run(verb, VERBS[verb], beside=vanish, seconds=4 * HOUR) == code


def test_a_list_is_asked_for_in_pages_and_shown_whole(stage, capsys):
    for index in range(1200):
        stage.pod(f"worker-{index}")

    assert stage.run("get", lambda session: get(session, GetOptions(("pods",), "name"))) == 0

    assert len(capsys.readouterr().out.splitlines()) == 1200
    lists = [dict(one.params) for one in stage.api.sent if one.path.endswith("/pods")]
    assert [one["limit"] for one in lists] == ["500"] * 3


def test_a_list_that_expires_between_two_pages_is_asked_for_in_one(stage, capsys):
    for index in range(600):
        stage.pod(f"worker-{index}")
    stage.api.fail_next(lambda method, path, body: "continue" in dict(stage.api.sent[-1].params), Fault(410))

    assert stage.run("get", lambda session: get(session, GetOptions(("pods",), "name"))) == 0

    assert len(capsys.readouterr().out.splitlines()) == 600


def test_a_list_survives_a_moment_without_the_server(stage):
    stage.pod("worker-0")
    stage.api.fail_next("GET */pods", Fault(), times=2)

    assert stage.run("get", lambda session: get(session, GetOptions(("pods",), "name"))) == 0
