"""When `run` stops waiting, what it says of it, and what it does not say twice."""

import io

import pytest
from rich.console import Console

from trainmaster.api.status import Condition, JobStatus
from trainmaster.cli.attention import Attentive
from trainmaster.cli.closing import interrupted, last_words
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.hints import Place
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated, Waiting
from trainmaster.objects.resource import Resource

JOB = JobRef(Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), "default", "ddp", "uid-1")
MISSING = "ModuleNotFoundError: No module named 'torch'"
TRACEBACK = ("Traceback (most recent call last):", '  File "/app/train.py", line 1, in <module>', MISSING)
LOOPING = ContainerState(waiting=Waiting("CrashLoopBackOff", "back-off 10s"))
RUNNING = ContainerState(running={})


def a_rank(state=RUNNING, *, restarts=0, uid="p1", phase="Running", name="ddp-worker-0", role="worker", deleted=None):
    status = ContainerStatus("pytorch", restart_count=restarts, state=state)
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": "0"}
    meta = Meta(name=name, namespace="default", uid=uid, labels=labels, deletion_timestamp=deleted)
    return Rank(JOB, Pod(meta, PodStatus(phase, container_statuses=(status,))))


def ended(code, at="2023-11-14T22:14:10Z"):
    return ContainerState(terminated=Terminated(code, "Error", finished_at=at))


def progress_of(*ranks, status=None):
    return Progress({JOB: status or JobStatus()}, {f"default/{rank.pod.name}": rank for rank in ranks})


class Scene:
    def __init__(self, place=Place("x:1"), told=()):  # noqa: B008  # frozen
        self._file = io.StringIO()
        self.screen = Attentive(Console(file=self._file, width=500), {JOB: place}, told, several_jobs=False)

    def see(self, *ranks, status=None):
        self.screen.changed(progress_of(*ranks, status=status))
        return self

    def print(self, rank, *lines):
        for line in lines:
            self.screen.line(rank, "pytorch", line)
        return self

    def attempt(self, rank, *lines):
        """One from its first line to its last."""
        self.print(rank, *lines)
        self.screen.silence(rank, "pytorch")
        return self

    @property
    def shown(self):
        return self._file.getvalue()

    @property
    def gave_up(self):
        return self.screen.gave_up.is_set()


def test_a_rank_that_ends_twice_for_a_cause_that_stays_ends_the_waiting():
    scene = Scene()
    scene.see(a_rank()).attempt(a_rank(), *TRACEBACK)
    scene.see(a_rank(LOOPING, restarts=1))
    assert not scene.gave_up

    scene.attempt(a_rank(restarts=1), *TRACEBACK)

    assert scene.gave_up
    assert scene.screen.why.startswith("PyTorchJob ddp is given up: worker-0 has ended twice for the same reason")
    assert "The Python that stands for x:1 on this machine has no module torch" in scene.screen.why


def test_it_does_not_matter_whether_the_end_or_the_cause_is_heard_of_first():
    scene = Scene().attempt(a_rank(), MISSING).attempt(a_rank(restarts=1), MISSING)
    assert not scene.gave_up

    scene.see(a_rank(LOOPING, restarts=1))

    assert scene.gave_up


def test_a_rank_is_not_given_up_before_its_log_has_been_read_to_the_end():
    scene = Scene().attempt(a_rank(), MISSING).see(a_rank(LOOPING, restarts=1))

    scene.print(a_rank(restarts=1), MISSING)

    assert not scene.gave_up


def test_what_a_program_says_on_the_way_is_not_why_it_ended():
    scene = Scene().see(a_rank(LOOPING, restarts=5))

    for number in range(6):
        scene.attempt(a_rank(restarts=number), *TRACEBACK, "going on without it")

    assert not scene.gave_up
    assert not scene.screen.knows_why(JOB)


@pytest.mark.parametrize(("attempts", "is_enough"), [(3, False), (4, True)], ids=["three", "four"])
def test_whoever_says_other_things_too_has_to_end_so_more_often(attempts, is_enough):
    scene = Scene().see(a_rank(LOOPING, restarts=attempts - 1))

    for number in range(attempts):
        scene.attempt(a_rank(restarts=number), "starting", MISSING, "")

    assert scene.gave_up is is_enough
    assert ("worker-0 has ended 4 times for the same reason" in scene.screen.why) is is_enough


def test_an_end_for_another_reason_begins_the_count_anew():
    scene = Scene().see(a_rank(LOOPING, restarts=2))

    for number, words in enumerate((MISSING, "Killed by a bug", MISSING)):
        scene.attempt(a_rank(restarts=number), words)

    assert not scene.gave_up


def test_a_pod_in_the_place_of_one_that_said_the_same_counts_as_its_second_attempt():
    scene = Scene()
    first, second = (a_rank(ended(1), uid=uid, phase="Failed", name=f"ddp-{uid}") for uid in ("p1", "p2"))

    scene.see(first).attempt(first, MISSING)
    assert not scene.gave_up
    scene.see(first, second).attempt(second, MISSING)

    assert scene.gave_up


def test_a_program_that_cannot_even_be_started_ends_the_waiting_too():
    scene = Scene()
    scene.screen.warning(JOB, "Failed", 'Error: exec: "torchrun": executable file not found in $PATH')
    assert not scene.gave_up

    scene.see(a_rank(LOOPING, restarts=1))

    assert "There is no torchrun" in scene.screen.why


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ([MISSING], a_rank(RUNNING, restarts=1)),
        (["Killed by a bug"], a_rank(LOOPING, restarts=1)),
        (["OSError: [Errno 98] Address already in use"], a_rank(LOOPING, restarts=4)),
    ],
    ids=["it went on", "another cause", "a cause that may pass"],
)
def test_whoever_may_still_succeed_is_waited_for(lines, rank):
    scene = Scene().attempt(a_rank(), *lines).attempt(a_rank(restarts=1), *lines).see(rank)

    assert not scene.gave_up


def test_a_rank_is_not_given_up_for_what_another_has_said():
    scene = Scene().attempt(a_rank(), MISSING).attempt(a_rank(restarts=1), MISSING)

    scene.see(a_rank(restarts=1), a_rank(LOOPING, restarts=1, name="ddp-master-0", role="master"))

    assert not scene.gave_up


def test_a_job_that_has_ended_is_not_given_up():
    over = JobStatus(conditions=(Condition("Failed", "True", "r", "m"),))

    scene = Scene().attempt(a_rank(), MISSING).attempt(a_rank(restarts=1), MISSING)
    scene.see(a_rank(LOOPING, restarts=1), status=over)

    assert not scene.gave_up


def test_an_image_that_nothing_stands_for_is_told_once_and_last():
    message = "the container has no command, image x:1 is not pulled here, and no entry for it says what to run."
    waiting = ContainerState(waiting=Waiting("ImageNotMapped", message))
    scene = Scene()

    scene.screen.warning(JOB, "Failed", f"Error: {message}")
    scene.see(a_rank(waiting))

    assert scene.shown == ""
    assert scene.screen.why == f"ddp-worker-0 cannot start: {message}"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UnknownField", "spec.cleanPolicy is not a known field"),
        ("PyTorchJobFailed", "it failed"),
        ("CrashLoopBackOff", "Error pod ddp-worker-0 waiting message: back-off 10s"),
    ],
    ids=["as a warning before", "as a condition", "as BackOff"],
)
def test_what_has_been_told_is_not_told_again(reason, message):
    scene = Scene(told=["spec.cleanPolicy is not a known field"])
    scene.see(status=JobStatus(conditions=(Condition("Failed", "True", "PyTorchJobFailed", "it failed"),)))

    scene.screen.warning(JOB, reason, message)

    assert scene.shown == ""


def test_a_hint_is_given_once_however_many_ranks_stumble():
    scene = Scene().print(a_rank(), MISSING).print(a_rank(name="ddp-worker-1"), MISSING)

    assert scene.shown.count("Hint") == 1


def test_who_cannot_succeed_is_not_told_how_to_limit_attempts():
    scene = Scene().attempt(a_rank(), MISSING)

    scene.screen.warning(JOB, "BackOff", "Back-off restarting failed container")

    assert "backoffLimit" not in scene.shown


def test_a_job_that_failed_ends_with_who_was_first_and_what_to_do():
    failed = JobStatus(conditions=(Condition("Failed", "True", "PyTorchJobFailed", "it failed"),))
    early, late = a_rank(ended(3), name="ddp-worker-1"), a_rank(ended(1, "2023-11-14T22:15:00Z"), name="ddp-worker-0")

    words = list(last_words(progress_of(late, early, status=failed), Scene().screen, is_here=True))

    assert words == [
        "PyTorchJob ddp: the first to fail was worker-1, with exit code 3",
        "What to do: Read all that worker-1 has printed, for it failed first: the lines of worker-1 above.",
    ]


def test_a_hint_that_may_not_be_why_does_not_keep_the_log_from_being_recommended():
    failed = JobStatus(conditions=(Condition("Failed", "True", "PyTorchJobFailed", "it failed"),))
    scene = Scene().attempt(a_rank(), MISSING, "loss is NaN")

    [_, hinted, advised] = last_words(progress_of(a_rank(ended(3)), status=failed), scene.screen, is_here=True)

    assert "has no module torch" in hinted
    assert "Read all that worker-0 has printed" in advised


def test_ranks_that_the_operator_stopped_did_not_fail_and_what_to_do_is_said_without_them():
    message = "Job ddp has failed because it was active longer than specified deadline"
    failed = JobStatus(conditions=(Condition("Failed", "True", "DeadlineExceeded", message),))
    stopped = a_rank(ended(143, "2023-11-14T22:14:12Z"), deleted="2023-11-14T22:14:10Z")

    words = list(last_words(progress_of(stopped, status=failed), Scene().screen, is_here=True))

    assert words == ["What to do: Raise runPolicy.activeDeadlineSeconds, or make the job do less."]


def test_on_a_cluster_the_last_words_name_the_command_that_shows_the_log():
    failed = JobStatus(conditions=(Condition("Failed", "True", "PyTorchJobFailed", "it failed"),))

    words = list(last_words(progress_of(a_rank(ended(3)), status=failed), Scene().screen, is_here=False))

    assert "trainmaster logs pytorchjob/ddp -n default --rank worker-0" in words[1]


def test_hints_are_repeated_last_unless_the_job_succeeded():
    scene = Scene().print(a_rank(), MISSING)
    succeeded = JobStatus(conditions=(Condition("Succeeded", "True", "r", "m"),))

    late = list(last_words(progress_of(), scene.screen, is_here=True))
    well = list(last_words(progress_of(status=succeeded), scene.screen, is_here=True))

    assert late == [f"What to do: {hint}" for hint in scene.screen.advice(JOB)]
    assert len(late) == 1
    assert well == []


@pytest.mark.parametrize(
    ("jobs", "there", "told"),
    [
        ([JOB], "", "interrupted: everything that was started has been stopped"),
        ([], " --context prod", "interrupted: no job had been submitted"),
        (
            [JOB],
            " --context prod",
            "interrupted: PyTorchJob ddp goes on; to stop it: "
            "trainmaster delete pytorchjob/ddp -n default --context prod",
        ),
    ],
    ids=["here", "too early", "there"],
)
def test_who_interrupts_learns_what_goes_on(jobs, there, told):
    assert interrupted(jobs, there) == told
