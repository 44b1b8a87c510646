"""PaddleJobs of batch.paddlepaddle.org with a real Paddle: every intranet, and workers that are killed in their midst.

    python -m pytest tests/e2e/test_paddle_batch.py -k train

Nothing is left on the machine, however a job ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from tests.e2e.examples import LIMIT
from tests.integration.bed import MARK, Bed, Json, bed, container_of, processes, wait_for_end
from tools import kubectl as stock
from tools.environments import environment

from trainmaster.cli.embedded import EmbeddedOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = Path(__file__).parent / "programs"
VERSION = "batch.paddlepaddle.org/v1"
WORKERS = range(3)
DIRECT = "PADDLE_DISTRI_BACKEND=gloo PADDLE_CURRENT_ENDPOINT=$POD_IP:$PADDLE_PORT exec python "
"""Without Paddle's launcher, which takes nothing but addresses for its own, and one worker for each of them."""

pytestmark = pytest.mark.timeout(900)


def paddle_bed(home: Path, sandbox: Literal["namespaces", "ports"]) -> Iterator[Bed]:
    train, serve = str(EXAMPLES / "12-paddle-collective"), str(EXAMPLES / "13-paddle-ps")
    files = {"/app": train, "/programs": str(PROGRAMS)}
    images = [
        {"match": "registry.example/paddle", "python": str(environment("paddle")), "files": files},
        {"match": "registry.example/paddle-ps", "files": {"/app": serve}},
    ]
    config = home / "trainmaster.yaml"
    config.write_text(yaml.safe_dump({"images": images}))
    with bed(EmbeddedOptions(str(home / "cluster"), config=str(config), sandbox=sandbox)) as running:
        running.patience = LIMIT
        yield running


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Made before the clusters, so asked for after both."""
    yield
    assert processes() == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paddle")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Bed]:
    yield from paddle_bed(home, "namespaces")


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Where namespaces are forbidden: all pods share one network."""
    yield from paddle_bed(tmp_path_factory.mktemp("ports"), "ports")


def example(manifest: str, name: str, command: str = "", **spec: Any) -> Json:
    """A job of the examples, found by its name on this machine; its workers' command may be another."""
    job: Json = yaml.safe_load((EXAMPLES / manifest).read_text())
    job["metadata"] = {"name": name, "namespace": "default"}
    job["spec"] |= spec
    marks = [{"name": "MARK", "value": MARK}, {"name": "JOB", "value": name}]
    roles = [job["spec"][role] for role in ("ps", "worker") if role in job["spec"]]
    for [container] in (role["template"]["spec"]["containers"] for role in roles):
        container["env"] = [*container.get("env", ()), *marks]
        container["command"] = ["sh", "-c", command] if command else container["command"]
    return job


def at_gate(job: Json, gate: Path) -> Json:
    spec = job["spec"]["worker"]["template"]["spec"]
    spec["volumes"].append({"name": "gate", "hostPath": {"path": str(gate)}})
    spec["containers"][0]["volumeMounts"].append({"name": "gate", "mountPath": "/gate"})
    return job


def reaching(cluster: Bed, name: str, *phases: str) -> Json:
    def is_there(job: Json | None) -> bool:
        return job is not None and job.get("status", {}).get("phase") in phases

    job = cluster.until(cluster.resource(VERSION, "PaddleJob"), name, is_there)
    assert job is not None
    return job


def logs(cluster: Bed, name: str) -> str:
    return "".join(cluster.log(f"{name}-worker-{index}") for index in WORKERS)


def shown(home: Path, name: str) -> list[list[str]]:
    """What users see of the job: with kubectl, and with us."""
    config = f"--kubeconfig={home / 'cluster' / 'kubeconfig'}"
    tables = []
    for program in ([stock.kubectl()], [sys.executable, "-m", "trainmaster"]):
        command = [*program, "get", "pdj", name, config]
        table = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        tables.append([" ".join(line.split()) for line in table.splitlines()])
    return tables


@pytest.mark.parametrize(
    ("sandbox", "intranet"),
    [
        ("cluster", "PodIP"),
        ("cluster", "Service"),
        ("cluster", "Host"),
        ("ports", "PodIP"),
        ("ports", "Service"),
        ("ports", "Host"),
    ],
)
def test_three_workers_train_together(request, sandbox, intranet):
    cluster: Bed = request.getfixturevalue(sandbox)
    name = f"train-{sandbox}-{intranet.lower()}"

    cluster.submit(example("12-paddle-collective/job-batch.yaml", name, f"{DIRECT} /app/train.py", intranet=intranet))
    job = reaching(cluster, name, "Completed", "Failed")

    text = logs(cluster, name)
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([\d.]+)", text)]
    final = re.findall(r"rank (\d) final loss ([\d.]+) weights (.+)", text)
    assert (job["status"]["phase"], job["status"]["mode"]) == ("Completed", "Collective"), text
    assert [rank for rank, _, _ in final] == ["0", "1", "2"]
    assert max(float(loss) for _, loss, _ in final) < 0.001 * losses[0]
    assert len({weights for _, _, weights in final}) == 1
    assert text.count("of 3 has joined") == 3


def test_a_killed_worker_fails_a_job_whose_endpoints_are_addresses(cluster, tmp_path):
    job = example("12-paddle-collective/job-batch.yaml", "fatal", f"{DIRECT} /programs/collective.py")
    cluster.submit(at_gate(job, tmp_path) | {"spec": {**job["spec"], "cleanPodPolicy": "Always"}})
    for index in WORKERS:
        cluster.says(f"fatal-worker-{index}", f"rank {index} of 3 has sum 111")
    running = processes("fatal")
    [victim] = [ran for ran in running if ran.env["HOSTNAME"] == "fatal-worker-1"]

    os.kill(victim.pid, signal.SIGKILL)

    assert reaching(cluster, "fatal", "Completed", "Failed")["status"]["phase"] == "Failed"
    wait_for_end([ran.pid for ran in running])
    for index in WORKERS:
        cluster.pod_gone(f"fatal-worker-{index}")
    assert processes("fatal") == []


def test_workers_meet_again_after_one_was_killed_where_endpoints_are_names(cluster, tmp_path):
    command = f"{DIRECT} /programs/collective.py"
    job = example("12-paddle-collective/job-batch.yaml", "mended", command, intranet="Service")
    cluster.submit(at_gate(job, tmp_path))
    for index in WORKERS:
        cluster.says(f"mended-worker-{index}", f"rank {index} of 3 has sum 111")
    [victim] = processes("mended", "mended-worker-1")

    os.kill(victim.pid, signal.SIGKILL)
    for index in WORKERS:
        cluster.pod(f"mended-worker-{index}", lambda pod: container_of(pod).get("restartCount", 0) > 0)
        cluster.says(f"mended-worker-{index}", f"rank {index} of 3 has sum 111")
    (tmp_path / "open").touch()

    assert reaching(cluster, "mended", "Completed", "Failed")["status"]["phase"] == "Completed"


@pytest.mark.parametrize(("clean", "serving"), [("Never", "2/2"), ("OnCompletion", "0/2")])
@pytest.mark.parametrize("manifest", ["job.yaml", "job-service.yaml"])
def test_the_table_tells_who_serves_on_when_the_trainers_are_done(cluster, home, manifest, clean, serving):
    name = f"{Path(manifest).stem}-{clean.lower()}"

    cluster.submit(example(f"13-paddle-ps/{manifest}", name, cleanPodPolicy=clean))
    reaching(cluster, name, "Completed", "Failed")
    if clean == "OnCompletion":
        for role in ("ps-0", "ps-1", "worker-0", "worker-1"):
            cluster.pod_gone(f"{name}-{role}")
        cluster.until(
            cluster.resource(VERSION, "PaddleJob"),
            name,
            lambda job: job is not None and job["status"]["ps"]["ready"] == "0/2",
        )

    for heading, line in shown(home, name):
        assert heading == "NAME STATUS MODE PS WORKER AGE"
        assert re.fullmatch(rf"{name} Completed PS {serving} 0/2 \d+s", line)
    assert len(processes(name)) == int(serving[0])
    running = [ran.pid for ran in processes(name)]
    cluster.do(cluster.client.delete(cluster.resource(VERSION, "PaddleJob"), name, "default"))
    wait_for_end(running)
