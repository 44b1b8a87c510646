"""The last words of `run`: everything that it said before has scrolled away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import to_builtins

from trainmaster.cli.advice import Case, advise, keeping_of
from trainmaster.cli.attention import Attentive
from trainmaster.cli.follow import JobRef, Progress
from trainmaster.cli.ranks import RankView, first_to_fail

KEPT_NO_LONGER = "the cluster that was kept has ended, with everything in it"


def last_words(progress: Progress, screen: Attentive, *, is_here: bool) -> Iterator[str]:
    """Why a job that has not succeeded has not, and what to do."""
    if screen.why:
        yield screen.why
        return
    for job, status in progress.jobs.items():
        if status.is_true("Succeeded"):
            continue
        advised = screen.advice(job)
        # Pods as `describe` reads them; of a cluster that ends with this command no log can be asked for later.
        views = [RankView(rank.title, to_builtins(rank.pod)) for rank in progress.ranks.values() if rank.job == job]
        lost = frozenset(title for whose, title in progress.lost if whose == job)
        keeping = keeping_of(job.resource, progress.specs.get(job))
        target = "" if is_here else _target(job)
        case = Case(target, job.resource.kind, status, views, lost=lost, keeping=keeping)
        if status.is_true("Failed") and (first := first_to_fail(views)) is not None:
            yield f"{job}: the first to fail was {first[0].title}, with exit code {first[1].exit_code}"
        if status.is_true("Failed") and views and not screen.knows_why(job):
            advised = [*advised, advise(case)]
        yield from (f"What to do: {text}" for text in advised if text)


def interrupted(submitted: Sequence[JobRef], there: str) -> str:
    """`there` are the flags that name another's cluster, on which jobs go on without us."""
    if not there:
        return "interrupted: everything that was started has been stopped"
    if not submitted:
        return "interrupted: no job had been submitted"
    return "interrupted: " + "\n".join(unattended(submitted, there))


def unattended(submitted: Sequence[JobRef], there: str) -> Iterator[str]:
    """Of jobs that go on without us, how to stop them."""
    for job in submitted:
        yield f"{job} goes on; to stop it: trainmaster delete {_target(job)}{there}"


def _target(job: JobRef) -> str:
    return f"{job.resource.kind.lower()}/{job.name} -n {job.namespace}"
