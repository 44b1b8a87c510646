"""`trainmaster logs`."""

import pytest

from trainmaster.cli.logs import LogOptions, logs
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.operation import passing

DONE = {"phase": "Succeeded", "containerStatuses": [{"name": "pytorch", "state": {"terminated": {"exitCode": 0}}}]}
RUNS = {"phase": "Running", "containerStatuses": [{"name": "pytorch", "state": {"running": {}}}]}


def run(stage, *words, beside=None, **options):
    return stage.run("logs", lambda session: logs(session, LogOptions(words, **options)), beside=beside)


def asked(stage):
    return [dict(request.params) for request in stage.api.sent if request.path.endswith("/log")]


@pytest.fixture
def job(stage):
    stage.job()
    stage.pod("master-0", status=DONE, log=b"2024-01-01T00:00:02Z from master\n", leader=True)
    stage.pod("worker-0", status=DONE, log=b"2024-01-01T00:00:01Z w0 one\n2024-01-01T00:00:03Z w0 two\n")
    return stage


def test_of_a_job_the_leader_speaks(job, capsys):
    code = run(job, "ddp")

    assert (code, capsys.readouterr().out) == (0, "2024-01-01T00:00:02Z from master\n")
    assert asked(job) == [{"container": "pytorch"}]


def test_of_a_job_without_a_leader_the_first_rank_speaks(stage, capsys):
    stage.job()
    stage.pod("worker-1", log=b"one\n")
    stage.pod("worker-0", log=b"zero\n")

    run(stage, "ddp")

    assert capsys.readouterr().out == "zero\n"


def test_a_rank_can_be_named(job, capsys):
    run(job, "pytorchjob/ddp", ranks=("worker-0",))

    assert "w0 one" in capsys.readouterr().out


def test_all_ranks_are_merged_by_time_with_their_names(job, capsys):
    run(job, "ddp", all_ranks=True)

    assert capsys.readouterr().out.splitlines() == [
        "[worker-0] w0 one",
        "[master-0] from master",
        "[worker-0] w0 two",
    ]


def test_times_stay_if_one_wants_them(job, capsys):
    run(job, "ddp", all_ranks=True, timestamps=True)

    assert capsys.readouterr().out.splitlines()[0] == "[worker-0] 2024-01-01T00:00:01Z w0 one"


def test_lines_without_a_time_stay_with_the_line_before_them(job, capsys):
    job.pod("worker-0", log=b"2024-01-01T00:00:01Z a\nno time\n")

    run(job, "ddp", all_ranks=True)

    assert capsys.readouterr().out.splitlines() == ["[worker-0] a", "[worker-0] no time", "[master-0] from master"]


def test_flags_reach_the_server(job):
    run(job, "ddp", previous=True, tail=5, since="1m30s", timestamps=True)

    assert asked(job) == [
        {"container": "pytorch", "previous": "true", "tailLines": "5", "sinceSeconds": "90", "timestamps": "true"}
    ]


def test_a_pod_is_read_by_its_name_with_or_without_its_kind(job, capsys):
    run(job, "pod/ddp-worker-0", tail=1)
    run(job, "ddp-worker-0")

    assert capsys.readouterr().out.count("w0 two") == 2


def test_the_container_is_the_one_that_the_pod_prefers(stage):
    spec = {"containers": [{"name": "sidecar"}, {"name": "pytorch"}]}
    stage.job()
    stage.pod("master-0", spec=spec)

    run(stage, "ddp")
    run(stage, "ddp", container="sidecar")

    assert [params["container"] for params in asked(stage)] == ["pytorch", "sidecar"]


def test_following_goes_on_with_new_pods_until_the_job_ends(stage, capsys):
    stage.job()
    stage.pod("master-0", status=RUNS, log=b"hello\n", leader=True)

    async def later():
        await passing(30)
        stage.pod("worker-0", status=RUNS, log=b"late\n")
        await passing(30)
        stage.job(conditions=stage.conditions(("Succeeded", "")))

    code = run(stage, "ddp", follow=True, all_ranks=True, beside=later)

    assert code == 0
    assert capsys.readouterr().out.splitlines() == ["[master-0] hello", "[worker-0] late"]


@pytest.mark.parametrize(
    ("reason", "restarts", "shown"),
    [("CrashLoopBackOff", 1, "short\n"), ("ContainerCreating", 0, "")],
    ids=["an attempt too short to be seen", "not begun"],
)
def test_following_shows_what_a_container_said_that_waits_for_its_next_attempt(stage, capsys, reason, restarts, shown):
    one = {"name": "pytorch", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    stage.job()
    stage.pod("master-0", status={"phase": "Running", "containerStatuses": [one]}, log=b"short\n", leader=True)

    async def later():
        await passing(30)
        stage.job(conditions=stage.conditions(("Failed", "")))

    run(stage, "ddp", follow=True, beside=later)

    assert capsys.readouterr().out == shown


def test_following_the_leader_leaves_the_others_alone(stage, capsys):
    stage.job()
    stage.pod("worker-0", status=RUNS, log=b"worker\n")

    async def later():
        await passing(30)
        stage.job(conditions=stage.conditions(("Succeeded", "")))

    stage.pod("master-0", status=RUNS, log=b"leader\n", leader=True)
    run(stage, "ddp", follow=True, beside=later)

    assert capsys.readouterr().out == "leader\n"


def test_following_a_job_that_has_ended_shows_all_of_it(job, capsys):
    job.job(conditions=job.conditions(("Succeeded", "")))

    run(job, "ddp", follow=True)

    assert "from master" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "options", "code", "said"),
    [
        pytest.param(["ddp"], {"ranks": ("worker-7",)}, 1, "there is no worker-7 now; there are master-0", id="rank"),
        pytest.param(["ddp"], {"container": "x"}, 1, "has no container x; it has pytorch", id="container"),
        pytest.param(["nobody"], {}, 1, "neither a training job", id="nobody"),
        pytest.param(["node/a"], {}, 2, "only training jobs and pods have logs", id="no logs"),
        pytest.param(["ddp"], {"follow": True, "previous": True}, 2, "exclude", id="follow the past"),
        pytest.param(["ddp"], {"ranks": ("a",), "all_ranks": True}, 2, "exclude", id="rank and all"),
        pytest.param(["pod/ddp-worker-0"], {"all_ranks": True}, 2, "a pod is one of them", id="all of a pod"),
        pytest.param(["ddp"], {"since": "yesterday"}, 2, "not a duration", id="since"),
    ],
)
def test_what_makes_no_sense_is_told(job, capsys, words, options, code, said):
    assert run(job, *words, **options) == code
    assert said in capsys.readouterr().err


def test_a_job_without_pods_is_told_so(stage, capsys):
    stage.job()

    assert run(stage, "ddp") == 1
    assert "has no pods now" in capsys.readouterr().err


def test_among_all_ranks_one_that_has_not_started_is_told_and_passed_over(job, capsys):
    waiting = 'container "pytorch" in pod "ddp-master-0" is waiting to start: PodInitializing'
    job.api.fail_next("GET */ddp-master-0/log", Fault(400, "BadRequest", waiting))

    code = run(job, "ddp", all_ranks=True)

    said = capsys.readouterr()
    assert (code, said.out.splitlines()) == (0, ["[worker-0] w0 one", "[worker-0] w0 two"])
    assert said.err.startswith("warning: master-0: ")
    assert waiting in said.err
