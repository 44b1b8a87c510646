"""From what is known about a job that does not get on to one sentence: what to do.

Symptoms are asked in the order of how much they explain; the first that is there speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.status import JobStatus
from trainmaster.cli import hints, placement
from trainmaster.cli.ranks import Ending, Obstacle, RankView, first_to_fail
from trainmaster.objects.resource import Resource

_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_NOT_STARTING = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "FailedMount")
_SIGNALS = {
    139: "it was ended by a segmentation fault (SIGSEGV), so look at native libraries and at shared memory (/dev/shm)",
    134: (
        "it aborted (SIGABRT); the last lines of its log say which check failed. Some communication libraries (gloo) "
        "abort at exit when a peer has gone before them: then training was done, so look whether its result is there"
    ),
    143: "it was asked to end (SIGTERM): by an eviction, a deletion, or the node going away",
}
_LAUNCHER = "launcher"
_PASSED_ON = {134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV"}
"""Of signals that end a rank, mpirun makes its own exit code, wherever that rank ran."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a job of this kind keeps its pods, with their logs, past its end."""

    field: str = "runPolicy.cleanPodPolicy"
    value: str = "None"
    is_asked: bool = False
    """Whether its author has asked for that."""


def keeping_of(resource: Resource, spec: object) -> Keeping:
    told = reading.cleaning_told(spec) or ""
    found = frameworks.serving(resource.api_version, resource.kind)
    if found is not None and not found[0].clean_pod_policies:
        return Keeping("cleanPodPolicy", "Never", told == "Never")
    return Keeping(is_asked=told.capitalize() == "None")


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known about a job."""

    target: str
    """`pytorchjob/ddp -n team`, as it is written in commands; empty where there is nobody to send them to."""
    kind: str
    status: JobStatus
    ranks: Sequence[RankView]
    events: Sequence[dict[str, Any]] = ()
    is_suspended: bool = False
    tail: Sequence[str] = ()
    """The end of the log of the rank that failed first."""
    gang: Obstacle | None = None
    """What its PodGroup waits for."""
    lost: frozenset[str] = frozenset()
    """Titles of ranks whose lines are gone, and so cannot be read."""
    keeping: Keeping = Keeping()


def advise(case: Case) -> str:
    """Empty when there is nothing to do."""
    if case.status.is_true("Succeeded"):
        return ""
    return next((sentence for symptom in SYMPTOMS if (sentence := symptom(case))), "")


def _validation(case: Case) -> str:
    failed = case.status.condition("Failed")
    if failed is None or failed.status != "True":
        return ""
    # MSJob has one reason for every failure, so its words must tell.
    if not failed.reason.endswith("FailedValidation") and " failed validation because " not in failed.message:
        return ""
    return (
        f"Correct the fields named above in the manifest, then: trainmaster delete {case.target}, and apply it again; "
        f"`trainmaster plan FILE` checks it beforehand."
    )


def _name_taken(case: Case) -> str:
    for message in _warnings(case):
        if "already exists and belongs to" in message:
            return "Another object has a name that this job needs: rename the job, or delete that object."
    return ""


def _waiting(case: Case) -> str:
    for rank in case.ranks:
        if (obstacle := rank.obstacle) is not None and (sentence := _about(case, rank, obstacle)):
            return sentence
    if case.gang is not None:
        return placement.remedy_of(f"the pods of {case.target} together", case.gang.message)
    return ""


def _about(case: Case, rank: RankView, obstacle: Obstacle) -> str:
    if obstacle.reason == "ImageNotMapped":
        return (
            "Say what stands for the image on this machine: in trainmaster.yaml beside the manifest, "
            "or with --image 'PATTERN=DIR|VENV|COMMAND' of `trainmaster run` or `trainmaster up`."
        )
    if obstacle.reason in _PULLING:
        return "Check the image's name and tag, and that the nodes may pull it (imagePullSecrets)."
    if obstacle.reason in ("Unschedulable", "SchedulingGated"):
        return placement.remedy_of(rank.name, obstacle.message)
    if obstacle.reason == "CrashLoopBackOff" and not _ran_out_of_memory(rank.ending):
        return f"The container ends as often as it is started: read why in {_log(case, rank, previous=True)}."
    if obstacle.reason in _NOT_STARTING:
        return f"Mend what the message names (a ConfigMap, Secret, volume or command), so that {rank.name} can start."
    return ""


def _memory(case: Case) -> str:
    for rank in case.ranks:
        if _ran_out_of_memory(rank.ending):
            return (
                f"{rank.title} needs more memory than its limit: raise resources.limits.memory, or make the batch, "
                f"the cache or the number of data loaders smaller."
            )
    return ""


def _ran_out_of_memory(ending: Ending | None) -> bool:
    return ending is not None and (ending.reason == "OOMKilled" or (ending.exit_code == 137 and not ending.reason))


def _deadline(case: Case) -> str:
    failed = case.status.condition("Failed")
    if failed is None or failed.status != "True":
        return ""
    if "active longer than" in failed.message or "deadline" in failed.message.lower():
        return "Raise runPolicy.activeDeadlineSeconds, or make the job do less."
    return ""


def _exit_code(case: Case) -> str:
    found = first_to_fail(case.ranks)
    if found is None:
        return ""
    rank, ending = found
    logs = _log(case, rank, previous=ending.was_restarted)
    if ending.exit_code in (126, 127):
        return f"The program of {rank.title} was not found or may not be executed: check the command and the image."
    if rank.title.startswith(_LAUNCHER) and ending.exit_code in _PASSED_ON:
        return _passed_on(rank, ending, logs)
    if ending.exit_code == 137:
        return (
            f"{rank.title} was killed (SIGKILL): by the kernel for want of memory on the node, or because it did not "
            f"end in its grace period; raise memory requests, and see {logs}."
        )
    if ending.exit_code in _SIGNALS:
        return f"Of {rank.title}: {_SIGNALS[ending.exit_code]}; see {logs}."
    if rank.title in case.lost:
        keeping = "" if case.keeping.is_asked else f" and {case.keeping.field} to {case.keeping.value}"
        return (
            f"What {rank.title} printed is lost, for it was deleted at once: to keep it, set restartPolicy of its role "
            f"to Never{keeping}, and run it again."
        )
    return f"Read all that {rank.title} has printed, for it failed first: {logs}."


def _passed_on(rank: RankView, ending: Ending, logs: str) -> str:
    signal = _PASSED_ON[ending.exit_code]
    memory = " If that worker ran out of memory, raise resources.limits.memory of the Worker."
    return (
        f"{rank.title} ended with {ending.exit_code}, as mpirun does when {signal} ends one of the processes that it "
        f"has started: on which node, you read in {logs}.{memory if signal == 'SIGKILL' else ''}"
    )


def _log(case: Case, rank: RankView, *, previous: bool) -> str:
    if not case.target:
        return f"the lines of {rank.title} above"
    return f"trainmaster logs {case.target} --rank {rank.title}{' --previous' if previous else ''}"


def _missing(case: Case) -> str:
    found = first_to_fail(case.ranks)
    return hints.of_log(case.tail, found[0].title) if found is not None else ""


def _launcher_gone(case: Case) -> str:
    """A launcher that a Kubernetes Job runs is not ours to keep."""
    failed = case.status.condition("Failed")
    if failed is None or failed.status != "True" or not failed.reason.startswith("BackoffLimitExceeded"):
        return ""
    if any(rank.title.startswith(_LAUNCHER) for rank in case.ranks):
        return ""
    return (
        "The launcher's pod and its log are gone, for a Kubernetes Job that gives up deletes a pod that it restarts in "
        "place: to keep them, set restartPolicy of the Launcher to Never and run it again."
    )


def _gone(case: Case) -> str:
    if not case.status.is_true("Failed") or case.ranks:
        return ""
    field, value = case.keeping.field, case.keeping.value
    if case.keeping.is_asked:
        return (
            f"Its pods and their logs are gone, though {field} is {value}: they were deleted by hand, or went with "
            "their node. Run it again, and read the logs before they are deleted."
        )
    return (
        f"Its pods and their logs are gone: to keep them, set {field} to {value} and run it again. What still runs "
        "then goes on until the job is deleted."
    )


def _suspended(case: Case) -> str:
    return f"It is suspended; let it go on with: trainmaster resume {case.target}." if case.is_suspended else ""


def _unseen(case: Case) -> str:
    if case.status.conditions:
        return ""
    return (
        "No operator has looked at this job yet: check that one runs (trainmaster status, or the Deployment that "
        f"`trainmaster manifests` installs) and that it is enabled for {case.kind}."
    )


def _warnings(case: Case) -> Iterator[str]:
    return (event.get("message", "") for event in case.events if event.get("type") == "Warning")


SYMPTOMS: tuple[Callable[[Case], str], ...] = (
    _validation,
    _name_taken,
    _memory,
    _missing,
    _waiting,
    _deadline,
    _exit_code,
    _launcher_gone,
    _gone,
    _suspended,
    _unseen,
)
