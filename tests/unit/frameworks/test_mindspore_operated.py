"""MSJobs under the whole operator, on an API server in memory and in virtual time."""

from __future__ import annotations

from trainmaster.engine import gang
from trainmaster.objects.resource import EVENTS, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, conditions_of, operating, passing, quiet, set_phases, submit
from trainmaster.testing.scene import Scene, a_job


def an_msjob() -> Scene:
    return a_job("MSJob", "j").role("Scheduler").role("Worker", 2)


def test_no_pod_is_ever_made_without_the_address_that_the_server_gave() -> None:
    api, job = an_api(), an_msjob().manifest

    async def main() -> None:
        async with operating(api):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    (service,) = api.objects(SERVICES)
    pods = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["env"] for pod in api.objects(PODS)}
    hosts = [env[0] for name, env in pods.items() if "worker" in name]
    assert service["spec"]["clusterIP"].startswith("10.96.")
    assert hosts == 2 * [{"name": "MS_SCHED_HOST", "value": service["spec"]["clusterIP"]}]
    assert [entry["name"] for entry in pods["j-scheduler-0"]][-1] == "MS_ROLE"


def test_pods_that_wait_for_devices_held_by_others_end_with_the_deadline() -> None:
    api, job = an_api(), an_msjob().policy(activeDeadlineSeconds=600).manifest

    async def main() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        async with operating(api):
            submit(api, job)
            await quiet(api)
            await passing(550)
            before = conditions_of(api, job)
            await passing(100)
            return before, conditions_of(api, job)

    before, after = clock.run(main())

    assert before == [("Created", "True")]
    assert after == [("Created", "True"), ("Failed", "True")]
    assert api.objects(PODS) == []


def test_a_job_whose_group_is_never_admitted_ends_with_the_deadline() -> None:
    api, job = an_api(), an_msjob().policy(activeDeadlineSeconds=600).manifest

    async def main() -> list[tuple[str, str]]:
        async with operating(api, gang_scheduler_name="volcano"):
            submit(api, job)
            await quiet(api)
            await passing(550)
            before = conditions_of(api, job)
            await passing(100)
            return before

    before = clock.run(main())

    assert before == [("Created", "True")]
    assert conditions_of(api, job)[-1] == ("Failed", "True")
    assert (api.objects(PODS), api.objects(gang.VOLCANO)) == ([], [])


def test_the_end_of_a_group_is_told_once() -> None:
    api, job = an_api(), an_msjob().policy(activeDeadlineSeconds=60).manifest

    async def main() -> None:
        async with operating(api, gang_scheduler_name="volcano"):
            submit(api, job)
            await passing(100)
            await passing(3600)

    clock.run(main())

    told = [event for event in api.objects(EVENTS) if event["reason"] == "SuccessfulDeletePodGroup"]
    assert [event.get("count", 1) for event in told] == [1]


def test_a_finished_job_is_deleted_when_its_time_is_up() -> None:
    api, job = an_api(), an_msjob().policy(ttlSecondsAfterFinished=300)
    resource = job.framework.resource

    async def main() -> tuple[int, int]:
        async with operating(api):
            submit(api, job.manifest)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            set_phases(api, "Succeeded", 0, only="worker")
            await quiet(api)
            await passing(200)
            kept = len(api.objects(resource))
            await passing(150)
            return kept, len(api.objects(resource))

    assert clock.run(main()) == (1, 0)
