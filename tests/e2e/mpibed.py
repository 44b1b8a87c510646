"""MPI jobs with a real MPI on the embedded cluster: ranks that add up until a gate is opened, and ways to kill them.

with mpi_bed(tmp_path, "openmpi") as cluster:
    cluster.submit(mpi_job("v1", "sum", gate))
    cluster.says("sum-launcher", "have sum 11")
    gate.open()
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from tests.e2e.examples import LIMIT
from tests.integration.bed import MARK, Bed, Json, Ran, bed, processes
from tools.environments import environment

from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
from trainmaster.objects.resource import JOBS, PODS

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
MPIS = ("openmpi", "openmpi5", "mpich", "intelmpi")
IMPLEMENTATIONS = {"mpich": "MPICH", "intelmpi": "Intel"}
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


@dataclass(frozen=True)
class Gate:
    """A directory that ranks look into; they end when it is open."""

    directory: Path

    def open(self) -> None:
        (self.directory / "open").touch()


def opened(directory: Path) -> Gate:
    """Open from the start: ranks meet once, and end."""
    gate = Gate(directory)
    gate.open()
    return gate


@contextlib.contextmanager
def mpi_bed(
    directory: Path,
    *names: str,
    sandbox: Literal["namespaces", "ports"] = "namespaces",
    sshd: Literal["real", "builtin"] = "builtin",
    files: Mapping[str, str] | None = None,
    domain: str = "",
) -> Iterator[Bed]:
    """A cluster where the image registry.test/NAME is the environment of that name, with our programs in it."""
    files = {"/programs": str(PROGRAMS), "/app": str(EXAMPLES / "07-horovod"), **(files or {})}
    images = [
        {"match": f"registry.test/{name}", "python": str(environment(name)), "files": files, "sshd": sshd}
        for name in names
    ]
    config = directory / "trainmaster.yaml"
    config.write_text(yaml.safe_dump({"images": images}))
    operator = replace(embedded_operator(), cluster_domain=domain)
    options = EmbeddedOptions(str(directory / "cluster"), config=str(config), sandbox=sandbox, operator=operator)
    with bed(options) as cluster:
        cluster.patience = LIMIT
        yield cluster


def mpi_job(
    version: Literal["v1alpha2", "v1", "v2beta1"],
    name: str,
    gate: Gate,
    *,
    image: str = "openmpi",
    slots: int = 1,
    base: int = 1,
    launcher: str = "",
    worker: str = "",
    policy: Json | None = None,
) -> Json:
    """Two workers whose ranks run `ranks.py`; `launcher` and `worker` are restart policies."""
    container: Json = {
        "name": "mpi",
        "image": f"registry.test/{image}:1",
        "env": variables(name, BASE=str(base), GATE="/gate"),
        "volumeMounts": [{"name": "gate", "mountPath": "/gate"}],
    }
    mpirun = {"command": ["mpirun", "-n", str(2 * slots), "python", "/programs/ranks.py"]}
    volumes = [{"name": "gate", "hostPath": {"path": str(gate.directory)}}]

    place = {"name": "PLACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [*container["env"], place]  # the workers' alone: hydra gives its own variables to all ranks

    def role(replicas: int, restart: str, **own: Any) -> Json:
        spec = {"containers": [{**container, **own}], "volumes": volumes, "terminationGracePeriodSeconds": 5}
        return {"replicas": replicas, "template": {"spec": spec}, **({"restartPolicy": restart} if restart else {})}

    implementation = IMPLEMENTATIONS.get(image, "OpenMPI")
    second = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiImplementation": implementation}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "slotsPerWorker": slots,
            "runPolicy": {"cleanPodPolicy": "Running", **(policy or {})},
            **(second if version == "v2beta1" else {}),
            "mpiReplicaSpecs": {"Launcher": role(1, launcher, **mpirun), "Worker": role(2, worker, env=env)},
        },
    }


def variables(job: str, **more: str) -> list[Json]:
    """By which everything that the job starts is found on this machine."""
    return [{"name": name, "value": value} for name, value in {"MARK": MARK, "JOB": job, **more}.items()]


def rank_of(job: str, number: int) -> int:
    """The process that is this rank."""
    [found] = [ran for ran in processes(job) if str(number) in map(ran.env.get, RANK_VARIABLES)]
    return found.pid


def mpirun_of(job: str) -> int:
    [found] = [ran for ran in processes(job) if _program(ran).startswith(("mpirun", "orterun", "prterun"))]
    return found.pid


def _program(ran: Ran) -> str:
    return Path(Path(f"/proc/{ran.pid}/cmdline").read_bytes().decode().partition("\0")[0]).name


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def launcher_of(cluster: Bed, job: str, failed: int = 0) -> Json:
    """The pod that the Job of a v2beta1 launcher runs after so many failed ones; its name is chosen at random."""

    def is_ready(found: Json | None) -> bool:
        status = (found or {}).get("status") or {}
        return (status.get("ready"), status.get("failed", 0)) == (1, failed)

    cluster.until(JOBS, f"{job}-launcher", is_ready)
    pods = [pod for name, pod in cluster.pods(job).items() if name.startswith(f"{job}-launcher-")]
    [running] = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    return running


def evict(cluster: Bed, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    cluster.do(cluster.client.request("POST", PODS.path("default", pod, "eviction"), body=json.dumps(body).encode()))
