"""Whatever goes wrong on the way, the end is the same as if nothing had."""

import asyncio
from contextlib import suppress

import pytest

from trainmaster.engine import labels
from trainmaster.objects.resource import EVENTS, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.jobs import KINDS, LEADER, a_small
from trainmaster.testing.operation import (
    an_api,
    conditions_of,
    job_of,
    operating,
    passing,
    quiet,
    set_phases,
    submit,
)
from trainmaster.testing.scene import a_job

FAULTS = {
    "not served yet": Fault(404),
    "conflict": Fault(409),
    "too many requests": Fault(429, retry_after=1),
    "server error": Fault(500),
    "unavailable": Fault(503),
    "timeout before": Fault(),
    "timeout after": Fault(after_effect=True),
}
LONGEST_LIFE = 22
"""No life below makes more writes than this, events aside."""


def picture(api, job):
    """The end state, without names of events, uids and times."""
    status = job_of(api, job)["status"]
    pods = {
        pod["metadata"]["name"]: (pod["status"]["phase"], pod["metadata"].get("annotations", {}).get(labels.ATTEMPT))
        for pod in api.objects(PODS)
    }
    services = sorted(service["metadata"]["name"] for service in api.objects(SERVICES))
    return conditions_of(api, job), status["replicaStatuses"], status.get("attempts"), pods, services


async def live(api, job, kind, patience=60.0):
    """A life with a crash in it: start, run, one replica dies of a retryable code and comes back, success."""
    submit(api, job)
    await passing(patience)
    set_phases(api, "Running")
    await passing(patience)
    first = sorted(pod["metadata"]["name"] for pod in api.objects(PODS))[-1]
    set_phases(api, "Failed", 137, only=first)
    await passing(patience)
    set_phases(api, "Running", only=first)
    await passing(patience)
    set_phases(api, "Succeeded", 0, only=LEADER.get(kind, ""))
    await passing(patience)


def undisturbed(kind):
    api, job = an_api(), a_small(kind, restart="ExitCode").manifest

    async def main():
        async with operating(api):
            await live(api, job, kind)

    clock.run(main())
    assert ("Succeeded", "True") in conditions_of(api, job)
    assert len(api.writes((EVENTS,))) <= LONGEST_LIFE
    return picture(api, job)


def nth_write(number, fault):
    seen = 0

    def strike(method, path, body):
        nonlocal seen
        if method == "GET" or path.endswith("/events"):
            return None
        seen += 1
        return fault if seen == number else None

    return strike


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_write_changes_nothing_in_the_end(kind, fault):
    expected = undisturbed(kind)

    for number in range(1, LONGEST_LIFE + 1):
        api, job = an_api(), a_small(kind, restart="ExitCode").manifest
        api.on_request(nth_write(number, fault))

        async def main(api=api, job=job):
            async with operating(api):
                await live(api, job, kind)

        clock.run(main())
        assert picture(api, job) == expected, f"after {fault} at write {number}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_killed_at_any_write_and_restarted_ends_the_same(kind):
    expected = undisturbed(kind)

    for number in range(1, LONGEST_LIFE + 1):
        api, job = an_api(), a_small(kind, restart="ExitCode").manifest

        async def main(api=api, job=job, number=number):
            victim: list[asyncio.Task[None]] = []
            seen = 0

            def kill(method, path, body):
                nonlocal seen
                if method != "GET" and not path.endswith("/events"):
                    seen += 1
                    if seen == number:
                        victim[0].cancel()
                return

            api.on_request(kill)
            async with asyncio.TaskGroup() as group:
                life = group.create_task(live(api, job, kind), name="life")
                while not life.done():
                    with suppress(asyncio.CancelledError):
                        async with operating(api) as running:
                            victim[:] = [running]
                            await asyncio.wait((life, running), return_when=asyncio.FIRST_COMPLETED)

        clock.run(main())
        assert picture(api, job) == expected, f"killed at write {number}"


def test_a_stale_cache_does_no_harm():
    expected = undisturbed("PyTorchJob")
    api, job = an_api(), a_small("PyTorchJob", restart="ExitCode").manifest

    async def main():
        async with operating(api), asyncio.TaskGroup() as group:
            life = group.create_task(live(api, job, "PyTorchJob"), name="life")
            while not life.done():
                api.hold_watches()
                await passing(7)
                api.hold_watches(False)
                await passing(3)

    clock.run(main())

    assert picture(api, job) == expected


@pytest.mark.parametrize("broken", [False, True], ids=["ended", "broken"])
def test_lost_watches_and_compaction_do_no_harm(broken):
    expected = undisturbed("TFJob")
    api, job = an_api(), a_small("TFJob", restart="ExitCode").manifest

    async def main():
        async with operating(api), asyncio.TaskGroup() as group:
            life = group.create_task(live(api, job, "TFJob", patience=120), name="life")
            while not life.done():
                await passing(11)
                api.compact()
                api.drop_watches(broken=broken)

    clock.run(main())

    assert picture(api, job) == expected


def test_a_server_that_fails_half_of_all_requests_is_lived_through():
    expected = undisturbed("JAXJob")
    api, job = an_api(), a_small("JAXJob", restart="ExitCode").manifest
    faults = list(FAULTS.values())
    count = 0

    def every_other(method, path, body):
        nonlocal count
        count += 1
        return faults[count // 2 % len(faults)] if count % 2 and method != "GET" else None

    api.on_request(every_other)

    async def main():
        async with operating(api):
            await live(api, job, "JAXJob", patience=900)

    clock.run(main())

    assert picture(api, job) == expected


def test_restarts_are_counted_once_although_the_operator_dies_between_the_count_and_the_deletion():
    api, job = an_api(), a_small("JAXJob", restart="ExitCode").policy(backoffLimit=2).manifest

    async def main():
        async with operating(api) as running:
            submit(api, job)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            api.on_request(lambda method, path, body: running.cancel() and None if method == "DELETE" else None)
            set_phases(api, "Failed", 137, only="worker-1")
            with suppress(asyncio.CancelledError):
                await running
        async with operating(api):
            await quiet(api)

    with suppress(asyncio.CancelledError):
        clock.run(main())

    assert job_of(api, job)["status"]["attempts"] == {"worker-1": 1}
    assert len(api.objects(PODS)) == 2


def test_a_name_that_is_taken_is_told_and_used_once_it_is_free():
    api, job = an_api(), a_small("JAXJob").manifest
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job-worker-1", "namespace": "default"}}

    async def main():
        api.put(PODS, foreign)
        async with operating(api):
            submit(api, job)
            await passing(5)
            assert any(
                event["reason"] == "FailedCreatePod"
                and "job-worker-1" in event["message"]
                and "belongs to" in event["message"]
                for event in api.objects(EVENTS)
            )
            assert "ownerReferences" not in api.object(PODS, "default", "job-worker-1")["metadata"]
            api.remove(PODS, "default", "job-worker-1")
            await passing(600)

    clock.run(main())

    assert api.object(PODS, "default", "job-worker-1")["metadata"]["ownerReferences"]


def test_pods_that_an_older_operator_labelled_otherwise_are_taken_over_as_they_are():
    api, job = an_api(), a_small("JAXJob").manifest

    def leave_behind():
        """What the other operator made."""
        uid = submit(api, job)["metadata"]["uid"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "name": "job", "uid": uid, "controller": True}
        for index in range(2):
            old = {"group-name": "kubeflow.org", "job-name": "job", "replica-index": str(index)}
            meta = {"name": f"job-worker-{index}", "namespace": "default", "ownerReferences": [owner], "labels": old}
            api.put(PODS, {"metadata": meta, "status": {"phase": "Running"}, "spec": {"old": True}})

    async def main():
        leave_behind()
        async with operating(api):
            await quiet(api)
            assert conditions_of(api, job)[-1] == ("Running", "True")
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert all(pod["spec"] == {"old": True} for pod in api.objects(PODS))
    assert conditions_of(api, job)[-1] == ("Succeeded", "True")


def test_a_large_job_whose_pods_are_not_answered_for_does_not_keep_others_of_its_kind_from_starting(monkeypatch):
    api = an_api()
    large = a_job("PyTorchJob", "large").role("Master").role("Worker", 99).manifest
    small = a_job("PyTorchJob", "small").role("Master").manifest
    answered = api.send

    async def send(request):
        if request.method == "POST" and b'"large-worker-' in request.body:
            await asyncio.Event().wait()
        return await answered(request)

    monkeypatch.setattr(api, "send", send)

    async def main():
        async with operating(api):
            submit(api, large)
            await passing(1)
            submit(api, small)
            await passing(1)
            return [pod["metadata"]["name"] for pod in api.objects(PODS)]

    assert "small-master-0" in clock.run(main())
