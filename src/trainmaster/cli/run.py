"""`trainmaster run`: a job from its manifest to its result, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from trainmaster.api.settings import Settings
from trainmaster.cli import documents, hints, kinds
from trainmaster.cli.connection import in_words
from trainmaster.cli.documents import BadDocument
from trainmaster.cli.embedded import EmbeddedOptions, embedded
from trainmaster.cli.errors import unwrapped
from trainmaster.cli.follow import Follower, JobRef, Progress, Rank
from trainmaster.cli.screen import Screen, print_summary
from trainmaster.cli.submit import Submission, Submitter, checked
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError
from trainmaster.kube.transport import HttpTransport

SUCCEEDED, FAILED, BAD_INPUT, TIMED_OUT, INTERRUPTED = 0, 1, 2, 124, 130
UNMAPPED = "ImageNotMapped"
"""Why a container waits that has no command, of an image that nothing stands for."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    files: tuple[str, ...]
    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    timeout: float | None = None
    keep: bool = False
    embedded: EmbeddedOptions = EmbeddedOptions()

    @property
    def is_remote(self) -> bool:
        return bool(self.context or self.kubeconfig)


def run(options: RunOptions) -> int:
    """The exit code says what became of the jobs."""
    try:
        submission = checked(list(documents.read(options.files)), Settings())
        if not submission.jobs:
            raise BadDocument(_nothing(submission))
        with unwrapped():
            return asyncio.run(_run(options, submission))
    except BadDocument as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except KubeError as error:
        print(f"trainmaster run: {in_words(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted: everything that was started has been stopped", file=sys.stderr)
        return INTERRUPTED


def _nothing(submission: Submission) -> str:
    suspect = next((document for document in submission.others if kinds.looks_like_a_job(document)), None)
    if suspect is not None:
        return kinds.unknown(suspect)
    found = ", ".join(str(document) for document in submission.others) or "they are empty"
    return f"nothing to run: no training job in the files given ({found})"


async def _run(options: RunOptions, submission: Submission) -> int:
    console = Console(highlight=False)
    for advice in submission.advice:
        print(f"warning: {advice}", file=sys.stderr)
    async with _cluster(options, _base(options.files)) as (client, namespace):
        submitter = Submitter(client, options.namespace or namespace, makes_namespaces=not options.is_remote)
        jobs = await submitter.submit(submission)
        started = time.monotonic()
        images = [hints.image_of(document.body) for document in submission.jobs]
        known = {} if options.is_remote else dict(zip(jobs, images, strict=True))
        with _Attentive(console, known, several_jobs=len(jobs) > 1) as screen:
            follower = Follower(client, jobs, screen)
            is_late = await _within(options.timeout, follower, screen)
        print_summary(console, follower.progress, time.monotonic() - started)
        if is_late:
            print(f"not finished within {options.timeout:g} s", file=sys.stderr)
            return TIMED_OUT
        if hopeless := _hopeless(follower.progress):
            print(hopeless, file=sys.stderr)
        if options.keep and not options.is_remote:
            await _keep(console)
        return _result(follower.progress)


class _Attentive(Screen):
    """A screen that also notices when there is nothing more to wait for, and what newcomers stumble over."""

    def __init__(self, console: Console, images: Mapping[JobRef, str], *, several_jobs: bool) -> None:
        super().__init__(console, several_jobs=several_jobs)
        self.gave_up = asyncio.Event()
        self._images = images
        self._hinted: set[str] = set()

    def line(self, rank: Rank, container: str, text: str) -> None:
        super().line(rank, container, text)
        self._hint(rank.job, hints.of_line(text, self._images.get(rank.job, "")))

    def warning(self, job: JobRef, reason: str, message: str) -> None:
        super().warning(job, reason, message)
        self._hint(job, hints.of_warning(reason, message, self._images.get(job, "")))

    def _hint(self, job: JobRef, text: str) -> None:
        """Once, however many ranks stumble; on another's cluster images are what they are."""
        if text and job in self._images and text not in self._hinted:
            self._hinted.add(text)
            super().warning(job, "Hint", text)

    def changed(self, progress: Progress) -> None:
        super().changed(progress)
        if _hopeless(progress):
            self.gave_up.set()


def _hopeless(progress: Progress) -> str:
    """Why a rank can never start, if there is one: its image means nothing on this machine."""
    for rank in progress.ranks.values():
        for status in (*rank.pod.status.init_container_statuses, *rank.pod.status.container_statuses):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason == UNMAPPED and not progress.is_over(rank.job):
                return f"{rank.pod.name} cannot start: {waiting.message}"
    return ""


async def _within(timeout: float | None, follower: Follower, screen: _Attentive) -> bool:
    """Whether the time ran out before the jobs ended, or one of them turned out to be hopeless."""
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
            following = group.create_task(follower.follow(), name="follow")
            giving_up = group.create_task(screen.gave_up.wait(), name="give up")
            await asyncio.wait((following, giving_up), return_when=asyncio.FIRST_COMPLETED)
            following.cancel()
            giving_up.cancel()
    except TimeoutError:
        return True
    return False


def _result(progress: Progress) -> int:
    return SUCCEEDED if all(status.is_true("Succeeded") for status in progress.jobs.values()) else FAILED


async def _keep(console: Console) -> None:
    console.print("The cluster stays up; press Ctrl-C to end it.")
    await asyncio.Event().wait()


@asynccontextmanager
async def _cluster(options: RunOptions, base: Path) -> AsyncIterator[tuple[Client, str]]:
    """A client, and the namespace of those who name none."""
    if not options.is_remote:
        async with embedded(options.embedded, base, announce=options.keep) as client:
            yield client, "default"
        return
    config = kubeconfig.load(options.kubeconfig or None, options.context or None)
    client = Client(HttpTransport(config))
    try:
        yield client, config.namespace
    finally:
        await client.close()


def _base(files: Sequence[str]) -> Path:
    """Where a trainmaster.yaml is looked for: beside the first manifest, else here."""
    first = Path(files[0]) if files[0] != "-" else Path()
    return first if first.is_dir() else first.parent
