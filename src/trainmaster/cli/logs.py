"""`trainmaster logs`: what the ranks of a job print; one of them plainly, several with coloured names.

Without -f the logs of several ranks are merged by the moment each line was printed. With -f they come as they come,
of pods that are replaced meanwhile too, until the job has ended.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from trainmaster.api.framework import Framework
from trainmaster.api.status import Condition
from trainmaster.cli import duration, ranks, targets, terminal
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.follow import Follower, JobRef, Progress, Rank
from trainmaster.cli.ranks import JOB_ROLE, LEADERS, RankView
from trainmaster.cli.targets import Found, Target
from trainmaster.kube.client import Client
from trainmaster.kube.errors import BadRequest, NotFound
from trainmaster.objects import timestamp
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
Show = Callable[[Rank, str], None]


@dataclass(frozen=True, slots=True)
class LogOptions:
    words: tuple[str, ...]
    follow: bool = False
    ranks: tuple[str, ...] = ()
    all_ranks: bool = False
    container: str = ""
    previous: bool = False
    tail: int = -1
    since: str = ""
    timestamps: bool = False
    raw: bool = False
    """Pass on what a program commands a terminal to do."""

    @property
    def params(self) -> list[tuple[str, str]]:
        given: list[tuple[str, str]] = []
        if self.previous:
            given.append(("previous", "true"))
        if self.tail >= 0:
            given.append(("tailLines", str(self.tail)))
        if self.since:
            given.append(("sinceSeconds", str(math.ceil(duration.seconds(self.since, "--since")))))
        return [*given, ("timestamps", "true")] if self.timestamps else given


def run(choice: Choice, options: LogOptions) -> int:
    return carry_out("logs", choice, lambda session: logs(session, options))


async def logs(session: Session, options: LogOptions) -> int:
    if options.follow and options.previous:
        raise Misuse("-f and --previous exclude each other: what is over has nothing more to say")
    if options.ranks and options.all_ranks:
        raise Misuse("--rank and --all exclude each other")
    found = await _found(session, options.words)
    if found.entry.framework is None:
        return await _pod(session, options, found)
    return await (_followed if options.follow else _merged)(session, options, found, found.entry.framework)


async def _found(session: Session, words: Sequence[str]) -> Found:
    """A job or a pod; a name alone is a job's, or a pod's where there is no such job."""
    if targets.is_bare(words):
        try:
            return await targets.one_job(session, words)
        except Failure as error:
            pods = await session.catalog.find("pods")
            if isinstance(error, Misuse) or pods is None:
                raise
            try:
                (pod,) = await targets.stored(session, Target(pods, words[0]))
            except NotFound:
                raise error from None
            return pod
    meant = await targets.parse(session, words)
    if len(meant) != 1 or not meant[0].name:
        raise Misuse("name one job or pod, such as pytorchjob/ddp or pod/ddp-worker-0")
    if meant[0].entry.framework is None and meant[0].entry.resource != PODS:
        raise Misuse(f"{meant[0]}: only training jobs and pods have logs")
    (found,) = await targets.stored(session, meant[0])
    return found


async def _pod(session: Session, options: LogOptions, pod: Found) -> int:
    if options.ranks or options.all_ranks:
        raise Misuse("--rank and --all choose among the ranks of a job; a pod is one of them already")
    container = _container(pod.body, options, None)
    params = [*options.params, *([("follow", "true")] if options.follow else [])]
    async with aclosing(_lines(session.client, pod.body, container, params)) as lines:
        async for line in lines:
            print(line, flush=options.follow)
    return 0


async def _merged(session: Session, options: LogOptions, job: Found, framework: Framework) -> int:
    known = await ranks.of(session, job)
    if not known:
        raise Failure(f"{job} has no pods now, so there are no logs; see why with: trainmaster describe {job}")
    chosen = _chosen(known, options)
    show = _shown(options, several=len(chosen) > 1)
    if len(chosen) == 1:
        container = _container(chosen[0].pod, options, framework)
        async with aclosing(_lines(session.client, chosen[0].pod, container, options.params)) as lines:
            async for line in lines:
                show(_as_rank(job, chosen[0].pod), line)
        return 0
    async with AsyncExitStack() as stack:
        params = [*(p for p in options.params if p[0] != "timestamps"), ("timestamps", "true")]
        streams = [
            await stack.enter_async_context(
                aclosing(
                    _if_any(_lines(session.client, rank.pod, _container(rank.pod, options, framework), params), rank)
                )
            )
            for rank in chosen
        ]
        async for number, stamp, line in in_order(streams):
            text = f"{stamp} {line}" if options.timestamps else line
            show(_as_rank(job, chosen[number].pod), text)
    return 0


async def in_order(streams: Sequence[AsyncIterator[str]]) -> AsyncIterator[tuple[int, str, str]]:
    """Lines with times in front, merged by them: which stream, the time, the line without it."""
    heap: list[tuple[float, int, str, str]] = []

    async def advance(number: int, before: float) -> None:
        line = await anext(streams[number], None)
        if line is not None:
            stamp, _, text = line.partition(" ")
            moment = timestamp.parse(stamp)
            # A line without a time belongs to the one before it.
            entry = (before, number, "", line) if moment is None else (moment, number, stamp, text)
            heapq.heappush(heap, entry)

    for number in range(len(streams)):
        await advance(number, 0.0)
    while heap:
        moment, number, stamp, text = heapq.heappop(heap)
        yield number, stamp, text
        await advance(number, moment)


async def _followed(session: Session, options: LogOptions, job: Found, framework: Framework) -> int:
    known = await ranks.of(session, job)
    chosen = _chosen(known, options) if known else []
    titles = {rank.title for rank in chosen} or {title.lower() for title in options.ranks}
    containers = (options.container,) if options.container else framework.container_names

    def wants(rank: Rank, container: str) -> bool:
        if containers and container not in containers:
            return False
        if options.all_ranks or rank.title in titles:
            return True
        return not titles and rank.pod.metadata.labels.get(JOB_ROLE) in LEADERS

    reference = JobRef(job.entry.resource, job.namespace, job.name, job.uid)
    show = _shown(options, several=options.all_ranks or len(titles) > 1)
    await Follower(session.client, [reference], _LogScreen(show), wants=wants, log=options.params).follow()
    return 0


def _chosen(known: Sequence[RankView], options: LogOptions) -> list[RankView]:
    if options.all_ranks:
        return list(known)
    if options.ranks:
        by_title = {rank.title.lower(): rank for rank in known}
        missing = [title for title in options.ranks if title.lower() not in by_title]
        if missing:
            there = ", ".join(rank.title for rank in known)
            raise Failure(f"--rank: there is no {', '.join(missing)} now; there are {there}")
        return [by_title[title.lower()] for title in options.ranks]
    first = ranks.leader(known)
    return [first] if first is not None else []


def _container(pod: Mapping[str, Any], options: LogOptions, framework: Framework | None) -> str:
    """The one asked for; else the training container, the one the pod itself names, or its first."""
    spec, metadata = pod.get("spec") or {}, pod["metadata"]
    names = [str(one["name"]) for one in spec.get("containers") or ()]
    known = [*names, *(one["name"] for one in spec.get("initContainers") or ())]
    if options.container:
        if known and options.container not in known:
            raise Failure(f"pod {metadata['name']} has no container {options.container}; it has {', '.join(known)}")
        return options.container
    annotated = str((metadata.get("annotations") or {}).get(DEFAULT_CONTAINER, ""))
    preferred = [*(framework.container_names if framework else ()), annotated]
    return next((name for name in preferred if name in names), names[0] if names else "")


async def _lines(
    client: Client, pod: Mapping[str, Any], container: str, params: Sequence[tuple[str, str]]
) -> AsyncGenerator[str, None]:
    metadata = pod["metadata"]
    chosen = (("container", container),) if container else ()
    response = await client.open(PODS.path(metadata["namespace"], metadata["name"], "log"), (*chosen, *params))
    async with response, aclosing(response.lines()) as lines:
        async for line in lines:
            yield line.decode(errors="replace").rstrip("\r")


async def _if_any(lines: AsyncGenerator[str, None], rank: RankView) -> AsyncGenerator[str, None]:
    """Among several, one that has not started, or is gone again, must not silence the others."""
    async with aclosing(lines):
        try:
            async for line in lines:
                yield line
        except (BadRequest, NotFound) as error:
            print(f"warning: {rank.title}: {error}", file=sys.stderr)


def _as_rank(job: Found, pod: Mapping[str, Any]) -> Rank:
    reference = JobRef(job.entry.resource, job.namespace, job.name, job.uid)
    return Rank(reference, msgspec.convert(pod, Pod))


def _shown(options: LogOptions, *, several: bool) -> Show:
    """A single rank speaks without its name."""
    if not several:
        return lambda rank, text: print(text, flush=True)
    if options.raw:
        return lambda rank, text: print(f"[{rank.title}] {text}", flush=True)
    from trainmaster.cli.screen import Screen

    screen = Screen(terminal.console())
    return lambda rank, text: screen.line(rank, "", text)


class _LogScreen:
    """Of all that a follower sees, the lines, that one of them was lost, and that the server is away."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def line(self, rank: Rank, container: str, text: str) -> None:
        self._show(rank, text)

    def warning(self, job: JobRef, reason: str, message: str) -> None:
        if reason == "LogLost":
            print(f"warning: {message}", file=sys.stderr)

    def notice(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    def silence(self, rank: Rank, container: str) -> None: ...
    def condition(self, job: JobRef, condition: Condition) -> None: ...
    def changed(self, progress: Progress) -> None: ...
