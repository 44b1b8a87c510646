"""A screen that also notices what newcomers stumble over, and when there is nothing more to wait for.

A rank that cannot succeed here, because a module, a file or a program is missing, would be started again and again
where its restart policy says so. When it has ended twice for the same reason, `gave_up` is set. The reason of an end is
what was said last: a program may also say that something is missing and go on without it. What is printed and what goes
to stderr in the same moment may come in either order, so if anything else was said, the reason has to come more often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console

from trainmaster.cli import hints
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.hints import Hint, Place
from trainmaster.cli.screen import Screen
from trainmaster.cluster.kubelet.images import UNPULLED
from trainmaster.engine.labels import REPLICA_INDEX, REPLICA_TYPE
from trainmaster.frameworks.paddle_batch import PaddleBatch
from trainmaster.objects.pod import ContainerStatus

UNMAPPED = "ImageNotMapped"
"""Why a container waits that has no command, of an image that nothing stands for."""

LOOPING = "CrashLoopBackOff"
"""Why a container waits that has ended badly at least twice: the first restart is immediate."""

ECHOES = (LOOPING, "Unschedulable")
"""Reasons of events by which the operator tells of a job what BackOff and FailedScheduling tell of its pods."""

TRACEBACK = ("Traceback (", " ")
"""How the lines begin that lead to an error's own."""

TWICE, OFTEN = 2, 4
"""How many ends in a row for the same reason are enough: of a container that said nothing else, and of another."""


class Attentive(Screen):
    def __init__(
        self, console: Console, places: Mapping[JobRef, Place], told: Iterable[str] = (), *, several_jobs: bool
    ) -> None:
        """`told` is what the user has been told already, in the words of events."""
        super().__init__(console, several_jobs=several_jobs)
        self.gave_up = asyncio.Event()
        self.why = ""
        self._places = places
        self._told = frozenset(told)
        self._progress = Progress()
        self._hinted: dict[JobRef, dict[str, Hint]] = {}
        self._warned: dict[JobRef, set[Hint]] = {}
        self._said: dict[tuple[str, str, int], _End] = {}
        """By attempts that go on: how they would have ended, had nothing followed."""
        self._ends: dict[tuple[JobRef, str], dict[str, list[_End]]] = {}
        """By slots, and their containers that have ever said anything: the last ends that were for one reason."""

    def line(self, rank: Rank, container: str, text: str) -> None:
        super().line(rank, container, text)
        hint = hints.of_line(text, self._places[rank.job])
        self._hint(rank.job, hint)
        if text.strip():
            attempt = _attempt(rank, container)
            is_part = hint is not None or text.startswith(TRACEBACK)
            self._said[attempt] = _End(hint, is_part and self._said.get(attempt, _End(hint)).is_all)

    def silence(self, rank: Rank, container: str) -> None:
        super().silence(rank, container)
        end = self._said.pop(_attempt(rank, container), None)
        containers = self._ends.setdefault((rank.job, _slot(rank)), {})
        if end is not None:
            containers[container] = [*(one for one in containers.get(container, ()) if one.hint == end.hint), end]
        self._consider()

    def warning(self, job: JobRef, reason: str, message: str) -> None:
        if reason in ECHOES or UNPULLED in message or message in self._told or self._is_condition(job, message):
            return  # told before, or by another event; or, of an image that nothing stands for, told last
        if _is_gate(job, message):
            return
        super().warning(job, reason, message)
        hint = hints.of_warning(reason, message, self._places[job])
        if hint is not None and hint != hints.RESTARTED:
            self._warned.setdefault(job, set()).add(hint)
        self._hint(job, hint)

    def changed(self, progress: Progress) -> None:
        super().changed(progress)
        self._progress = progress
        self._consider()

    def advice(self, job: JobRef) -> list[str]:
        """What was hinted at, once more: by now it has scrolled away."""
        return [hint.text for hint in self._hinted.get(job, {}).values()]

    def knows_why(self, job: JobRef) -> bool:
        """Whether a hint is known to be about an end, rather than about something that was said on the way."""
        return bool(self._warned.get(job)) or any(
            ends[-1].hint is not None
            for (whose, _), containers in self._ends.items()
            for ends in containers.values()
            if whose == job
        )

    def _hint(self, job: JobRef, hint: Hint | None) -> None:
        """Once, however many ranks stumble; what makes another attempt useless needs no word on attempts."""
        known = self._hinted.setdefault(job, {})
        if hint is None or hint.text in known:
            return
        if hint == hints.RESTARTED and self.knows_why(job) and any(one.is_final for one in known.values()):
            return
        known[hint.text] = hint
        super().warning(job, "Hint", hint.text)

    def _is_condition(self, job: JobRef, message: str) -> bool:
        status = self._progress.jobs.get(job)
        return status is not None and any(condition.message == message for condition in status.conditions)

    def _consider(self) -> None:
        if self.gave_up.is_set():
            return
        for rank in self._progress.ranks.values():
            if not self._progress.is_over(rank.job) and (why := self._hopeless(rank)):
                self.why = why
                self.gave_up.set()
                return

    def _hopeless(self, rank: Rank) -> str:
        for reason, message in _waiting(rank):
            if reason == UNMAPPED:
                return f"{rank.pod.name} cannot start: {message}"
        for hint, often in self._causes(rank):
            why = f"{rank.title} has ended {often} for the same reason, and would again"
            return f"{rank.job} is given up: {why}. {hint.text[0].upper()}{hint.text[1:]}"
        return ""

    def _causes(self, rank: Rank) -> Iterator[tuple[Hint, str]]:
        """Why it has ended, and will whenever it is started again; and how often it has."""
        said = self._ends.get((rank.job, _slot(rank)), {})
        for status in _down(rank):
            ends = said.get(status.name, [])
            hint = ends[-1].hint if ends else None
            if hint and hint.is_final and len(ends) >= (TWICE if all(end.is_all for end in ends) else OFTEN):
                yield hint, "twice" if len(ends) == TWICE else f"{len(ends)} times"
            if not ends and status.restart_count >= 1:  # what could not even be started has said nothing
                yield from ((warned, "twice") for warned in self._warned.get(rank.job, ()) if warned.is_final)


@dataclass(frozen=True, slots=True)
class _End:
    hint: Hint | None
    """What there is to say about its last line."""
    is_all: bool = True
    """That line, with the traceback before it, was all that the container said."""


def _attempt(rank: Rank, container: str) -> tuple[str, str, int]:
    restarts = next((status.restart_count for status in _statuses(rank) if status.name == container), 0)
    return rank.pod.metadata.uid, container, restarts


def _slot(rank: Rank) -> str:
    """The same for a pod and for one that takes its place."""
    labels = rank.pod.metadata.labels
    role = labels.get(REPLICA_TYPE)
    return f"{role}-{labels.get(REPLICA_INDEX, '')}" if role else rank.title


def _statuses(rank: Rank) -> tuple[ContainerStatus, ...]:
    return (*rank.pod.status.init_container_statuses, *rank.pod.status.container_statuses)


def _down(rank: Rank) -> Iterator[ContainerStatus]:
    """Containers that have failed, and do not run again by now."""
    is_failed = rank.pod.status.phase == "Failed"
    for status in _statuses(rank):
        ended, waiting = status.state.terminated, status.state.waiting
        if is_failed and ended is not None and ended.exit_code or waiting is not None and waiting.reason == LOOPING:
            yield status


def _is_gate(job: JobRef, message: str) -> bool:
    """Whether a container waits for what its job's operator makes once all pods have addresses, as it should."""
    return job.resource.group == PaddleBatch.group and message.endswith(f'configmap "{job.name}" not found')


def _waiting(rank: Rank) -> Iterator[tuple[str, str]]:
    for status in _statuses(rank):
        if status.state.waiting is not None:
            yield status.state.waiting.reason, status.state.waiting.message
