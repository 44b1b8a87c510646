"""Where frameworks leave users alone, the operator does not: ranks that never end, survivors that hang, late aborts.

    python -m pytest tests/e2e/test_traps.py -k jax

Users' scripts are as they are: it is the examples that run, but for what makes them last long enough. More of the kind,
with MPI, Paddle and MindSpore, is in the files of those names. No job here is named like an example, for examples may
run beside them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.examples import Run, changed, example_of, meeting, ran, shortcomings, words_of
from tests.e2e.stage import FOREVER, ended, jobs_of, message_of, stage
from tests.integration.bed import Bed, container_of, processes, wait_for_end, wait_for_none

USED = ("ddp", "elastic", "jax", "lightgbm", "mxnet", "tf-mirrored", "tf-ps", "xgboost")
ROUNDS = ("num_boost_round=15", "num_boost_round=10**9")
GROWN = ("record_evaluation(errors)]", 'record_evaluation(errors), lambda _: print("grown", flush=True)]')
MEETS, STEPS = "def coordinate():\n", "            crash_once(step)\n"
LAST_LINE = "    os._exit(0)  # torch 2.13 with gloo now and then aborts while Python shuts down, when all work is done"
HANG = 60.0
"""Seconds in which survivors have to be gone, who have five to end and are killed then; left alone they would stay for
longer, most of them for ever."""

AT_GATE = "while not os.path.exists(os.environ.get('GATE', '/')): time.sleep(0.1)"

pytestmark = [pytest.mark.timeout(600), pytest.mark.light]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    home = tmp_path_factory.mktemp("traps")
    endless = {
        "xgboost": changed(example_of("xgboost"), home, ROUNDS),
        "lightgbm": changed(example_of("lightgbm"), home, ROUNDS, GROWN),
        "tf-ps": changed(example_of("tf-ps"), home, (MEETS, f"{MEETS}    {AT_GATE}\n")),
        "elastic": changed(
            example_of("elastic"), home, (STEPS, f"{STEPS}            import time\n            {AT_GATE}\n")
        ),
    }
    with stage(home, *map(example_of, USED), instead=endless) as running:
        yield running
    assert processes() == []


def is_in_midst(cluster: Bed, name: str, rank: str, told: str) -> list[int]:
    """The processes of the job, once that rank has told so."""
    cluster.says(f"{name}-{rank}", told)
    return [ran.pid for ran in processes(name)]


@contextlib.contextmanager
def still(pids: list[int]) -> Iterator[None]:
    """Stops these processes: what they do about the end of another comes after it has been noticed."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("job", "env"),
    [pytest.param("tf-ps", {"ROUNDS": "1"}, id="tf-ps"), pytest.param("mxnet", {"STEPS": "5"}, id="mxnet")],
)
def test_ranks_that_never_end_are_ended_with_their_job(cluster, job, env):
    name = f"served-{job}"
    submitted = jobs_of(example_of(job), name, **env)
    cluster.submit(*submitted)

    done = ended(cluster, submitted[0])

    assert message_of(done, "Succeeded"), done
    wait_for_none(name)


@pytest.mark.parametrize(
    ("job", "witness", "told", "victim"),
    [
        pytest.param("mxnet", "worker-0", "has joined", "worker-1", id="mxnet worker"),
        pytest.param("mxnet", "worker-0", "has joined", "server-0", id="mxnet server"),
        pytest.param("jax", "worker-0", "step 0 loss", "worker-1", id="jax worker"),
        pytest.param("xgboost", "worker-0", "has joined", "master-0", id="xgboost master"),
        pytest.param("lightgbm", "master-0", "grown", "worker-0", id="lightgbm worker"),
        pytest.param("tf-ps", "chief-0", "round 0 loss", "chief-0", id="tensorflow chief"),
        pytest.param("tf-mirrored", "worker-0", "step 0 loss", "worker-1", id="tensorflow worker"),
    ],
)
def test_survivors_of_a_killed_rank_are_ended_with_their_job(cluster, job, witness, told, victim):
    name = f"without-{victim}-of-{job}"
    submitted = jobs_of(example_of(job), name, restart="Never", STEPS=FOREVER, ROUNDS=FOREVER)
    cluster.submit(*submitted)
    running = is_in_midst(cluster, name, witness, told)
    [killed] = processes(name, f"{name}-{victim}")

    with still([pid for pid in running if pid != killed.pid]):
        os.kill(killed.pid, signal.SIGKILL)
        failed = message_of(ended(cluster, submitted[0]), "Failed")

    assert victim.partition("-")[0] in failed.lower(), failed
    assert container_of(cluster.pod(f"{name}-{victim}"))["state"]["terminated"]["exitCode"] == 137
    wait_for_end(running, HANG)
    assert processes(name) == []


def test_a_worker_killed_before_the_chief_has_met_it_comes_back_to_the_meeting(cluster, tmp_path):
    submitted = jobs_of(example_of("tf-ps"), "early", ROUNDS="1", GATE=str(tmp_path / "gate"))
    cluster.submit(*submitted)
    cluster.pod("early-worker-1", lambda pod: "running" in container_of(pod).get("state", {}))
    [killed] = processes("early", "early-worker-1")

    os.kill(killed.pid, signal.SIGKILL)
    (tmp_path / "gate").touch()

    assert message_of(ended(cluster, submitted[0]), "Succeeded")
    assert container_of(cluster.pod("early-worker-1"))["restartCount"] == 1


def test_torchrun_starts_its_ranks_again_after_one_was_killed_and_all_are_needed(cluster, tmp_path):
    submitted = jobs_of(example_of("elastic"), "again", CRASH_AT="-1", GATE=str(tmp_path / "gate"))
    submitted[0]["spec"] |= {"runPolicy": {"cleanPodPolicy": "None"}}  # or whoever is slow to end loses its log
    submitted[0]["spec"]["elasticPolicy"] |= {"minReplicas": 2, "maxReplicas": 2}
    cluster.submit(*submitted)
    for index in range(2):
        cluster.says(f"again-worker-{index}", "of 2 has joined")
    [rank] = [ran for ran in processes("again", "again-worker-1") if "LOCAL_RANK" in ran.env]

    os.kill(rank.pid, signal.SIGKILL)
    (tmp_path / "gate").touch()

    assert message_of(ended(cluster, submitted[0]), "Succeeded")
    for index in range(2):
        pod = cluster.pod(f"again-worker-{index}")
        assert cluster.log(pod["metadata"]["name"]).count("of 2 has joined") == 2
        assert container_of(pod)["restartCount"] == 0


def aborting(directory: Path, restart: str, last: str) -> Run:
    """The example of PyTorch, whose ranks do that after their training, when all of them have told their results."""
    example = example_of("ddp")
    copy = changed(example, directory, (LAST_LINE, f"{meeting(directory / 'done', example.ranks, '    ')}    {last}"))
    job = yaml.safe_load((copy / "job.yaml").read_text())
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = restart
    (copy / "job.yaml").write_text(yaml.safe_dump(job))
    return ran(*words_of(example, copy))


def test_a_rank_that_aborts_when_it_has_trained_is_told_with_its_exit_code(tmp_path):
    run = aborting(tmp_path, "Never", "os.abort() if rank == 1 else __import__('signal').pause()")

    assert run.code == 1, run.text
    assert run.text.count("final loss") == 3
    assert run.rows["worker-0"][2:4] == ["Failed", "134"]
    assert "PyTorchJob copy-of-ddp is failed because 1 Worker replica(s) failed." in run.text


def test_a_worker_that_aborts_when_it_has_trained_does_not_spoil_the_result_of_the_master(tmp_path):
    run = aborting(tmp_path, "OnFailure", "os.abort() if rank else os._exit(0)")

    assert run.code == 0, run.text
    assert run.rows["master-0"][2:4] == ["Succeeded", "0"]


@pytest.mark.parametrize("restart", ["OnFailure", "ExitCode"])
def test_ranks_that_abort_when_they_have_trained_may_try_again(tmp_path, restart):
    once = f"once = __import__('pathlib').Path('{tmp_path}', str(rank))"
    run = aborting(tmp_path, restart, f"{once}; once.exists() or (once.touch(), os.abort()); os._exit(0)")

    assert run.code == 0, run.text
    assert run.rows["master-0"][2:5] == ["Succeeded", "0", "1"]


@pytest.mark.parametrize(
    ("allowed", "is_refused"),
    [pytest.param(None, False, id="as it is"), pytest.param("0", True, id="where users forbid it")],
)
def test_open_mpi_starts_as_root_of_a_user_namespace(tmp_path, allowed, is_refused):
    """Everybody is root there, whoever the image's user is."""
    example = example_of("mpi-v1")
    last = 'command: [mpirun, -n, "4", python, /app/train.py]'
    env = f"env: [{{name: OMPI_ALLOW_RUN_AS_ROOT, value: '{allowed}'}}]"
    changes = [(last, f"{last}\n              {env}")] if allowed else []
    copy = changed(example, tmp_path, *changes, file=example.manifest)

    run = ran(*words_of(example, copy), around=("unshare", "--user", "--map-root-user"))

    assert ("has detected an attempt to run as root" in run.text) == is_refused, run.text
    assert (shortcomings(example, run) == []) != is_refused, run.text
