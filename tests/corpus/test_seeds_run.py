"""The manifests that the project began with, run as they are.

They are read from the directory that CORPUS names and are not part of this project. Only the trainmaster.yaml in
seedprograms/ says what stands for their images, GPUs and volumes. Its programs check the contract of their framework,
meet their peers over TCP and agree on a sum: rank r brings 10**r, so 111 is three ranks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.integration.bed import Bed, Json, bed, holding
from tools import kubectl as stock

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.objects.resource import EVENTS, PODS
from trainmaster.testing.patience import PATIENCE

PROGRAMS = Path(__file__).parent / "seedprograms"


@dataclass(frozen=True)
class Seed:
    """Files by the beginning of their names; where ranks stand when the job has ended, and a line of each.

    A rank that does not decide the job may still be about to end, and one that is cleaned up may have gone.
    """

    job: str
    files: tuple[str, ...]
    ends: Mapping[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()


SERVED = {"ps-0": "Running", "ps-1": "Running", "worker-0": "Succeeded", "worker-1": "Succeeded"}
TRAINED = {"worker-0": "Succeeded", "worker-1": "Succeeded"}
RANKED = {"master-0": "Succeeded"}
HOROVOD = tuple(f"[launcher] rank {n} of 2 on tensorflow-mnist-worker-{n} has sum 11, flags []" for n in (0, 1))


def trainers(servers: int) -> tuple[str, ...]:
    return tuple(f"[worker-{n}] trainer {n} of 2 has sum 11 of {servers} servers" for n in (0, 1))


MNIST = Seed("TFJob mnist", ("000-01", "000-02", "000-03"), {"worker-0": "Succeeded"}, ("[worker-0] loss 7.300 -> ",))
WIDE_AND_DEEP = Seed("PaddleJob wide-ande-deep", ("004-01",), SERVED, trainers(3))
GANG = Seed("PaddleJob wide-ande-deep", ("004-03",), SERVED, trainers(3))
TYPO = Seed("PaddleJob paddlejob-demo-1", ("004-05", "004-06"), says=trainers(2))
SEEDS = {
    "tensorflow with servers": Seed(
        "TFJob distributed-training",
        ("000-04",),
        {"ps-0": "Running", "worker-0": "Succeeded"},
        tuple(f"[worker-{n}] worker {n} of 2 has sum 11" for n in (0, 1)),
    ),
    "pytorch gloo": Seed(
        "PyTorchJob pytorch-dist-mnist-gloo",
        ("000-05",),
        RANKED,
        tuple(f"rank {n} of 3 has sum 111 by gloo" for n in range(3)),
    ),
    "pytorch mpi": Seed(
        "PyTorchJob pytorch-dist-mnist-mpi",
        ("000-06",),
        RANKED,
        tuple(f"rank {n} of 3 has sum 111 by mpi" for n in range(3)),
    ),
    "mpi benchmarks": Seed(
        "MPIJob tensorflow-benchmarks",
        ("000-07",),
        {"launcher": "Succeeded"},
        tuple(
            f"[launcher] rank {n} of 2 on tensorflow-benchmarks-worker-{n} has sum 11, flags ['--model=resnet101',"
            for n in (0, 1)
        ),
    ),
    "horovod": Seed("MPIJob tensorflow-mnist", ("000-08",), {"launcher": "Succeeded"}, HOROVOD),
    "horovod v1alpha2": Seed("MPIJob tensorflow-mnist", ("002-01",), {"launcher": "Succeeded"}, HOROVOD),
    "mindspore": Seed(
        "MSJob ms-widedeep-dataparallel",
        ("003-01",),
        {f"worker-{n}": "Succeeded" for n in range(4)},
        (
            "[scheduler-0] scheduler introduced 4 workers",
            *(f"[worker-{n}] worker {n} of 4 has sum 1111 and the data's sum 385" for n in range(4)),
        ),
    ),
    "paddle collective": Seed(
        "PaddleJob resnet",
        ("004-02",),
        TRAINED,
        tuple(f"[worker-{n}] trainer {n} of 2 has sum 11" for n in (0, 1)),
    ),
    "paddle by services": Seed("PaddleJob wide-ande-deep", ("004-04",), says=trainers(2)),
}


def directory() -> Path:
    named = os.environ.get("CORPUS", "")
    if not named or not (Path(named) / "seeds").is_dir():
        pytest.fail(f"CORPUS={named!r} names no corpus: a directory with seeds/ is needed", pytrace=False)
    return Path(named) / "seeds"


def files(seed: Seed) -> list[Path]:
    found = [list(directory().glob(f"{beginning}-*.yaml")) for beginning in seed.files]
    assert all(len(each) == 1 for each in found), (seed.files, found)
    return [path for [path] in found]


def trainmaster(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainmaster", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def kubectl(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [stock.kubectl(), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )


def run(seed: Seed, *words: object) -> str:
    """What `trainmaster run` says of the seed's own files, after it was checked that the job did what it should."""
    done = trainmaster("run", *files(seed), "--timeout", PATIENCE - 10, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{seed.job}: Succeeded after " in done.stdout
    assert [line for line in seed.says if line not in done.stdout] == [], done.stdout
    name = seed.job.split()[1]
    rows = [row.split() for row in done.stdout.splitlines() if row.startswith(f"{name} ")]
    assert {rank: state for _, rank, state, *_ in rows if rank in seed.ends} == seed.ends, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our programs and their trainmaster.yaml, where jobs may write: two volumes lie beside it."""
    return Path(shutil.copytree(PROGRAMS, tmp_path_factory.mktemp("seeds") / "programs"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def cluster(home: Path, programs: Path) -> Iterator[Bed]:
    """One that stays after `run`, so that it can be asked what has become of the objects."""
    with bed(EmbeddedOptions(home=str(home), config=str(programs / "trainmaster.yaml"))) as running:
        yield running


def inhabited(cluster: Bed, namespace: str) -> str:
    """A namespace of its own for jobs that have the same name."""
    cluster.submit({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return namespace


def listed(cluster: Bed, api_version: str, kind: str, namespace: str) -> list[Json]:
    resource = cluster.resource(api_version, kind)
    return list(cluster.do(cluster.client.list(resource, namespace)).items)


def test_every_seed_is_run():
    run_here = [path for seed in (MNIST, WIDE_AND_DEEP, GANG, TYPO, *SEEDS.values()) for path in files(seed)]

    assert sorted(run_here) == sorted(directory().glob("*.yaml"))


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_seed_trains_unedited(seed, programs):
    run(seed, "--config", programs / "trainmaster.yaml")


def test_the_summaries_of_mnist_lie_in_the_volume_that_its_claim_names(programs):
    run(MNIST, "--config", programs / "trainmaster.yaml")

    events = (programs / "tfevents" / "logs" / "train" / "events.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in events]
    assert losses[-1] < losses[0] / 10


def test_get_pdj_prints_the_table_of_the_seed(cluster, home):
    namespace = inhabited(cluster, "paddle-system")

    run(WIDE_AND_DEEP, "--kubeconfig", home / "kubeconfig", "-n", namespace)

    for shown in (
        trainmaster("get", "pdj", "--kubeconfig", home / "kubeconfig", "-n", namespace),
        kubectl("get", "pdj", "--kubeconfig", home / "kubeconfig", "-n", namespace),
    ):
        heading, line = shown.stdout.splitlines()
        assert heading.split() == ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"]
        assert re.fullmatch(r"wide-ande-deep +Completed +PS +2/2 +0/2 +\d+s *", line)


def test_a_pod_group_that_the_user_made_holds_the_job_together_and_stays(cluster, home):
    namespace = inhabited(cluster, "gang")

    run(GANG, "--kubeconfig", home / "kubeconfig", "-n", namespace)

    [group] = listed(cluster, "scheduling.volcano.sh/v1beta1", "PodGroup", namespace)
    assert group["spec"]["minMember"] == 4
    assert "Scheduled" in holding(group)
    assert "ownerReferences" not in group["metadata"]


def test_none_of_the_gang_starts_where_there_is_room_for_all_but_one(programs, tmp_path):
    config = yaml.safe_load((programs / "trainmaster.yaml").read_text())
    config["node"]["resources"]["pods"] = 3
    small = programs / "small.yaml"
    small.write_text(yaml.safe_dump(config))
    with bed(EmbeddedOptions(home=str(tmp_path), config=str(small))) as cluster:
        applied = trainmaster("apply", "-f", *files(GANG), "--kubeconfig", tmp_path / "kubeconfig")
        assert applied.returncode == 0, applied.stderr

        for pod in SERVED:
            cluster.warning(f"wide-ande-deep-{pod}", "group wide-ande-deep needs 4 pods")

        pods = cluster.do(cluster.client.list(PODS, "default")).items
        assert [pod["spec"].get("nodeName") for pod in pods] == [None] * 4


def test_a_misspelt_field_is_warned_of_and_the_job_runs_on_its_nfs_claim(cluster, home):
    namespace = inhabited(cluster, "nas")

    run(TYPO, "--kubeconfig", home / "kubeconfig", "-n", namespace)

    events = cluster.do(cluster.client.list(EVENTS, namespace)).items
    [warning] = [event for event in events if event["reason"] == "UnknownField"]
    assert (warning["type"], warning["involvedObject"]["kind"]) == ("Warning", "PaddleJob")
    assert "cleanPodPolicy" in warning["message"]
    [claim] = listed(cluster, "v1", "PersistentVolumeClaim", namespace)
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", "nfs-pv")
