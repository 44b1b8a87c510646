"""An MPIJob whose policy asks for more than there is: it waits, says so, and runs once the policy is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.integration.bed import MARK, Bed, Json, bed, holding, processes

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.objects.resource import Resource

pytestmark = pytest.mark.sandbox

GROUPS = {
    "volcano": Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
    "scheduler-plugins-scheduler": Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
}
TOO_MUCH = "100000"


@pytest.fixture(scope="module", params=GROUPS)
def gangs(request: pytest.FixtureRequest) -> Iterator[tuple[Bed, Resource]]:
    """A cluster whose operator makes groups of that kind for every job."""
    options = EmbeddedOptions()
    operator = replace(options.operator, gang_scheduler_name=request.param)
    with bed(replace(options, operator=operator)) as running:
        yield running, GROUPS[request.param]
    assert processes() == []


def greedy(version: str, name: str) -> Json:
    """Nothing that its pods ask for would be too much."""
    env = [{"name": "MARK", "value": MARK}, {"name": "JOB", "value": name}]

    def role(replicas: int, command: list[str]) -> Json:
        container = {"name": "mpi", "image": "any", "command": command, "env": env}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 2}
        return {"replicas": replicas, "template": {"spec": spec}}

    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": {"schedulingPolicy": {"minResources": {"cpu": TOO_MUCH}}},
            "mpiReplicaSpecs": {"Launcher": role(1, ["sleep", "1000"]), "Worker": role(2, ["sleep", "1000"])},
        },
    }


def refusal(cluster: Bed, groups: Resource, job: str) -> str:
    """Why nothing is placed: Volcano lets no pods be made and tells it of the group, the other tells it of the pods."""

    def is_refused(group: Json | None) -> bool:
        return bool(group and "Unschedulable" in str(group.get("status")))

    if groups != GROUPS["volcano"]:
        return cluster.warning(f"{job}-worker-0", "together")
    group = cluster.until(groups, job, is_refused)
    assert group is not None
    return str(group["status"]["conditions"][-1]["message"])


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_a_job_waits_for_the_resources_that_its_policy_demands_and_runs_once_it_demands_none(gangs, version):
    cluster, groups = gangs
    jobs, name = cluster.resource("kubeflow.org/v1", "MPIJob"), f"greedy-{version}"
    cluster.submit(greedy(version, name))
    told = refusal(cluster, groups, name)
    phases = {pod["status"]["phase"] for pod in cluster.pods(name).values()}
    had = (processes(name), holding(cluster.job("MPIJob", name)))

    cluster.do(cluster.client.patch(jobs, name, {"spec": {"runPolicy": {"schedulingPolicy": None}}}, "default"))
    cluster.job("MPIJob", name, lambda job: "Running" in holding(job))

    assert f"{TOO_MUCH} cpu" in told
    assert phases <= {"Pending"}
    assert had == ([], {"Created"})
    group = cluster.do(cluster.client.get(groups, name, "default"))
    assert TOO_MUCH not in str(group["spec"])
