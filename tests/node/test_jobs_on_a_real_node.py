"""Jobs of five kinds as real containers on a real node: ranks meet under the names and addresses that they are told."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.node import jobs
from tests.node.conftest import manifests, timed

from trainmaster.operator.options import LEADER_ELECTION_ID

SUCCEEDED = "condition=Succeeded"
KINDS = (
    pytest.param(jobs.pytorch(), 3, id="PyTorchJob"),
    pytest.param(jobs.tensorflow(), 3, id="TFJob"),
    pytest.param(jobs.mpi("v1"), 2, id="MPIJob-v1"),
    pytest.param(jobs.mpi("v2beta1"), 2, id="MPIJob-v2beta1"),
    pytest.param(jobs.paddle(), 3, id="PaddleJob"),
    pytest.param(jobs.mindspore(), 4, id="MSJob"),
)


def named(job):
    group, _, version = job["apiVersion"].rpartition("/")
    return f"{job['kind'].lower()}s.{version}.{group}/{job['metadata']['name']}"


def pods_of(kubectl, job):
    prefix = job["metadata"]["name"] + "-"
    return [pod for pod in kubectl.get("pods")["items"] if pod["metadata"]["name"].startswith(prefix)]


def said(kubectl, job):
    """What the ranks wrote, of all pods of the job, in order."""
    logs = [kubectl("logs", pod["metadata"]["name"]) for pod in pods_of(kubectl, job)]
    lines = [line for log in logs for line in log.splitlines()]
    return sorted(line for line in lines if line.startswith("rank "))


@pytest.mark.parametrize(("job", "world"), KINDS)
def test_the_ranks_of_a_job_meet_and_add_up_and_the_job_succeeds(kubectl, operator, report, job, world):
    name = named(job)

    with timed(report, f"{job['kind']} {job['apiVersion']} succeeded"):
        kubectl.apply([job])
        kubectl.until(SUCCEEDED, name)

    lines = said(kubectl, job)
    report += [f"           {line}" for line in lines]
    assert len(lines) == world
    assert all(line.endswith(f"sum {world * (world + 1) // 2}") for line in lines)


def leaders(kubectl, namespace):
    """The pod that leads now, and whoever comes after it."""
    for identity in kubectl.watch(".spec.holderIdentity", "lease", LEADER_ELECTION_ID, f"--namespace={namespace}"):
        yield identity.rpartition("_")[0]


def processes_of(pod):
    """By the control group that the kubelet put them into."""
    group = f"pod{pod['metadata']['uid']}/"
    for directory in Path("/proc").glob("[0-9]*"):
        if group in (directory / "cgroup").read_text():
            yield int(directory.name)


def test_a_job_goes_on_and_ends_well_under_another_replica_when_the_leader_is_killed(kubectl, operator, report):
    job = jobs.pytorch("survivor", "/tmp/go")
    kubectl.apply([job])
    kubectl.until("condition=Running", named(job))
    before = {pod["metadata"]["uid"] for pod in pods_of(kubectl, job)}
    watched = leaders(kubectl, operator)
    first = next(watched)

    with timed(report, "another replica led after the leader had been killed"):
        for process in processes_of(kubectl.get("pod", first, f"--namespace={operator}")):
            os.kill(process, signal.SIGKILL)
        kubectl("delete", "pod", first, f"--namespace={operator}", "--grace-period=0", "--force")
        second = next(leader for leader in watched if leader != first)
    watched.close()
    kubectl("exec", "survivor-master-0", "--", "touch", "/tmp/go")
    kubectl.until(SUCCEEDED, named(job))

    # The one that stood by, or the one that the Deployment made meanwhile: whoever asks first when the lease is free.
    replicas = {pod["metadata"]["name"] for pod in kubectl.get("pods", f"--namespace={operator}")["items"]}
    pods = pods_of(kubectl, job)
    assert second in replicas
    assert {pod["metadata"]["uid"] for pod in pods} == before
    assert len(pods) == 3
    assert all(status["restartCount"] == 0 for pod in pods for status in pod["status"]["containerStatuses"])
    kubectl("rollout", "status", "deployment/trainmaster", f"--namespace={operator}", "--timeout=120s")


def test_a_job_fails_when_its_rank_does_and_says_how(kubectl, operator):
    job = jobs.failing()

    kubectl.apply([job])
    kubectl.until("condition=Failed", named(job))

    events = kubectl.watch(".message", "events", "--field-selector=involvedObject.name=failing,reason=ExitedWithCode")
    assert next(events) == "Pod: default.failing-master-0 exited with code 3"
    events.close()


def test_a_suspended_job_gives_up_its_pods_and_succeeds_when_resumed(kubectl, operator):
    job = jobs.pytorch("pausing", "/tmp/go")
    kubectl.apply([job])
    kubectl.until("condition=Running", named(job))

    suspend(kubectl, job, True)
    kubectl.until("condition=Suspended", named(job))
    kubectl.until_gone("pod", "--selector=training.kubeflow.org/job-name=pausing")
    suspend(kubectl, job, False)
    kubectl.until("condition=Running", named(job))
    kubectl("exec", "pausing-master-0", "--", "touch", "/tmp/go")
    kubectl.until(SUCCEEDED, named(job))

    assert len(said(kubectl, job)) == 3


def suspend(kubectl, job, value):
    kubectl("patch", named(job), "--type=merge", "--patch", json.dumps({"spec": {"runPolicy": {"suspend": value}}}))


def test_a_deleted_job_takes_its_pods_and_services_with_it(kubectl, operator):
    job = jobs.pytorch("doomed", "/tmp/never")
    kubectl.apply([job])
    kubectl.until("condition=Running", named(job))

    kubectl("delete", named(job))

    for kind in ("pod", "service"):
        kubectl.until_gone(kind, "--selector=training.kubeflow.org/job-name=doomed")


def test_an_upgrade_to_webhooks_rolls_out_and_refuses_what_cannot_run(kubectl, operator, report):
    job = jobs.pytorch("impossible")
    with timed(report, "the operator was upgraded to one with admission webhooks"):
        kubectl.apply([*manifests("--webhooks=validating", "--webhook-failure-policy=Fail")])
        kubectl("rollout", "status", "deployment/trainmaster", f"--namespace={operator}", "--timeout=120s")
        until_answered(kubectl, job)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = 2

    with pytest.raises(AssertionError, match="is invalid") as refused:
        kubectl.apply([job])

    report += [f"           {line}" for line in str(refused.value).splitlines()[1:]]
    assert "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1" in str(refused.value)


def until_answered(kubectl, job):
    """With `Fail`, nothing gets in until the API server reaches the webhook and trusts it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return kubectl.apply([job], "--dry-run=server")
        except AssertionError as error:
            if "failed calling webhook" not in str(error) or time.monotonic() > deadline:
                raise
