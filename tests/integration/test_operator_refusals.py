"""What the API server does not take: pods of a mistaken template, and names that others still hold."""

import json

import pytest

from trainmaster.engine import gang
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import EVENTS, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.jobs import KINDS, a_small
from trainmaster.testing.operation import an_api, conditions_of, job_of, operating, passing, quiet, set_phases, submit

INVALID = Fault(
    422, reason="Invalid", message='Pod "job-worker-1" is invalid: spec.containers[0].image: Required value'
)


def refusing(*names):
    """Every pod and Job of these names is refused."""

    def judge(method, path, body):
        is_create = method == "POST" and path.endswith(("/pods", "/jobs"))
        is_meant = is_create and (not names or json.loads(body)["metadata"]["name"] in names)
        return INVALID if is_meant else None

    return judge


def events(api, reason):
    return [event for event in api.objects(EVENTS) if event["reason"] == reason]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_whose_pods_are_refused_as_invalid_has_failed_with_the_servers_words(kind):
    api, job = an_api(), a_small(kind).manifest
    api.on_request(refusing())

    async def main():
        async with operating(api):
            submit(api, job)
            await passing(600)

    clock.run(main())

    failed = job_of(api, job)["status"]["conditions"][-1]
    assert (failed["type"], failed["status"]) == ("Failed", "True")
    assert failed["reason"] in (f"{kind}FailedValidation", f"{kind}Failed")
    assert failed["message"].endswith(f"the API server refuses its pods: {INVALID.message}")
    assert not api.objects(PODS)
    assert events(api, failed["reason"])


def test_pods_that_were_taken_go_when_those_of_another_role_are_refused():
    api, job = an_api(), a_small("PyTorchJob").manifest
    api.on_request(refusing("job-worker-0"))

    async def main():
        async with operating(api):
            submit(api, job)
            await passing(600)

    clock.run(main())

    assert conditions_of(api, job)[-1] == ("Failed", "True")
    assert not api.objects(PODS)


def test_a_running_job_is_not_failed_for_a_replacement_that_is_refused():
    api, job = an_api(), a_small("JAXJob", restart="ExitCode").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            api.on_request(refusing("job-worker-1"))
            set_phases(api, "Failed", 137, only="job-worker-1")
            await passing(600)

    clock.run(main())

    assert ("Failed", "True") not in conditions_of(api, job)
    assert [pod["metadata"]["name"] for pod in api.objects(PODS)] == ["job-worker-0"]
    assert events(api, "FailedCreatePod")


def test_what_a_deleted_job_of_the_same_name_left_is_waited_for_without_a_warning():
    api, job = an_api(), a_small("JAXJob").manifest
    old = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "name": "job", "uid": "old", "controller": True}
    meta = {"name": "job-worker-1", "namespace": "default", "ownerReferences": [old]}

    async def main():
        api.put(PODS, {"metadata": meta, "status": {"phase": "Running"}})
        async with operating(api):
            submit(api, job)
            await passing(5)
            assert "left over from the JAXJob job" in events(api, "WaitingForCleanup")[0]["message"]
            api.remove(PODS, "default", "job-worker-1")
            await passing(600)

    clock.run(main())

    assert [event["reason"] for event in api.objects(EVENTS) if event["type"] == "Warning"] == []
    assert len(api.objects(PODS)) == len(api.objects(SERVICES)) == 2


def test_what_another_kind_of_the_same_name_holds_is_not_taken_for_left_over():
    api, job = an_api(), a_small("PaddleJob").manifest
    other = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "name": "job",
        "uid": "o",
        "controller": True,
    }
    meta = {"name": "job-worker-0", "namespace": "default", "ownerReferences": [other]}

    async def main():
        api.put(PODS, {"metadata": meta, "status": {"phase": "Running"}})
        async with operating(api):
            submit(api, job)
            await passing(5)

    clock.run(main())

    assert not events(api, "WaitingForCleanup")
    assert "belongs to PaddleJob job" in events(api, "FailedCreatePod")[0]["message"]


def test_a_group_that_its_user_made_a_moment_before_us_serves():
    api, job = an_api(), a_small("JAXJob").manifest
    theirs = {
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"minMember": 1},
        "status": {"phase": "Inqueue"},
    }
    has_come: list[Json] = []

    def come_between(method, path, body):
        if method == "POST" and path.endswith("/podgroups") and not has_come:
            has_come.append(api.put(gang.VOLCANO, theirs))

    async def main():
        api.on_request(come_between)
        async with operating(api, gang_scheduler_name="volcano"):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    assert has_come
    assert len(api.objects(PODS)) == 2
    assert "ownerReferences" not in api.object(gang.VOLCANO, "default", "job")["metadata"]
    assert [event["reason"] for event in api.objects(EVENTS) if event["type"] == "Warning"] == []


def test_a_job_that_was_refused_is_removed_when_its_time_is_up():
    api, job = an_api(), a_small("JAXJob").policy(ttlSecondsAfterFinished=30).manifest
    job["spec"]["jaxReplicaSpecs"]["Wrker"] = job["spec"]["jaxReplicaSpecs"].pop("Worker")

    async def main():
        async with operating(api):
            submit(api, job)
            await passing(20)
            assert conditions_of(api, job)[-1] == ("Failed", "True")
            await passing(20)

    clock.run(main())

    with pytest.raises(LookupError):
        job_of(api, job)
