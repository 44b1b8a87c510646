"""Jobs of every kind on a real API server with RBAC on; the kubelet's part is played by the tests."""

import asyncio
import time

import pytest

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.errors import Invalid, NotFound
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import EVENTS, PODS, SERVICES
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, SERVED, a_small, replicas_of
from trainmaster.testing.scene import a_job

PATIENCE = 90.0
"""Seconds. The garbage collector looks for new kinds only every half minute."""


def resource_of(job):
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    return found[1]


class Cluster:
    def __init__(self, client):
        self.client = client

    async def submit(self, job):
        metadata = {key: value for key, value in job["metadata"].items() if key != "uid"}
        return await self.client.create(resource_of(job), {**job, "metadata": metadata})

    async def job(self, job):
        return await self.client.get(resource_of(job), job["metadata"]["name"], job["metadata"]["namespace"])

    async def pods(self, job):
        listed = await self.client.list(PODS, "default", label_selector=f"training.kubeflow.org/job-name={job}")
        return {pod["metadata"]["name"]: pod for pod in listed.items}

    async def set_phase(self, name, phase, exit_code=None):
        """As a kubelet reports it."""
        container = (await self.client.get(PODS, name, "default"))["spec"]["containers"][0]
        state = {"terminated": {"exitCode": exit_code}} if exit_code is not None else {"running": {}}
        status = {
            "name": container["name"],
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": state,
        }
        body = {"status": {"phase": phase, "containerStatuses": [status]}}
        await self.client.patch(PODS, name, body, "default", "status")

    async def conditions(self, job):
        status = (await self.job(job)).get("status", {})
        return [(c["type"], c["status"]) for c in status.get("conditions", ())]

    async def until(self, check, what):
        deadline = time.monotonic() + PATIENCE
        while not await check():
            assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
            await asyncio.sleep(0.05)

    async def until_pods(self, job, count):
        async def there():
            return len(await self.pods(job)) == count

        await self.until(there, f"{count} pods of {job}")

    async def until_last(self, job, condition):
        async def there():
            return (await self.conditions(job))[-1:] == [(condition, "True")]

        await self.until(there, f"{job['kind']} to be {condition}")


def on(plane, body):
    async def main():
        client = Client(HttpTransport(kubeconfig.load(str(plane.kubeconfig))))
        try:
            await body(Cluster(client))
        finally:
            await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_lives_from_submission_to_success(plane, operator, kind):
    name = f"life-{kind.lower()}"
    job = a_small(kind, name).manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods(name, sum(ROLES[kind].values()))
        services = await cluster.client.list(
            SERVICES, "default", label_selector=f"training.kubeflow.org/job-name={name}"
        )
        served = replicas_of(kind, SERVED.get(kind, ROLES[kind]), name)
        assert sorted(item["metadata"]["name"] for item in services.items) == served
        for pod in await cluster.pods(name):
            await cluster.set_phase(pod, "Running")
        await cluster.until_last(job, "Running")
        for pod in await cluster.pods(name):
            if LEADER.get(kind, "") in pod:
                await cluster.set_phase(pod, "Succeeded", 0)
        await cluster.until_last(job, "Succeeded")

    on(plane, life)


def test_the_scheduler_of_an_msjob_is_met_at_the_address_that_the_server_gave(plane, operator):
    job = a_small("MSJob", "meeting").manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods("meeting", 3)
        address = (await cluster.client.get(SERVICES, "meeting-scheduler-0", "default"))["spec"]["clusterIP"]
        pods = await cluster.pods("meeting")
        hosts = {name: pod["spec"]["containers"][0]["env"][0].get("value") for name, pod in pods.items()}
        assert address not in ("", "None")
        assert hosts == {"meeting-scheduler-0": None, "meeting-worker-0": address, "meeting-worker-1": address}

    on(plane, life)


@pytest.mark.parametrize(
    "changes",
    [{"apiVersion": "xgboostjob.kubeflow.org/v1", "kind": "XGBoostJob"}, {"kind": "MXNetJob"}],
    ids=["group", "kind"],
)
def test_old_names_of_kinds_are_served(plane, operator, changes):
    name = f"old-{changes['kind'].lower()}"
    job = {**a_small("XGBoostJob" if "apiVersion" in changes else "MXJob", name).manifest, **changes}

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods(name, 3 if "apiVersion" in changes else 4)

    on(plane, life)


def test_a_retryable_exit_replaces_the_pod_and_a_permanent_one_fails_the_job(plane, operator):
    job = a_small("JAXJob", "exits", "ExitCode").manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods("exits", 2)
        first = (await cluster.pods("exits"))["exits-worker-1"]["metadata"]["uid"]
        await cluster.set_phase("exits-worker-1", "Failed", 137)

        async def replaced():
            pods = await cluster.pods("exits")
            return "exits-worker-1" in pods and pods["exits-worker-1"]["metadata"]["uid"] != first

        await cluster.until(replaced, "a new pod")
        assert (await cluster.job(job))["status"]["attempts"] == {"worker-1": 1}
        await cluster.set_phase("exits-worker-1", "Failed", 1)
        await cluster.until_last(job, "Failed")

    on(plane, life)


def test_the_api_server_refuses_wrong_types_and_keeps_flat_fields(plane, operator):
    good = a_small("TFJob", "flat").spec(cleanPodPolicy="All", cleanPolicy="typo").manifest
    bad = a_small("TFJob", "bad-type").scaled("Worker", "two").manifest  # type: ignore[arg-type]  # on purpose

    async def life(cluster):
        stored = await cluster.submit(good)
        assert stored["spec"]["cleanPodPolicy"] == "All"
        assert stored["spec"]["cleanPolicy"] == "typo"
        with pytest.raises(Invalid, match=r"spec\.tfReplicaSpecs\.Worker\.replicas"):
            await cluster.submit(bad)

    on(plane, life)


def test_an_invalid_job_is_told_all_its_problems(plane, operator):
    job = a_job("PyTorchJob", "invalid").role("Master", 2).manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_last(job, "Failed")

        async def told():
            events = (await cluster.client.list(EVENTS, "default")).items
            return any(e["reason"] == "PyTorchJobFailedValidation" and "must be 1" in e["message"] for e in events)

        await cluster.until(told, "the event")
        assert not await cluster.pods("invalid")

    on(plane, life)


def test_suspending_and_resuming(plane, operator):
    scene = a_small("PyTorchJob", "pause")
    job = scene.manifest
    resource = scene.framework.resource

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods("pause", 3)
        await cluster.client.patch(resource, "pause", {"spec": {"runPolicy": {"suspend": True}}}, "default")
        await cluster.until_last(job, "Suspended")
        await cluster.until_pods("pause", 0)
        await cluster.client.patch(resource, "pause", {"spec": {"runPolicy": {"suspend": False}}}, "default")
        await cluster.until_pods("pause", 3)

    on(plane, life)


def test_scale_subresource_drives_the_workers(plane, operator):
    scene = a_small("JAXJob", "scaled")

    async def life(cluster):
        await cluster.submit(scene.manifest)
        await cluster.until_pods("scaled", 2)
        await cluster.client.patch(scene.framework.resource, "scaled", {"spec": {"replicas": 4}}, "default", "scale")
        await cluster.until_pods("scaled", 4)

    on(plane, life)


def test_a_finished_job_goes_with_all_it_had_when_its_time_is_over(plane, operator):
    job = a_small("JAXJob", "ttl").policy(ttlSecondsAfterFinished=1).manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods("ttl", 2)
        for pod in await cluster.pods("ttl"):
            await cluster.set_phase(pod, "Succeeded", 0)

        async def gone():
            try:
                await cluster.job(job)
            except NotFound:
                return not await cluster.pods("ttl")
            return False

        await cluster.until(gone, "the job and its pods to go")

    on(plane, life)


def test_the_rights_that_were_granted_sufficed(operator):
    """Runs last: of all that the operator asked in the lives above, nothing was forbidden."""
    assert not [request for code, request in operator if code == 403]
    assert len(operator) > 100
