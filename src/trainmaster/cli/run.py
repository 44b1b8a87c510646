"""`trainmaster run`: a job from its manifest to its result, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.api.settings import COORDINATOR_IMAGE, KUBECTL_DELIVERY_IMAGE
from trainmaster.cli import closing, documents, hints, interruption, kinds, terminal
from trainmaster.cli.attention import Attentive
from trainmaster.cli.connection import Choice, Failure, config_of, in_words
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.embedded import EmbeddedOptions, configuration_of, embedded
from trainmaster.cli.follow import Follower, JobRef, Kept, Progress
from trainmaster.cli.hints import Place
from trainmaster.cli.screen import print_summary
from trainmaster.cli.submit import Submission, Submitter, checked, refuse_twins
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.images_config import parse_option
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError
from trainmaster.kube.transport import HttpTransport

SUCCEEDED, FAILED, BAD_INPUT, TIMED_OUT = 0, 1, 2, 124


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

    @property
    def there(self) -> str:
        """The flags that name the other cluster; empty for one of our own."""
        flags = (("--context", self.context), ("--kubeconfig", self.kubeconfig))
        return "".join(f" {flag} {value}" for flag, value in flags if value)


@dataclass(frozen=True, slots=True)
class _Reached:
    """The cluster that the jobs run on."""

    client: Client
    namespace: str
    """Of those who name none."""
    kept: Kept | None = None


@dataclass(slots=True)
class _Course:
    """How far a run has come, for whoever interrupts it."""

    submitted: dict[JobRef, float] = field(default_factory=dict)
    """The jobs that are there, and since when."""

    result: int | None = None
    """The exit code, once all is known and only the cluster is kept."""


def run(options: RunOptions) -> int:
    """The exit code says what became of the jobs."""
    course = _Course()
    try:
        submission = checked(list(documents.read(options.files)), options.embedded.operator.settings)
        if not submission.jobs:
            raise BadDocument(_nothing(submission))
        refuse_twins(submission.jobs, options.namespace or ("" if options.is_remote else "default"))
        return interruption.run(lambda ending: _run(options, submission, course, ending))
    except BadDocument as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except Failure as error:
        print(f"trainmaster run: {error}", file=sys.stderr)
        return error.code
    except KubeError as error:
        print(f"trainmaster run: {in_words(error)}", file=sys.stderr)
        for words in closing.unattended(tuple(course.submitted), options.there) if options.is_remote else ():
            print(words, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as told:
        if course.result is not None:
            print(closing.KEPT_NO_LONGER, file=sys.stderr)
            return course.result
        print(closing.interrupted(tuple(course.submitted), options.there), file=sys.stderr)
        return interruption.code_of(told)


def _nothing(submission: Submission) -> str:
    suspect = next((document for document in submission.others if kinds.looks_like_a_job(document)), None)
    if suspect is not None:
        return kinds.unknown(suspect)
    found = ", ".join(str(document) for document in submission.others) or "they are empty"
    return f"nothing to run: no training job in the files given ({found})"


async def _run(options: RunOptions, submission: Submission, course: _Course, ending: Ending) -> int:
    places = _places(options, submission)
    for warning in (*submission.advice, *_unmatched(options, submission)):
        print(f"warning: {warning}", file=sys.stderr)
    async with _cluster(options, _base(options.files), ending) as reached:
        submitter = Submitter(
            reached.client, options.namespace or reached.namespace, makes_namespaces=not options.is_remote
        )
        await submitter.submit(submission, course.submitted)
        result = await _followed(options, reached, course.submitted, places, submission.told)
        if options.keep and not options.is_remote:
            course.result = result
            print("The cluster stays up; press Ctrl-C to end it.", flush=True)
            await asyncio.Event().wait()
        return result


async def _followed(
    options: RunOptions,
    reached: _Reached,
    submitted: Mapping[JobRef, float],
    places: Sequence[Place],
    told: Sequence[str],
) -> int:
    """Shows the jobs until they have ended or time is up, and what became of them."""
    console = terminal.console()
    known = dict(zip(submitted, places, strict=True))
    with Attentive(console, known, told, several_jobs=len(submitted) > 1) as screen:
        follower = Follower(reached.client, submitted, screen, kept=reached.kept)
        is_late = await _within(options.timeout, follower, screen)
    print_summary(console, follower.progress, submitted, asyncio.get_running_loop().time())
    if is_late:
        print(f"not finished within {options.timeout:g} s", file=sys.stderr)
    for words in closing.last_words(follower.progress, screen, is_here=not options.is_remote):
        print(words, file=sys.stderr)
    return TIMED_OUT if is_late else _result(follower.progress)


def _places(options: RunOptions, submission: Submission) -> list[Place]:
    """What each job finds where it runs, in their order."""
    limited = [hints.limits_restarts(document.body) for document in submission.jobs]
    if options.is_remote:
        return [Place(is_limited=one, is_here=False) for one in limited]
    images, _ = configuration_of(options.embedded, _base(options.files))
    return [
        Place(hints.image_of(job.body), _files(images, job), one)
        for job, one in zip(submission.jobs, limited, strict=True)
    ]


def _files(images: Images, job: Document) -> dict[str, Path]:
    return {
        inside: path for name in hints.images_of(job.body) for inside, path in images.resolve(name).overlays.items()
    }


def _unmatched(options: RunOptions, submission: Submission) -> Iterator[str]:
    """Of --image, patterns that stand for nothing that is run: most often they are misspelt."""
    named = sorted({image for job in submission.jobs for image in hints.images_of(job.body)})
    for text in options.embedded.images if not options.is_remote else ():
        mapping = parse_option(text, Path())
        if not any(mapping.matches(image) for image in (*named, KUBECTL_DELIVERY_IMAGE, COORDINATOR_IMAGE)):
            yield f"--image {text!r} matches no image of these jobs; they name {', '.join(named) or 'none'}"


async def _within(timeout: float | None, follower: Follower, screen: Attentive) -> bool:
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


@asynccontextmanager
async def _cluster(options: RunOptions, base: Path, ending: Ending) -> AsyncIterator[_Reached]:
    if not options.is_remote:
        async with embedded(options.embedded, base, announce=options.keep, ending=ending) as running:
            yield _Reached(running.client, "default", running.kept)
        return
    config = config_of(Choice(context=options.context, kubeconfig=options.kubeconfig))
    client = Client(HttpTransport(config))
    try:
        yield _Reached(client, config.namespace)
    finally:
        await client.close()


def _base(files: Sequence[str]) -> Path:
    """Where a trainmaster.yaml is looked for: beside the first manifest, else here."""
    first = Path(files[0]) if files[0] != "-" else Path()
    return first if first.is_dir() else first.parent
