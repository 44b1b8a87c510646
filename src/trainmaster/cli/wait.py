"""`trainmaster wait`: returns when a condition holds; for jobs also when it no longer can, with exit code 1."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from trainmaster.api.status import JobStatus, status_of
from trainmaster.cli import duration, targets
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.delete import until_gone
from trainmaster.cli.targets import Found
from trainmaster.cli.watching import DOCUMENTS, watched
from trainmaster.cluster.server import jsonpath
from trainmaster.kube.errors import NotFound
from trainmaster.kube.watch import Changed, Listed, Selection

WEEK = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class WaitOptions:
    words: tuple[str, ...]
    goal: str = ""
    """condition=TYPE[=STATUS], delete, create, or jsonpath={.path}=VALUE."""
    timeout: str = "30s"
    selector: str = ""
    all_of_kind: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    text: str
    is_met: Callable[[dict[str, Any]], bool]
    condition: str = ""
    """The type, where the goal is a condition that is to become true."""


def run(choice: Choice, options: WaitOptions) -> int:
    return carry_out("wait", choice, lambda session: wait(session, options))


async def wait(session: Session, options: WaitOptions) -> int:
    patience = _patience(options.timeout)
    if options.goal.lower() == "delete":
        return await _deleted(session, options, patience)
    if options.goal == "create":
        return await _created(session, options, patience)
    goal = goal_of(options.goal)
    found = await targets.objects(session, options.words, selector=options.selector, all_of_kind=options.all_of_kind)
    if not found:
        raise Failure("no resources found, so there is nothing to wait for")
    return await _reach(session, found, goal, patience)


def goal_of(text: str) -> Goal:
    what, _, rest = text.partition("=")
    if what == "condition" and rest:
        type_, _, status = rest.partition("=")
        wanted = (type_.lower(), (status or "true").lower())
        return Goal(text, lambda item: wanted in _conditions(item), type_ if wanted[1] == "true" else "")
    if what == "jsonpath" and rest.startswith("{") and "}" in rest:
        path, _, value = rest[1:].partition("}")
        expected = value.removeprefix("=")
        return Goal(text, lambda item: _matches(item, path, expected if value else None))
    raise Misuse(
        f"--for={text}: say condition=Succeeded, condition=TYPE=STATUS, delete, create or jsonpath={{.path}}=VALUE"
    )


def _conditions(item: dict[str, Any]) -> list[tuple[str, str]]:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return [(str(one.get("type", "")).lower(), str(one.get("status", "")).lower()) for one in conditions]


def _matches(item: dict[str, Any], path: str, expected: str | None) -> bool:
    """Without a value it is enough that there is one."""
    found = jsonpath.find(path, item)
    if expected is None:
        return bool(found)
    return len(found) == 1 and jsonpath.text(found[0]) == expected


def _patience(text: str) -> float:
    """Nothing is one look; less than nothing a week, as with kubectl."""
    seconds = duration.seconds(text, "--timeout")
    return WEEK if seconds < 0 else seconds


async def _deleted(session: Session, options: WaitOptions, patience: float) -> int:
    try:
        found = await targets.objects(
            session, options.words, selector=options.selector, all_of_kind=options.all_of_kind
        )
    except NotFound:
        return 0
    await until_gone(session, found, max(patience, 0.001))
    for one in found:
        print(f"{one} condition met")
    return 0


async def _created(session: Session, options: WaitOptions, patience: float) -> int:
    for target in await targets.parse(session, options.words):
        resource = target.entry.resource
        selection = Selection(resource, session.scope(resource), target.name, options.selector)
        try:
            async with asyncio.timeout(max(patience, 0.001)):
                await _appears(session, selection)
        except TimeoutError:
            raise Failure(f"timed out waiting for {target} to be created") from None
        print(f"{target} condition met")
    return 0


async def _appears(session: Session, selection: Selection) -> None:
    async with aclosing(watched(session.client, selection, session.outage, DOCUMENTS)) as messages:
        async for message in messages:
            match message:
                case Listed(items) if items:
                    return
                case Changed("ADDED" | "MODIFIED"):
                    return


async def _reach(session: Session, found: Sequence[Found], goal: Goal, patience: float) -> int:
    """All of them share the time. What became of each is told even where another failed."""
    code = 0
    deadline = asyncio.get_running_loop().time() + patience
    for one in found:
        try:
            async with asyncio.timeout_at(deadline) if patience else asyncio.timeout(None):
                met = goal.is_met(one.body) or (bool(patience) and await _watch(session, one, goal))
        except TimeoutError:
            met = False
        except Failure as error:
            print(f"trainmaster wait: {error}", file=sys.stderr)
            code = 1
            continue
        if met:
            print(f"{one} condition met")
            continue
        print(f"trainmaster wait: timed out waiting for {goal.text} on {one}", file=sys.stderr)
        code = 1
    return code


async def _watch(session: Session, found: Found, goal: Goal) -> bool:
    selection = Selection(found.entry.resource, found.namespace, found.name)
    async with aclosing(watched(session.client, selection, session.outage, DOCUMENTS)) as messages:
        async for message in messages:
            match message:
                case Listed([]) | Changed("DELETED"):
                    raise Failure(f"{found} was deleted before {goal.text} held")
                case Listed([item, *_]) | Changed(_, item):
                    if goal.is_met(item):
                        return True
                    _give_up(found, goal, item)
    return False


def _give_up(found: Found, goal: Goal, item: dict[str, Any]) -> None:
    """A job that has ended does not change any more."""
    if found.entry.framework is None or not goal.condition:
        return
    status = status_of(item.get("status"))
    if status.is_finished:
        raise Failure(f"{found} {_end(status)}; {goal.text} will not come: trainmaster describe {found}")


def _end(status: JobStatus) -> str:
    failed = status.condition("Failed")
    return f"failed: {failed.message}" if failed is not None and failed.status == "True" else "has succeeded"
