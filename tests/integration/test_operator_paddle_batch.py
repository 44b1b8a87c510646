"""Jobs of paddle-operator under our operator, as users meet them."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.kube.client import Client
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.jobs import a_small
from trainmaster.testing.operation import an_api, job_of, operating, passing, quiet, set_phases, submit


def names(api: FakeApi, resource=PODS) -> list[str]:
    return sorted(item["metadata"]["name"] for item in api.objects(resource))


def give_addresses(api: FakeApi, first: int = 1) -> None:
    """Every pod that has none gets one."""
    for number, pod in enumerate(api.objects(PODS), start=first):
        if not pod["status"].get("podIP"):
            api.put(PODS, {**pod, "status": {"phase": "Pending", "podIP": f"10.0.0.{number}"}})


def data_of(api: FakeApi) -> dict[str, str]:
    return dict(api.object(CONFIG_MAPS, "default", "job")["data"])


def row(api: FakeApi, job) -> tuple[str, ...]:
    """What `kubectl get` shows."""
    status = job_of(api, job)["status"]
    return (status["phase"], status["mode"], status.get("ps", {}).get("ready", ""), status["worker"]["ready"])


def test_a_job_goes_from_its_first_pod_through_the_gate_to_its_end():
    api, job = an_api(), a_paddle(ps=2, worker=2, withGloo=1, cleanPodPolicy="Never").manifest
    shown = []

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            shown.append((row(api, job), names(api, CONFIG_MAPS)))
            give_addresses(api)
            await quiet(api)
            shown.append((row(api, job), names(api, CONFIG_MAPS)))
            set_phases(api, "Running")
            await quiet(api)
            shown.append((row(api, job), names(api, CONFIG_MAPS)))
            set_phases(api, "Succeeded", 0, only="worker")
            await quiet(api)
            shown.append((row(api, job), names(api, CONFIG_MAPS)))

    clock.run(main())

    assert shown == [
        (("Pending", "PS", "0/2", "0/2"), []),
        (("Pending", "PS", "0/2", "0/2"), ["job"]),
        (("Running", "PS", "2/2", "2/2"), ["job"]),
        (("Completed", "PS", "2/2", "0/2"), ["job"]),
    ]
    assert data_of(api)["PADDLE_TRAINERS"] == "10.0.0.3,10.0.0.4"
    assert len(names(api, SERVICES)) == 4


def test_both_kinds_of_paddle_job_run_side_by_side():
    api = an_api()
    batch, kubeflow = a_paddle(worker=1).meta(name="batch").manifest, a_small("PaddleJob", "flow").manifest

    async def main():
        async with operating(api):
            submit(api, batch)
            submit(api, kubeflow)
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert row(api, batch)[0] == "Completed"
    assert "phase" not in job_of(api, kubeflow)["status"]
    assert job_of(api, kubeflow)["status"]["conditions"][-1]["type"] == "Succeeded"


def test_the_misspelt_policy_of_the_manual_is_named_in_a_warning_and_the_job_runs():
    api, job = an_api(), a_paddle(worker=2, cleanPolicy="OnCompletion").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    [event] = [event for event in api.objects(EVENTS) if event["type"] == "Warning"]
    assert event["reason"] == "UnknownField"
    assert "spec.cleanPolicy" in event["message"]
    assert "did you mean cleanPodPolicy?" in event["message"]
    assert event["source"]["component"] == "paddlejob-controller"
    assert len(names(api)) == 2


def test_events_name_the_kind_and_the_name_of_what_was_made():
    api, job = an_api(), a_paddle(worker=1).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    told = {(event["reason"], event["message"]) for event in api.objects(EVENTS)}
    assert ("SuccessfulCreatePod", "Created pod: job-worker-0; service: job-worker-0") in told


def config_map_of(uid: str = "") -> dict[str, object]:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": uid, "controller": True}] if uid else []
    return {"metadata": {"name": "job", "namespace": "default", "ownerReferences": owners}, "data": {"A": "b"}}


@pytest.mark.parametrize("uid", ["", "of-another"], ids=["a user's", "another object's"])
def test_no_pod_is_made_while_the_name_of_its_configmap_is_anothers(uid):
    api, job = an_api(), a_paddle(worker=2).manifest
    pods = []

    async def main():
        api.put(CONFIG_MAPS, config_map_of(uid))
        async with operating(api):
            submit(api, job)
            await quiet(api)
            pods.append(names(api))
            api.remove(CONFIG_MAPS, "default", "job")
            await passing(1000)
            pods.append(names(api))

    clock.run(main())

    assert pods == [[], ["job-worker-0", "job-worker-1"]]
    [event] = [event for event in api.objects(EVENTS) if event["reason"] == "FailedCreateConfigMap"]
    assert 'configmaps "job" already exists' in event["message"]
    assert "rename the job, or remove that object" in event["message"]
    assert job_of(api, job)["status"]["phase"] == "Pending"


def test_an_elastic_job_needs_no_configmap_and_starts_beside_anothers():
    api, job = an_api(), a_paddle(worker=2, elastic=1).manifest

    async def main():
        api.put(CONFIG_MAPS, config_map_of())
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    assert names(api) == ["job-worker-0", "job-worker-1"]


def test_a_pod_deleted_by_hand_comes_back_through_a_gate_that_knows_its_new_address():
    api, job = an_api(), a_paddle(ps=1, worker=2).manifest
    gates = []

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            give_addresses(api)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            api.remove(PODS, "default", "job-worker-1")
            await quiet(api)
            gates.append(names(api, CONFIG_MAPS))
            give_addresses(api, 10)
            await quiet(api)
            gates.append(names(api, CONFIG_MAPS))

    clock.run(main())

    assert names(api) == ["job-ps-0", "job-worker-0", "job-worker-1"]
    assert gates == [[], ["job"]]
    assert data_of(api)["PADDLE_TRAINERS"] == "10.0.0.2,10.0.0.12"
    assert row(api, job)[0] == "Pending"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_deleted_by_hand_stays_away_from_a_job_that_has_ended(phase):
    api, job = an_api(), a_paddle(ps=1, worker=1, cleanPodPolicy="Never").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            set_phases(api, phase, 0 if phase == "Succeeded" else 1, only="worker")
            await quiet(api)
            for name in names(api):
                api.remove(PODS, "default", name)
            await quiet(api)

    clock.run(main())

    assert names(api) == []
    assert row(api, job)[2:] == ("0/1", "0/1")


def test_a_job_with_the_old_operators_finalizer_can_be_deleted():
    api, job = an_api(), a_paddle(worker=1).meta(finalizers=["finalizers.paddlepaddle.org"]).manifest
    resource = a_paddle().framework.resource

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            await Client(api).delete(resource, "job", "default")
            await quiet(api)

    clock.run(main())

    assert api.objects(resource) == []


def test_a_settled_job_causes_no_write_for_hours():
    api, job = an_api(), a_paddle(ps=1, worker=2, intranet="Host").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            give_addresses(api)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            written = len(api.writes())
            await passing(3600)
            api.drop_watches()
            await passing(3600)
            return len(api.writes()) - written

    assert clock.run(main()) == 0
