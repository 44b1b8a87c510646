"""Jobs that older operators have started go on under ours: nothing is deleted, restarted or made twice."""

import json

import pytest
from tests.integration.oldoperators import A_WHILE, PASTS, STARTED, taken_over

from trainmaster.objects.resource import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.hands import finish
from trainmaster.testing.operation import an_api, job_of, operating, passing, quiet

KINDS = (PODS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, JOBS)


def identities(objects):
    """What there is, and that it is still the same."""
    return {(kind.kind, item["metadata"]["name"]): item["metadata"]["uid"] for kind, item in objects}


def specs(objects):
    return {item["metadata"]["name"]: item["spec"] for kind, item in objects if kind == PODS}


def statuses(api):
    """Every status that was written."""
    return [json.loads(request.body)["status"] for request in api.sent if request.path.endswith("/status")]


def is_running(status):
    conditions = status.get("conditions", ())
    said = [condition["type"] for condition in conditions if condition["status"] == "True"]
    return status.get("phase", "Running") == "Running" and ("phase" in status or said[-1] == "Running")


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_every_object_stays_and_nothing_is_made_twice(make):
    past = make()

    api = taken_over(past)

    held = [(kind, item) for kind in KINDS for item in api.objects(kind)]
    old, new = identities(past.objects), identities(held)
    assert {key: new.get(key) for key in old} == old
    assert new.keys() - old.keys() == past.gains
    assert specs(held) == specs(past.objects)
    assert not [path for method, path in api.requests if method == "DELETE"]


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_the_status_is_carried_on(make):
    past = make()

    api = taken_over(past)

    held = job_of(api, past.job)["status"]
    assert held["startTime"] == STARTED
    assert is_running(held)
    assert all(is_running(status) and status["startTime"] == STARTED for status in statuses(api))
    old = [condition["type"] for condition in past.job["status"].get("conditions", ())]
    assert [c["type"] for c in held.get("conditions", ())][: len(old)] == old


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_once_taken_over_a_job_costs_nothing(make):
    settled = []

    async def wait_on(api):
        settled.extend(api.writes())
        await passing(A_WHILE)

    api = taken_over(make(), wait_on)

    assert api.writes() == settled


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_the_job_ends_as_if_one_operator_had_run_it_all(make):
    past = make()

    async def end(api):
        finish(api, past.decisive)
        await quiet(api)

    api = taken_over(past, end)

    held = job_of(api, past.job)["status"]
    assert held["startTime"] == STARTED
    assert held["completionTime"]
    assert held["conditions"][-1]["type"] == "Succeeded"
    assert held.get("phase", "Completed") == "Completed"


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_no_event_tells_of_pods_that_were_there_before(make):
    api = taken_over(make())

    told = [event["message"] for event in api.objects(EVENTS) if event["reason"] == "SuccessfulCreatePod"]
    assert told == []


def test_the_keys_of_a_running_mpi_job_are_not_exchanged():
    past = PASTS["MPIJob v2beta1 of mpi-operator 0.8"]()

    api = taken_over(past)

    secret = next(body for resource, body in past.objects if resource == SECRETS)
    assert api.object(SECRETS, "default", secret["metadata"]["name"])["data"] == secret["data"]


def test_the_ports_of_a_running_paddle_job_are_not_exchanged():
    past = PASTS["PaddleJob of paddle-operator"]()

    api = taken_over(past)

    [config] = api.objects(CONFIG_MAPS)
    assert config["data"]["PADDLE_PORT"] == "41234"


def test_the_finalizer_of_paddle_operator_holds_no_job_that_is_deleted():
    past = PASTS["PaddleJob of paddle-operator"]()
    past.job["metadata"]["deletionTimestamp"] = STARTED

    api = taken_over(past)

    with pytest.raises(KeyError):
        job_of(api, past.job)


@pytest.mark.parametrize("make", PASTS.values(), ids=PASTS)
def test_of_a_job_whose_status_is_refused_its_user_hears_once_and_its_objects_stay(make):
    past, api = make(), an_api()
    del past.job["status"]
    refusal = Fault(422, "Invalid", "spec.runPolicy.ttlSecondsAfterFinished: Invalid value: -1")
    api.on_request(lambda method, path, body: refusal if path.endswith("/status") else None)

    async def main():
        past.put(api)
        async with operating(api):
            await passing(A_WHILE)

    clock.run(main())

    told = [event for event in api.objects(EVENTS) if event["reason"] == "FailedUpdateStatus"]
    assert [event["type"] for event in told] == ["Warning"]
    assert "ttlSecondsAfterFinished: Invalid value: -1" in told[0]["message"]
    held = identities((kind, item) for kind in KINDS for item in api.objects(kind))
    assert held == identities(past.objects)
