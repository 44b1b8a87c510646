"""Elastic Horovod, in an MPIJob whose workers come and go while it trains."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.e2e.mpibed import EXAMPLES, Gate, launcher_of, mpi_bed, variables
from tests.integration.bed import Bed, Json, container_of, processes

from trainmaster.objects.resource import CONFIG_MAPS

JOB = "horovod-elastic"
HOSTS = {"v1": "echo {pod}:1", "v2beta1": "echo {pod}.{job}.default.svc"}
"""How the script of the job names them; with v2beta1 it is for the launcher to say how many ranks each has."""

WAITING = {"launcherCreationPolicy": "WaitForWorkersReady"}

pytestmark = pytest.mark.timeout(1800)


def elastic_job(version: str, gate: Gate) -> Json:
    """The example's, with a program that trains until it is told to end."""
    job: Json = yaml.safe_load((EXAMPLES / "07-horovod" / "job-elastic.yaml").read_text())
    job["metadata"]["namespace"] = "default"
    if version == "v2beta1":
        job["apiVersion"] = "kubeflow.org/v2beta1"
        job["spec"] |= {"runPolicy": {"cleanPodPolicy": job["spec"].pop("cleanPodPolicy")}, **WAITING}
    for role in job["spec"]["mpiReplicaSpecs"].values():
        spec = role["template"]["spec"]
        spec["volumes"] = [{"name": "gate", "hostPath": {"path": str(gate.directory)}}]
        [container] = spec["containers"]
        container["image"] = "registry.test/horovod:1"
        container["env"] = variables(JOB, GATE="/gate")
        container["volumeMounts"] = [{"name": "gate", "mountPath": "/gate"}]
        if "args" in container:
            container["args"][-1] = "/programs/elastic.py"
            container["command"] += ["--slots-per-host", "1"] if version == "v2beta1" else []
    return job


def scale_by_cli(kubeconfig: Path, replicas: int) -> None:
    words = ["scale", f"mpijob/{JOB}", "--replicas", str(replicas), "--kubeconfig", str(kubeconfig)]
    subprocess.run([sys.executable, "-m", "trainmaster", *words], check=True, timeout=60)


def scale_by_subresource(cluster: Bed, replicas: int) -> None:
    jobs = cluster.resource("kubeflow.org/v1", "MPIJob")
    cluster.do(cluster.client.patch(jobs, JOB, {"spec": {"replicas": replicas}}, "default", "scale"))


def discovered(cluster: Bed, version: str, count: int) -> bool:
    """Once the script of the job names that many workers, the first ones."""
    hosts = [HOSTS[version].format(pod=f"{JOB}-worker-{index}", job=JOB) for index in range(count)]

    def is_told(found: Json | None) -> bool:
        return found is not None and found["data"]["discover_hosts.sh"].splitlines() == ["#!/bin/sh", *hosts]

    return cluster.until(CONFIG_MAPS, f"{JOB}-config", is_told) is not None


def started(cluster: Bed, version: str) -> str:
    """The launcher's pod."""
    return f"{JOB}-launcher" if version == "v1" else str(launcher_of(cluster, JOB)["metadata"]["name"])


@pytest.mark.parametrize("version", HOSTS)
def test_training_goes_on_from_two_to_three_to_one_workers_without_a_restart(tmp_path, version):
    (tmp_path / "gate").mkdir()
    gate = Gate(tmp_path / "gate")
    with mpi_bed(tmp_path, "horovod") as cluster:
        cluster.submit(elastic_job(version, gate))
        launcher = started(cluster, version)
        before = cluster.says(launcher, "step 10 loss")

        scale_by_cli(tmp_path / "cluster" / "kubeconfig", 3)
        found = [discovered(cluster, version, 3)]
        cluster.says(launcher, "rank 2 of 3 goes on")
        [begun] = re.findall(r"rank 2 of 3 goes on from step (\d+)", cluster.log(launcher))
        cluster.says(launcher, f"step {(int(begun) // 10 + 1) * 10} loss")
        scale_by_subresource(cluster, 1)
        found.append(discovered(cluster, version, 1))
        cluster.says(launcher, "rank 0 of 1 goes on")
        gate.open()
        result = cluster.finished("MPIJob", JOB)

        text, after = cluster.log(launcher), cluster.pod(launcher)
        assert (result, found) == ("Succeeded", [True, True]), text
        assert (after["metadata"]["uid"], container_of(after)["restartCount"]) == (before["metadata"]["uid"], 0)
        worlds = [
            (int(world), int(step)) for world, step in re.findall(r"rank 0 of (\d) goes on from step (\d+)", text)
        ]
        assert [world for world, _ in worlds] == [2, 3, 1], text
        assert 0 == worlds[0][1] < worlds[1][1] < worlds[2][1]
        [first] = re.findall(r"step 0 loss ([\d.]+)", text)
        [last] = re.findall(r"rank 0 of 1 ends with loss ([\d.]+)", text)
        assert float(last) < 0.1 * float(first), text
        for index in range(3):
            cluster.pod_gone(f"{JOB}-worker-{index}")
        assert processes(JOB) == []
