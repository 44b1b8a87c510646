"""Lives of jobs that need more than pods and Services: whatever goes wrong on the way, the end is the same."""

import asyncio
from contextlib import suppress

import pytest

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
from trainmaster.testing.hands import finish, tend
from trainmaster.testing.operation import an_api, conditions_of, edit, job_of, operating, passing, quiet, submit
from trainmaster.testing.scene import a_job

KINDS = (PODS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, JOBS)
FAULTS = {
    "conflict": Fault(409),
    "too many requests": Fault(429, retry_after=1),
    "unavailable": Fault(503),
    "timeout before": Fault(),
    "timeout after": Fault(after_effect=True),
}
LONGEST_LIFE = 20
"""No life below makes more writes than this, events aside."""


def mpi(version):
    return a_job("MPIJob", version=version).role("Launcher").role("Worker", 2).policy(cleanPodPolicy="Running")


def paddle():
    scene = a_job("PaddleJob", group="batch.paddlepaddle.org", cleanPodPolicy="OnCompletion")
    return scene.role("ps", 1).role("worker", 2)


LIVES = {
    "MPIJob v1": (lambda: mpi("v1"), "launcher"),
    "MPIJob v1alpha2": (lambda: mpi("v1alpha2"), "launcher"),
    "MPIJob v2beta1": (lambda: mpi("v2beta1"), "launcher"),
    "PaddleJob of batch.paddlepaddle.org": (paddle, "worker"),
}
"""A job, and whose success ends it."""


def everything(api):
    return sorted((kind.kind, item["metadata"]["name"]) for kind in KINDS for item in api.objects(kind))


def picture(api, job):
    """The end state without uids and times."""
    status = job_of(api, job)["status"]
    return conditions_of(api, job), status["replicaStatuses"], status.get("authoredVersion"), everything(api)


async def live(api, job, decisive, patience=60.0):
    submit(api, job)
    for _ in range(3):  # what waits for others to be ready comes in a later round
        await passing(patience)
        tend(api)
    await passing(patience)
    finish(api, decisive)
    await passing(patience)


def lived(name):
    make, decisive = LIVES[name]
    api, job = an_api(), make().manifest

    async def main():
        async with operating(api):
            await live(api, job, decisive)

    clock.run(main())
    return api, job


def undisturbed(name):
    api, job = lived(name)
    assert ("Succeeded", "True") in conditions_of(api, job)
    assert len(api.writes((EVENTS,))) <= LONGEST_LIFE
    return picture(api, job)


def nth_write(number, fault):
    writes = iter(range(1, 1000))
    return lambda method, path, body: fault if is_write(method, path) and next(writes) == number else None


def is_write(method, path):
    return method != "GET" and not path.endswith("/events")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", LIVES)
def test_a_fault_at_any_write_changes_nothing_in_the_end(name, fault):
    expected = undisturbed(name)
    make, decisive = LIVES[name]

    for number in range(1, LONGEST_LIFE + 1):
        api, job = an_api(), make().manifest
        api.on_request(nth_write(number, fault))

        async def main(api=api, job=job):
            async with operating(api):
                await live(api, job, decisive)

        clock.run(main())
        assert picture(api, job) == expected, f"after {fault} at write {number}"


@pytest.mark.parametrize("name", LIVES)
def test_an_operator_killed_at_any_write_and_restarted_ends_the_same(name):
    expected = undisturbed(name)
    make, decisive = LIVES[name]

    for number in range(1, LONGEST_LIFE + 1):
        api, job = an_api(), make().manifest

        async def main(api=api, job=job, number=number):
            victim: list[asyncio.Task[None]] = []
            writes = iter(range(1, 1000))

            def kill(method, path, body):
                if is_write(method, path) and next(writes) == number:
                    victim[0].cancel()

            api.on_request(kill)
            async with asyncio.TaskGroup() as group:
                life = group.create_task(live(api, job, decisive), name="life")
                while not life.done():
                    with suppress(asyncio.CancelledError):
                        async with operating(api) as running:
                            victim[:] = [running]
                            await asyncio.wait((life, running), return_when=asyncio.FIRST_COMPLETED)

        clock.run(main())
        assert picture(api, job) == expected, f"killed at write {number}"


@pytest.mark.parametrize("name", LIVES)
def test_a_finished_job_causes_no_write_for_hours(name):
    make, decisive = LIVES[name]
    api, job = an_api(), make().manifest

    async def main():
        async with operating(api):
            await live(api, job, decisive)
            before = len(api.writes())
            await passing(20 * 3600)
            assert api.writes()[before:] == []

    clock.run(main())


@pytest.mark.parametrize("name", LIVES)
def test_whatever_a_job_had_goes_with_it(name):
    make, decisive = LIVES[name]
    api, job = an_api(), make().manifest

    async def main():
        async with operating(api):
            await live(api, job, decisive)
            resource = make().framework.resource
            api.remove(resource, "default", "job")
            await quiet(api)

    clock.run(main())

    assert everything(api) == []


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_suspended_mpijob_holds_no_pod_and_starts_anew_with_what_its_template_says_then(version):
    api, scene = an_api(), mpi(version)

    async def main():
        async with operating(api):
            submit(api, scene.manifest)
            for _ in range(3):
                await quiet(api)
                tend(api)
            await quiet(api)
            edit(api, scene.policy(suspend=True).manifest)
            await quiet(api)
            assert api.objects(PODS) == []
            assert api.objects(JOBS) == []
            placed = scene.role("Launcher", nodeSelector={"pool": "b"}).policy(suspend=False)
            edit(api, placed.manifest)
            for _ in range(3):
                await quiet(api)
                tend(api)
            await quiet(api)

    clock.run(main())

    launcher = next(pod for pod in api.objects(PODS) if "launcher" in pod["metadata"]["name"])
    assert launcher["spec"]["nodeSelector"] == {"pool": "b"}
    assert conditions_of(api, scene.manifest)[-1] == ("Running", "True")


def test_a_job_outside_the_watched_namespace_is_told_that_nobody_runs_it():
    api, job = an_api(), mpi("v1").meta(namespace="elsewhere").manifest

    async def main():
        async with operating(api, namespace="team"):
            submit(api, job)
            await passing(200)

    clock.run(main())

    (event,) = [e for e in api.objects(EVENTS) if e["reason"] == "NamespaceNotWatched"]
    assert event["type"] == "Warning"
    assert "namespace team only" in event["message"]
    assert event["involvedObject"]["name"] == "job"
    assert api.objects(PODS) == []


def test_a_job_that_another_operator_runs_is_not_told_anything():
    api, job = an_api(), mpi("v1").meta(namespace="elsewhere").manifest

    async def main():
        async with operating(api, namespace="elsewhere"), operating(api, namespace="team"):
            submit(api, job)
            await passing(200)

    clock.run(main())

    assert "NamespaceNotWatched" not in [event["reason"] for event in api.objects(EVENTS)]


def test_a_job_that_names_another_manager_is_not_told_anything():
    api = an_api()
    job = mpi("v2beta1").meta(namespace="elsewhere").policy(managedBy="kueue.x-k8s.io/multikueue").manifest

    async def main():
        async with operating(api, namespace="team"):
            submit(api, job)
            await passing(200)

    clock.run(main())

    assert api.objects(EVENTS) == []
