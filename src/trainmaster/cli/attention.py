"""A screen that also notices what newcomers stumble over, and when there is nothing more to wait for.

A rank that cannot succeed here, because a module, a file or a program is missing, would be started again and again
where its restart policy says so. When it has ended twice for the same reason, `gave_up` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from rich.console import Console

from trainmaster.cli import hints
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.hints import Hint, Place
from trainmaster.cli.screen import Screen
from trainmaster.cluster.kubelet.images import UNPULLED
from trainmaster.engine.labels import REPLICA_INDEX, REPLICA_TYPE

UNMAPPED = "ImageNotMapped"
"""Why a container waits that has no command, of an image that nothing stands for."""

LOOPING = "CrashLoopBackOff"
"""Why a container waits that has ended badly at least twice: the first restart is immediate."""

ECHOES = (LOOPING, "Unschedulable")
"""Reasons of events by which the operator tells of a job what BackOff and FailedScheduling tell of its pods."""


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
        self._pods: dict[tuple[JobRef, str, str], set[str]] = {}

    def line(self, rank: Rank, container: str, text: str) -> None:
        super().line(rank, container, text)
        hint = hints.of_line(text, self._places[rank.job])
        self._hint(rank.job, hint)
        if hint is not None and hint.is_final:
            self._pods.setdefault((rank.job, hint.text, _slot(rank)), set()).add(rank.pod.metadata.uid)
        self._consider()

    def warning(self, job: JobRef, reason: str, message: str) -> None:
        if reason in ECHOES or UNPULLED in message or message in self._told or self._is_condition(job, message):
            return  # told before, or by another event; or, of an image that nothing stands for, told last
        super().warning(job, reason, message)
        self._hint(job, hints.of_warning(reason, message, self._places[job]))

    def changed(self, progress: Progress) -> None:
        super().changed(progress)
        self._progress = progress
        self._consider()

    def advice(self, job: JobRef) -> list[str]:
        """What was hinted at, once more: by now it has scrolled away."""
        return [hint.text for hint in self._hinted.get(job, {}).values()]

    def _hint(self, job: JobRef, hint: Hint | None) -> None:
        """Once, however many ranks stumble; what makes another attempt useless needs no word on attempts."""
        known = self._hinted.setdefault(job, {})
        if hint is None or hint.text in known:
            return
        if hint.text == hints.RESTARTED and any(one.is_final for one in known.values()):
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
        for hint in self._hinted.get(rank.job, {}).values():
            if hint.is_final and self._has_ended_of(rank, hint):
                why = f"{rank.title} has ended twice for the same reason, and would again"
                return f"{rank.job} is given up: {why}. {hint.text[0].upper()}{hint.text[1:]}"
        return ""

    def _has_ended_of(self, rank: Rank, hint: Hint) -> bool:
        pods = self._pods.get((rank.job, hint.text, _slot(rank)))
        if pods is None and any(job == rank.job and text == hint.text for job, text, _ in self._pods):
            return False
        # What could not even be started has printed nothing: its pods are not known.
        return _is_down(rank) and (rank.pod.restart_count >= 1 or len(pods or ()) > 1)


def _slot(rank: Rank) -> str:
    """The same for a pod and for one that takes its place."""
    labels = rank.pod.metadata.labels
    role = labels.get(REPLICA_TYPE)
    return f"{role}-{labels.get(REPLICA_INDEX, '')}" if role else rank.title


def _is_down(rank: Rank) -> bool:
    return rank.pod.status.phase == "Failed" or any(reason == LOOPING for reason, _ in _waiting(rank))


def _waiting(rank: Rank) -> Iterable[tuple[str, str]]:
    for status in (*rank.pod.status.init_container_statuses, *rank.pod.status.container_statuses):
        if status.state.waiting is not None:
            yield status.state.waiting.reason, status.state.waiting.message
