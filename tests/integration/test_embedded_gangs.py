"""Gangs on the embedded cluster: all of a job's pods or none, whoever made the PodGroup, and no deadlock."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.integration.bed import CONFIG, IMAGE, MARK, Bed, Json, a_job, bed, container_of, holding, processes

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.objects import quantity
from trainmaster.objects.resource import Resource

pytestmark = pytest.mark.sandbox

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
PLUGINS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    """As its users have it: PodGroups are theirs to make."""
    with bed() as running:
        yield running
    assert processes() == []


@pytest.fixture(scope="module", params=["volcano", "scheduler-plugins-scheduler"])
def gang_cluster(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """With an operator that makes a PodGroup for every job."""
    options = EmbeddedOptions(config=str(CONFIG))
    operator = replace(options.operator, gang_scheduler_name=request.param)
    with bed(replace(options, operator=operator)) as running:
        yield running


def share(cluster: Bed, part: float) -> Json:
    """A request for that part of the machine's processors."""
    [node] = cluster.do(cluster.client.list(NODES)).items
    whole = quantity.parse(node["status"]["allocatable"]["cpu"])
    return {"resources": {"requests": {"cpu": f"{int(whole * 1000 * part)}m"}}}


def a_group(name: str, members: int) -> Json:
    return {
        "apiVersion": GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members},
    }


def in_group(name: str) -> Json:
    return {"annotations": {"scheduling.k8s.io/group-name": name}}


def test_a_gang_that_does_not_fit_waits_and_says_why(cluster):
    job = a_job(
        "PyTorchJob",
        "huge",
        "exchange.py",
        pod={"schedulerName": "volcano"},
        container=share(cluster, 0.6),
        metadata=in_group("huge"),
        replicas={"Master": 1, "Worker": 1},
    )

    cluster.submit(a_group("huge", 2), job)

    told = cluster.warning("huge-master-0", "cpu")
    assert any(character.isdigit() for character in told), told
    assert all(not pod["spec"].get("nodeName") for pod in cluster.pods("huge").values())
    assert processes("huge") == []
    waiting = cluster.pod("huge-worker-0", lambda pod: bool(pod["status"].get("conditions")))
    assert (waiting["status"]["phase"], waiting["status"]["conditions"][0]["reason"]) == ("Pending", "Unschedulable")


def test_two_gangs_that_fit_only_one_after_the_other_both_end(gang_cluster):
    """Four of the six pods fit. Without gangs two of each job could start, and wait for the third for ever."""
    quarter = share(gang_cluster, 0.25)
    names = ("left", "right")

    gang_cluster.submit(
        *(
            a_job(
                "PyTorchJob",
                name,
                "exchange.py",
                policy={"cleanPodPolicy": "None"},
                container=quarter,
                replicas={"Master": 1, "Worker": 2},
            )
            for name in names
        )
    )

    assert [gang_cluster.finished("PyTorchJob", name) for name in names] == ["Succeeded", "Succeeded"]
    spans = sorted(_span(gang_cluster, name) for name in names)
    assert spans[0][1] <= spans[1][0], "both had their places at the same time, though only one fits"


def _span(cluster: Bed, job: str) -> tuple[str, str]:
    """When the first of the job's containers began, and when two had ended: beside the last one there is room again."""
    pods = [cluster.pod(name, lambda pod: "terminated" in container_of(pod)["state"]) for name in cluster.pods(job)]
    ended = [container_of(pod)["state"]["terminated"] for pod in pods]
    return min(state["startedAt"] for state in ended), sorted(state["finishedAt"] for state in ended)[1]


def test_a_gang_that_waits_can_be_replaced_by_one_that_fits(gang_cluster):
    jobs = gang_cluster.resource("kubeflow.org/v1", "JAXJob")
    place = share(gang_cluster, 0.4)
    gang_cluster.submit(a_job("JAXJob", "shrunk", "exchange.py", container=place, replicas={"Worker": 3}))
    gang_cluster.job("JAXJob", "shrunk", lambda job: "Created" in holding(job))
    assert processes("shrunk") == []

    gang_cluster.do(gang_cluster.client.delete(jobs, "shrunk", "default"))
    gang_cluster.until(jobs, "shrunk", lambda job: job is None)
    gang_cluster.submit(a_job("JAXJob", "shrunk", "exchange.py", container=place, replicas={"Worker": 2}))

    assert gang_cluster.finished("JAXJob", "shrunk") == "Succeeded"


def waiting(replicas: int) -> Json:
    container = {
        "name": "mindspore",
        "image": IMAGE,
        "command": ["python", "-c", "import signal; print('here', flush=True); signal.pause()"],
        "env": [{"name": "MARK", "value": MARK}],
    }
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


OLD = {
    "MSJob": ("mindspore.gitee.com/v1", {"msReplicaSpecs": {"Scheduler": waiting(1), "Worker": waiting(2)}}),
    "PaddleJob": (
        "batch.paddlepaddle.org/v1",
        {"ps": waiting(1), "worker": waiting(2), "cleanPodPolicy": "Always"},
    ),
}


@pytest.mark.parametrize("kind", OLD)
def test_the_group_of_a_job_is_made_for_all_its_replicas_and_goes_when_it_has_ended(gang_cluster, kind, request):
    version, spec = OLD[kind]
    name, resource = kind.lower(), gang_cluster.resource(version, kind)
    groups = GROUPS if request.node.callspec.params["gang_cluster"] == "volcano" else PLUGINS
    metadata = {"name": name, "namespace": "default"}

    gang_cluster.submit({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    gang_cluster.until(resource, name, lambda job: job is not None and "Running" in holding(job))
    group = gang_cluster.do(gang_cluster.client.get(groups, name, "default"))
    gang_cluster.says(f"{name}-worker-1", "here")
    [victim] = processes(pod=f"{name}-worker-1")
    os.kill(victim.pid, signal.SIGKILL)

    gang_cluster.until(resource, name, lambda job: job is not None and "Failed" in holding(job))
    gang_cluster.until(groups, name, lambda held: held is None)
    assert group["spec"]["minMember"] == 3
    assert [owner["kind"] for owner in group["metadata"]["ownerReferences"]] == [kind]
