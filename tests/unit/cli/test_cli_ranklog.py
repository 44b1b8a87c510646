"""A log is followed through breaks of its stream: no line twice, none left out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from trainmaster.cli.ranklog import PATIENCE, Attempt, RankLog
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError, NotFound, ServerError, Unreachable
from trainmaster.kube.transport import Headers, Request, Response
from trainmaster.objects.pod import Pod
from trainmaster.testing import clock
from trainmaster.testing.fakeapi_server import json_answer

BROKEN = Unreachable("the connection broke")


def at(second: float, text: str) -> str:
    return f"2024-01-01T00:00:{second:012.9f}Z {text}"


def a_pod(*, uid: str = "u", restarts: int = 0) -> dict[str, Any]:
    container = {"name": "main", "restartCount": restarts, "state": {"running": {}}}
    meta = {"name": "ddp-worker-0", "namespace": "default", "uid": uid}
    return {"metadata": meta, "status": {"phase": "Running", "containerStatuses": [container]}}


class Node:
    """Answers for logs one after the other: lines, and then perhaps a break; or a status."""

    def __init__(self, *answers: Sequence[str | Exception] | int, pod: dict[str, Any] | None = None) -> None:
        self.answers = list(answers)
        self.pod = pod or a_pod()
        self.asked: list[dict[str, str]] = []

    async def send(self, request: Request) -> Response:
        if not request.path.endswith("/log"):
            return json_answer(200, self.pod)
        self.asked.append(dict(request.params))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return json_answer(answer, {"message": "no"})
        return Response(200, Headers([]), self.chunks(answer))

    async def chunks(self, answer: Sequence[str | Exception]) -> AsyncGenerator[bytes, None]:
        for line in answer:
            if isinstance(line, Exception):
                raise line
            yield f"{line}\n".encode()

    async def close(self) -> None: ...


def read(node: Node, *log: tuple[str, str], is_away: bool = False) -> tuple[list[str], KubeError | None]:
    """The lines, and what ended them before their time."""
    lines: list[str] = []
    keep = lines.append

    async def main() -> None:
        attempt = Attempt(msgspec.convert(a_pod(), Pod), "main", 0)
        async with aclosing(RankLog(Client(node, max_retries=0), attempt, log, lambda: is_away).lines()) as given:
            async for line in given:
                keep(line)

    try:
        clock.run(main())
    except KubeError as error:
        return lines, error
    return lines, None


def test_a_stream_that_breaks_goes_on_after_its_last_line():
    node = Node([at(1, "a"), at(2, "b"), BROKEN], [at(2, "b"), at(3, "c")])

    assert read(node) == (["a", "b", "c"], None)
    assert node.asked[1]["sinceTime"] == at(2, "").strip()


def test_lines_of_one_moment_are_told_apart_by_their_number():
    node = Node([at(1, "a"), at(1, "b"), BROKEN], [at(1, "a"), at(1, "b"), at(1, "c"), BROKEN], [at(1, "a")] * 4)

    assert read(node) == (["a", "b", "c", "a"], None)


def test_what_a_server_gives_from_before_is_left_out():
    node = Node([at(2.5, "b"), BROKEN], [at(2.1, "old"), at(2.5, "b"), at(2.7, "c")])

    assert read(node) == (["b", "c"], None)


def test_the_beginning_that_was_asked_for_holds_for_the_first_stream_only():
    node = Node([at(1, "a"), BROKEN], [at(1, "a"), at(2, "b")])

    assert read(node, ("tailLines", "1")) == (["a", "b"], None)
    assert [asked.get("tailLines") for asked in node.asked] == ["1", None]


def test_a_stream_that_breaks_before_its_first_line_begins_again():
    node = Node([BROKEN], 503, [at(1, "a")])

    assert read(node, ("tailLines", "1")) == (["a"], None)
    assert [asked.get("tailLines") for asked in node.asked] == ["1", "1", "1"]


def test_times_are_shown_to_those_who_ask_for_them():
    node = Node([at(1, "a"), ""], pod=a_pod())

    assert read(node, ("timestamps", "true"))[0][0] == at(1, "a")


def test_the_rest_of_a_container_that_was_started_again_is_that_of_the_previous_one():
    node = Node([at(1, "a"), BROKEN], [at(1, "a"), at(2, "b")], pod=a_pod(restarts=1))

    assert read(node) == (["a", "b"], None)
    assert ("previous" in node.asked[1], "follow" in node.asked[1]) == (True, False)


@pytest.mark.parametrize("pod", [a_pod(uid="another"), a_pod(restarts=2)], ids=["another pod", "twice started again"])
def test_the_log_of_another_is_not_taken_for_the_rest(pod):
    lines, error = read(Node([at(1, "a"), BROKEN], [at(2, "not mine")], pod=pod))

    assert lines == ["a"]
    assert "started again" in str(error)


def test_a_log_that_is_gone_is_not_asked_for_again():
    lines, error = read(Node([at(1, "a"), BROKEN], 404))

    assert lines == ["a"]
    assert isinstance(error, NotFound)


def test_a_node_that_does_not_answer_is_given_up():
    node = Node(*[500] * 100)

    lines, error = read(node)

    assert lines == []
    assert isinstance(error, ServerError)
    assert len(node.asked) == PATIENCE + 1


def test_while_the_server_is_away_it_is_not():
    node = Node([at(1, "a"), BROKEN], *[500] * 100, [at(1, "a"), at(2, "b")])

    assert read(node, is_away=True) == (["a", "b"], None)


def test_where_lines_have_no_times_nothing_is_shown_twice():
    lines, error = read(Node(["a", "b", BROKEN], ["a", "b", "c"]))

    assert lines == ["a", "b"]
    assert error is BROKEN
