"""The operator as users meet it: what becomes of a job they submit."""

import pytest

from trainmaster.engine import gang
from trainmaster.objects.resource import EVENTS, HORIZONTAL_POD_AUTOSCALERS, LEASES, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, SERVED, a_small, replicas_of
from trainmaster.testing.operation import (
    an_api,
    conditions_of,
    edit,
    job_of,
    operating,
    passing,
    quiet,
    set_phases,
    submit,
)
from trainmaster.testing.scene import a_job


def names(objects):
    return sorted(item["metadata"]["name"] for item in objects)


def reasons(api):
    return [event["reason"] for event in api.objects(EVENTS)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_started_followed_and_ended(kind):
    api, job = an_api(), a_small(kind).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            assert names(api.objects(PODS)) == replicas_of(kind, ROLES[kind])
            assert names(api.objects(SERVICES)) == replicas_of(kind, SERVED.get(kind, ROLES[kind]))
            assert conditions_of(api, job) == [("Created", "True")]

            set_phases(api, "Running")
            await quiet(api)
            assert conditions_of(api, job) == [("Created", "True"), ("Running", "True")]

            set_phases(api, "Succeeded", 0, only=LEADER.get(kind, ""))
            await quiet(api)
            assert conditions_of(api, job) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]

    clock.run(main())

    status = job_of(api, job)["status"]
    assert status["startTime"]
    assert status["completionTime"]
    assert {f"{kind}Succeeded", "SuccessfulCreatePod"} <= set(reasons(api))


def test_a_job_of_four_replicas_costs_at_most_fourteen_writes():
    api, job = an_api(), a_job("PyTorchJob").role("Master").role("Worker", 3).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert len(api.writes()) <= 14


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_settled_job_causes_no_write_for_hours(kind, phase):
    api, job = an_api(), a_small(kind, restart="Never").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, phase)
            await quiet(api)
            written = len(api.writes())
            for _ in range(20):
                await passing(3600)
                api.drop_watches()
            assert len(api.writes()) == written

    clock.run(main())


def test_an_invalid_job_fails_with_all_its_problems_and_makes_nothing():
    api = an_api()
    bad = a_job("PyTorchJob", "bad").spec(pytorchReplicaSpecs={"Master": {"replicas": 2}, "Wroker": {}}).manifest

    async def main():
        async with operating(api):
            submit(api, bad)
            await quiet(api)

    clock.run(main())

    (failed,) = [c for c in job_of(api, bad)["status"]["conditions"] if c["type"] == "Failed"]
    (event,) = api.objects(EVENTS)
    assert failed["reason"] == event["reason"] == "PyTorchJobFailedValidation"
    for path in ("[Master].replicas", "[Master].template.spec.containers", "[Wroker]"):
        assert path in failed["message"]
        assert path in event["message"]
    assert not api.objects(PODS)
    assert not api.objects(SERVICES)


def test_an_object_that_is_no_job_at_all_does_not_disturb_the_others():
    api, good = an_api(), a_small("JAXJob", "good").manifest
    garbage = {**good, "metadata": {"name": "garbage", "namespace": "default"}, "spec": ["no", "map"], "status": 7}

    async def main():
        async with operating(api):
            submit(api, garbage)
            submit(api, good)
            await quiet(api)

    clock.run(main())

    assert names(api.objects(PODS)) == ["good-worker-0", "good-worker-1"]
    assert ("Failed", "True") in conditions_of(api, garbage)


def test_a_misspelt_field_is_named_in_an_event_and_the_job_runs():
    api, job = an_api(), a_small("JAXJob").spec(cleanPolicy="All").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    (event,) = [e for e in api.objects(EVENTS) if e["reason"] == "UnknownField"]
    assert "spec.cleanPolicy" in event["message"]
    assert "did you mean cleanPodPolicy" in event["message"]
    assert len(api.objects(PODS)) == 2


def test_a_deadline_fires_by_itself():
    api, job = an_api(), a_small("JAXJob").policy(activeDeadlineSeconds=600).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            await passing(570)
            assert ("Running", "True") in conditions_of(api, job)
            await passing(30)
            assert ("Failed", "True") in conditions_of(api, job)

    clock.run(main())

    assert not api.objects(PODS)


def test_a_deadline_survives_a_restart_of_the_operator():
    api, job = an_api(), a_small("JAXJob").policy(activeDeadlineSeconds=600).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await passing(300)
        await passing(200)
        async with operating(api):
            await passing(90)
            assert ("Failed", "True") not in conditions_of(api, job)
            await passing(20)
            assert ("Failed", "True") in conditions_of(api, job)

    clock.run(main())


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over():
    api, job = an_api(), a_small("JAXJob").policy(ttlSecondsAfterFinished=60).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await passing(55)
            assert ("Succeeded", "True") in conditions_of(api, job)
            await passing(10)

    clock.run(main())

    with pytest.raises(KeyError):
        job_of(api, job)
    assert not api.objects(PODS)


def test_suspending_removes_everything_and_resuming_starts_anew():
    api, scene = an_api(), a_small("PyTorchJob")
    job = scene.manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            edit(api, scene.policy(suspend=True).manifest)
            await quiet(api)
            assert not api.objects(PODS)
            assert not api.objects(SERVICES)
            assert conditions_of(api, job) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]

            edit(api, scene.policy(suspend=False).manifest)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            assert conditions_of(api, job) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]

    clock.run(main())


def test_scaling_follows_the_spec_in_both_directions():
    api, scene = an_api(), a_small("JAXJob")

    async def main():
        async with operating(api):
            submit(api, scene.manifest)
            await quiet(api)
            edit(api, scene.scaled("Worker", 4).manifest)
            await quiet(api)
            assert len(api.objects(PODS)) == len(api.objects(SERVICES)) == 4
            edit(api, scene.scaled("Worker", 1).manifest)
            await quiet(api)

    clock.run(main())

    assert names(api.objects(PODS)) == names(api.objects(SERVICES)) == ["job-worker-0"]


def test_an_elastic_job_has_an_autoscaler_until_it_ends():
    api = an_api()
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource"}]}
    job = a_job("PyTorchJob").role("Worker", 1).spec(elasticPolicy=policy).manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            (scaler,) = api.objects(HORIZONTAL_POD_AUTOSCALERS)
            assert scaler["spec"]["maxReplicas"] == 3
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert not api.objects(HORIZONTAL_POD_AUTOSCALERS)


def test_volcano_admits_the_group_before_there_are_pods():
    api, job = an_api(), a_small("TFJob").manifest

    async def main():
        async with operating(api, gang_scheduler_name="volcano"):
            submit(api, job)
            await quiet(api)
            (group,) = api.objects(gang.VOLCANO)
            assert group["spec"]["minMember"] == 3
            assert not api.objects(PODS)
            api.put(gang.VOLCANO, {**group, "status": {"phase": "Inqueue"}})
            await quiet(api)
            assert len(api.objects(PODS)) == 3
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert not api.objects(gang.VOLCANO)


def test_gang_scheduling_without_its_crd_says_what_to_install():
    api = an_api()
    api.resources.discard(gang.VOLCANO)

    async def main():
        async with operating(api, gang_scheduler_name="volcano"):
            await quiet(api)

    with pytest.RaisesGroup(pytest.RaisesExc(Exception, match=r"podgroups\.scheduling\.volcano\.sh.*install")):
        clock.run(main())


def test_a_kind_whose_crd_is_missing_is_picked_up_once_it_is_installed():
    api, job = an_api(), a_small("JAXJob").manifest
    resource = a_small("JAXJob").framework.resource
    api.resources.discard(resource)

    async def main():
        async with operating(api):
            submit(api, a_small("TFJob", "other").manifest)
            await passing(10)
            assert len(api.objects(PODS)) == 3
            api.resources.add(resource)
            submit(api, job)
            await passing(60)

    clock.run(main())

    assert len(api.objects(PODS)) == 5


def test_only_the_watched_namespace_is_served():
    api = an_api()
    mine = a_small("JAXJob", "mine").meta(namespace="a").manifest
    other = a_small("JAXJob", "other").meta(namespace="b").manifest

    async def main():
        async with operating(api, namespace="a"):
            submit(api, mine)
            submit(api, other)
            await quiet(api)

    clock.run(main())

    assert names(api.objects(PODS)) == ["mine-worker-0", "mine-worker-1"]


def test_only_enabled_kinds_are_served():
    api = an_api()

    async def main():
        async with operating(api, schemes=("jaxjob",)):
            submit(api, a_small("TFJob", "tf").manifest)
            submit(api, a_small("JAXJob", "jax").manifest)
            await quiet(api)

    clock.run(main())

    assert names(api.objects(PODS)) == ["jax-worker-0", "jax-worker-1"]


def test_a_job_managed_by_another_controller_is_not_touched():
    api, job = an_api(), a_small("JAXJob").policy(managedBy="kueue.x-k8s.io/multikueue").manifest

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    assert not api.writes()
    assert "status" not in job_of(api, job)


def test_of_two_operators_one_leads_and_the_other_takes_over():
    api, job = an_api(), a_small("JAXJob").manifest

    async def main():
        async with operating(api, leader_elect=True):
            await passing(1)
            async with operating(api, leader_elect=True):
                submit(api, job)
                await passing(30)
                assert len(api.objects(PODS)) == 2
                assert api.writes((LEASES, EVENTS)).count(("POST", "/api/v1/namespaces/default/pods")) == 2

    clock.run(main())
