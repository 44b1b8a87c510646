"""Which objects a command line means: `pytorchjob/ddp`, `pytorchjobs ddp`, `pods,svc`, or just `ddp`.

A name without a kind is a training job's; it is looked for among all kinds of jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.cli.catalog import Entry
from trainmaster.cli.connection import Failure, Misuse, Session
from trainmaster.kube.errors import Forbidden, NotFound

AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of one kind: the one of that name, or all."""

    entry: Entry
    name: str = ""

    def __str__(self) -> str:
        return f"{self.entry.title}/{self.name}" if self.name else self.entry.resource.plural


@dataclass(frozen=True, slots=True)
class Found:
    """A target, and the object as it is stored."""

    target: Target
    body: dict[str, Any]

    @property
    def entry(self) -> Entry:
        return self.target.entry

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"].get("uid", ""))

    def __str__(self) -> str:
        return f"{self.entry.title}/{self.name}"


class Absent(Failure):
    """There is no training job of that name."""


async def parse(session: Session, words: Sequence[str], *, lenient: bool = False) -> list[Target]:
    """What the words name, in their order; no word is every kind of job. `lenient` leaves out names without a kind that
    no job bears."""
    if not words:
        return [Target(entry) for entry in await _job_kinds(session)]
    if any("/" in word for word in words):
        return [await _pair(session, word) for word in words]
    kinds = [await session.catalog.find(kind) for kind in words[0].split(",")]
    if all(kinds):
        names = words[1:] or [""]
        return [Target(entry, name) for entry in kinds if entry is not None for name in names]
    if "," in words[0]:
        unknown = next(word for word, entry in zip(words[0].split(","), kinds, strict=True) if entry is None)
        raise await _unknown(session, unknown)
    found: list[Target] = []
    for name in words:
        try:
            found.append(await job_named(session, name))
        except Absent:
            if not lenient:
                raise
    return found


async def objects(
    session: Session, words: Sequence[str], *, selector: str = "", all_of_kind: bool = False, lenient: bool = False
) -> list[Found]:
    """What is there of it. A kind alone means its objects only if a selector or `all_of_kind` says so. `lenient` passes
    over what is not there."""
    found: list[Found] = []
    # Beside a selector a word can only be a kind: one that nobody knows is a mistake, and not an absent job.
    for target in await parse(session, words, lenient=lenient and not (selector or all_of_kind)):
        if target.name and (selector or all_of_kind):
            raise Misuse(f"{target}: name objects, or choose them with -l or --all; not both")
        if not target.name and not (selector or all_of_kind):
            raise Misuse(f"{target}: which of them? Name them, choose them by label with -l, or say --all")
        found += await stored(session, target, selector, lenient=lenient)
    return found


async def stored(session: Session, target: Target, selector: str = "", *, lenient: bool = False) -> list[Found]:
    resource = target.entry.resource
    if target.name:
        _refuse_everywhere(session, target)
        try:
            body = await session.client.get(resource, target.name, session.scope(resource))
        except NotFound:
            if not lenient:
                raise
            return []
        return [Found(target, {"apiVersion": resource.api_version, "kind": resource.kind, **body})]
    page = await session.client.list(resource, session.scope(resource), label_selector=selector)
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [Found(Target(target.entry, item["metadata"]["name"]), {**head, **item}) for item in page.items]


async def one_job(session: Session, words: Sequence[str]) -> Found:
    """The one training job that is meant; a single word is its name, even where a kind is called so too."""
    targets = [await job_named(session, words[0])] if is_bare(words) else await parse(session, words)
    if len(targets) != 1 or not targets[0].name:
        raise Misuse(f"name one training job, such as pytorchjob/ddp; {' '.join(words) or 'nothing'} is not one")
    target = targets[0]
    if target.entry.framework is None:
        raise Misuse(f"{target} is not a training job")
    (found,) = await stored(session, target)
    return found


def is_bare(words: Sequence[str]) -> bool:
    return len(words) == 1 and "/" not in words[0]


def _refuse_everywhere(session: Session, target: Target) -> None:
    if session.everywhere and target.entry.resource.namespaced:
        raise Misuse(f"{target}: an object cannot be named across all namespaces; use -n instead of -A")


async def _pair(session: Session, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise Misuse(f"{word}: either all words are KIND/NAME, or the first is the kind and the others are names")
    entry = await session.catalog.find(kind)
    if entry is None:
        raise await _unknown(session, kind)
    return Target(entry, name)


async def _job_kinds(session: Session) -> list[Entry]:
    kinds = await session.catalog.jobs()
    if not kinds:
        remedy = "trainmaster manifests | kubectl apply -f -"
        raise Failure(f"no kind of training job is installed on this cluster; install them with: {remedy}")
    return kinds


async def job_named(session: Session, name: str) -> Target:
    """The training job of that name, whatever its kind."""
    slots = asyncio.Semaphore(AT_ONCE)
    candidates = [Target(entry, name) for entry in await _job_kinds(session)]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_is_there(session, slots, one), name=f"look for {one}") for one in candidates]
    found = [target for target, task in zip(candidates, asked, strict=True) if task.result() is True]
    if len(found) > 1:
        raise Misuse(f"several jobs are named {name}; say which: {', '.join(map(str, found))}")
    if not found:
        for task in asked:
            if isinstance(refusal := task.result(), Forbidden):
                raise refusal  # it may be there, only not for us to see
        place = session.place(candidates[0].entry.resource)
        raise Absent(f"{name} is neither a training job{place} nor a kind; list all jobs with: trainmaster get -A")
    return found[0]


async def _is_there(session: Session, slots: asyncio.Semaphore, target: Target) -> bool | Forbidden:
    async with slots:
        resource = target.entry.resource
        _refuse_everywhere(session, target)
        try:
            await session.client.get(resource, target.name, session.scope(resource))
        except NotFound:
            return False
        except Forbidden as error:
            return error
        return True


async def _unknown(session: Session, kind: str) -> Misuse:
    known = ", ".join(entry.resource.plural for entry in await session.catalog.jobs())
    return Misuse(f"the cluster serves no {kind}; kinds of training jobs here: {known or 'none'}")
