"""MPIJobs under the whole operator: names that are taken, edits that break, launchers that linger, other managers."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.objects.meta import Json
from trainmaster.objects.resource import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi, Fault
from trainmaster.testing.hands import finish, tend
from trainmaster.testing.operation import an_api, conditions_of, edit, job_of, operating, passing, quiet, submit
from trainmaster.testing.scene import Scene, a_job

FAULTS = {
    "conflict": Fault(409),
    "unavailable": Fault(503),
    "timeout after": Fault(after_effect=True),
}
LONGEST_LIFE = 36
"""No life below makes more writes than this, events aside."""


def mpi(version: str, workers: int | None = 2) -> Scene:
    scene = a_job("MPIJob", version=version).role("Launcher")
    return scene if workers is None else scene.role("Worker", workers)


def names(api: FakeApi, resource: Resource) -> list[str]:
    return sorted(item["metadata"]["name"] for item in api.objects(resource))


async def settle(api: FakeApi) -> None:
    """Until launchers that wait for their workers run, too."""
    for _ in range(3):
        await quiet(api)
        tend(api)
    await quiet(api)


# Names that are taken.

TAKEN = [
    ("v1", CONFIG_MAPS, "job-config"),
    ("v1", SERVICE_ACCOUNTS, "job-launcher"),
    ("v1", ROLES, "job-launcher"),
    ("v1", ROLE_BINDINGS, "job-launcher"),
    ("v1alpha2", CONFIG_MAPS, "job-config"),
    ("v2beta1", CONFIG_MAPS, "job-config"),
    ("v2beta1", SECRETS, "job-ssh"),
    ("v2beta1", SERVICES, "job"),
]


@pytest.mark.parametrize(("version", "resource", "name"), TAKEN)
def test_no_pod_is_made_that_would_use_a_strangers_object_and_the_user_hears_of_it(
    version: str, resource: Resource, name: str
) -> None:
    api, job = an_api(), mpi(version).manifest
    foreign = {"kind": resource.kind, "metadata": {"name": name, "namespace": "default"}, "spec": {}}

    async def main() -> None:
        api.put(resource, foreign)
        async with operating(api):
            submit(api, job)
            await passing(60)
            tend(api)
            await passing(60)
            assert (names(api, PODS), names(api, JOBS)) == ([], [])
            [told] = [event for event in api.objects(EVENTS) if event["reason"] == f"FailedCreate{resource.kind}"]
            assert f'"{name}" already exists and belongs to' in told["message"]
            api.remove(resource, "default", name)
            await passing(900)
            await settle(api)

    clock.run(main())

    assert len(api.objects(PODS)) == 3
    assert conditions_of(api, job)[-1] == ("Running", "True")


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
@pytest.mark.parametrize("role", ["worker-1", "launcher"])
def test_a_pod_or_job_of_the_name_that_is_anothers_is_left_alone_and_told(version: str, role: str) -> None:
    api, job = an_api(), mpi(version).manifest
    resource = JOBS if (version, role) == ("v2beta1", "launcher") else PODS
    foreign = {"kind": resource.kind, "metadata": {"name": f"job-{role}", "namespace": "default"}, "spec": {}}

    async def main() -> None:
        held = api.put(resource, foreign)
        async with operating(api):
            submit(api, job)
            await passing(60)
            for pod in api.objects(PODS):
                if "ownerReferences" in pod["metadata"]:
                    api.set_pod_phase("default", pod["metadata"]["name"], "Running")
            await passing(60)
        assert api.object(resource, "default", f"job-{role}")["metadata"]["uid"] == held["metadata"]["uid"]

    clock.run(main())

    reasons = {event["reason"] for event in api.objects(EVENTS)}
    assert f"FailedCreate{resource.kind}" in reasons
    assert conditions_of(api, job) == [("Created", "True")]


def test_jobs_of_one_name_in_two_namespaces_have_nothing_to_do_with_each_other() -> None:
    api = an_api()
    here, there = mpi("v2beta1").manifest, mpi("v2beta1", 1).meta(namespace="other").manifest

    async def main() -> None:
        async with operating(api):
            submit(api, here)
            submit(api, there)
            await settle(api)
            edit(api, mpi("v2beta1", 1).manifest)
            await settle(api)

    clock.run(main())

    kept = sorted((pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in api.objects(PODS))
    assert [(space, name) for space, name in kept if "worker" in name] == [
        ("default", "job-worker-0"),
        ("other", "job-worker-0"),
    ]


# Jobs that are none of ours.


def test_a_job_that_is_gone_before_it_is_looked_at_costs_nothing() -> None:
    api, job = an_api(), mpi("v2beta1").manifest

    async def main() -> None:
        async with operating(api):
            await quiet(api)
            before = api.writes((LEASES,))
            submit(api, job)
            api.remove(mpi("v2beta1").framework.resource, "default", "job")
            await passing(60)
            assert api.writes((LEASES,)) == before

    clock.run(main())


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_job_of_another_manager_is_not_touched_even_when_it_is_resumed(version: str) -> None:
    foreign = mpi(version).policy(managedBy="kueue.x-k8s.io/multikueue", suspend=True)
    api = an_api()

    async def main() -> None:
        async with operating(api):
            await quiet(api)
            before = api.writes((LEASES,))
            submit(api, foreign.manifest)
            await passing(60)
            edit(api, foreign.policy(suspend=False).manifest)
            await passing(60)
            assert api.writes((LEASES,)) == before

    clock.run(main())

    assert "status" not in job_of(api, foreign.manifest)
    assert api.objects(EVENTS) == []


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize("manager", ["kubeflow.org/mpi-operator", "kubeflow.org/training-operator"])
def test_a_job_of_either_operator_that_we_stand_for_runs(version: str, manager: str) -> None:
    api, job = an_api(), mpi(version).policy(managedBy=manager).manifest

    async def main() -> None:
        async with operating(api):
            submit(api, job)
            await settle(api)
            finish(api, "launcher")
            await quiet(api)

    clock.run(main())

    assert conditions_of(api, job)[-1] == ("Succeeded", "True")


# Edits.


@pytest.mark.parametrize(
    ("resource", "name", "change"),
    [
        pytest.param(CONFIG_MAPS, "job-config", {"data": {"hostfile": "nowhere slots=1"}}, id="hosts"),
        pytest.param(ROLES, "job-launcher", {"rules": []}, id="rights"),
        pytest.param(ROLE_BINDINGS, "job-launcher", {"subjects": []}, id="who has them"),
    ],
)
def test_what_a_job_needs_is_mended_when_somebody_changes_it(resource: Resource, name: str, change: Json) -> None:
    api, job = an_api(), mpi("v1").manifest

    async def main() -> None:
        async with operating(api):
            submit(api, job)
            await settle(api)
            before = api.object(resource, "default", name)
            api.put(resource, {**before, **change})
            await quiet(api)
            after = api.object(resource, "default", name)
        assert {part: after[part] for part in change} == {part: before[part] for part in change}

    clock.run(main())


def test_an_edit_that_breaks_a_job_of_a_launcher_alone_leaves_it_running() -> None:
    api, scene = an_api(), mpi("v2beta1", None)

    async def main() -> None:
        async with operating(api):
            submit(api, scene.manifest)
            await settle(api)
            edit(api, scene.spec(mpiImplementation="X").manifest)
            await quiet(api)
            broken = job_of(api, scene.manifest)["status"]
            edit(api, scene.manifest)
            await quiet(api)
            finish(api, "launcher")
            await quiet(api)
        assert [c["type"] for c in broken["conditions"]] == ["Created", "Running"]
        assert broken["authoredVersion"] == "v2beta1"

    clock.run(main())

    assert "MPIJobFailedValidation" in {event["reason"] for event in api.objects(EVENTS)}
    assert conditions_of(api, scene.manifest)[-1] == ("Succeeded", "True")


# Suspension.


async def suspended_twice(api: FakeApi, scene: Scene, patience: float = 60.0) -> None:
    """Runs, stops, starts on other nodes, stops, starts on others again, and succeeds."""

    async def tended() -> None:
        for _ in range(3):
            await passing(patience)
            tend(api)
        await passing(patience)

    submit(api, scene.policy(suspend=True).manifest)
    await passing(patience)
    for pool in ("a", "b"):
        placed = scene.role("Launcher", nodeSelector={"pool": pool}, metadata={"labels": {"round": pool}})
        edit(api, placed.policy(suspend=False).manifest)
        await tended()
        if pool == "a":
            edit(api, placed.policy(suspend=True).manifest)
            await passing(patience)
    finish(api, "launcher")
    await passing(patience)


def picture(api: FakeApi, scene: Scene) -> tuple[Any, ...]:
    status = job_of(api, scene.manifest)["status"]
    launchers = [pod for pod in api.objects(PODS) if "launcher" in pod["metadata"]["name"]]
    placed = [(pod["spec"]["nodeSelector"], pod["metadata"]["labels"]["round"]) for pod in launchers]
    return conditions_of(api, scene.manifest), status["replicaStatuses"], placed, names(api, PODS)


def lived(scene: Scene, number: int = 0, fault: Fault | None = None) -> FakeApi:
    """A life in which the write of that number goes wrong."""
    api, writes = an_api(), iter(range(1, 1000))

    def strike(method: str, path: str, body: object) -> Fault | None:
        is_write = method != "GET" and not path.endswith("/events")
        return fault if is_write and next(writes) == number else None

    async def main() -> None:
        api.on_request(strike)
        async with operating(api):
            await suspended_twice(api, scene)

    clock.run(main())
    return api


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_every_resumption_brings_the_launcher_that_the_template_describes_then(version: str) -> None:
    scene = mpi(version)
    api = lived(scene)

    conditions, _, placed, _ = picture(api, scene)

    assert placed == [({"pool": "b"}, "b")]
    assert conditions == [("Created", "True"), ("Suspended", "False"), ("Running", "False"), ("Succeeded", "True")]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_fault_at_any_write_of_a_life_with_suspensions_changes_nothing_in_the_end(version: str, fault: Fault) -> None:
    scene = mpi(version)
    undisturbed = lived(scene)
    expected = picture(undisturbed, scene)
    assert len(undisturbed.writes((EVENTS, LEASES))) <= LONGEST_LIFE

    for number in range(1, LONGEST_LIFE + 1):
        api = lived(scene, number, fault)
        assert picture(api, scene) == expected, f"after {fault} at write {number}"


def test_a_resumed_launcher_comes_when_the_pod_of_the_old_one_is_gone() -> None:
    api, scene = an_api(), mpi("v2beta1")

    def left_behind(uid: str) -> Json:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job-launcher", "uid": "gone", "controller": True}
        labels = {"training.kubeflow.org/job-name": "job"}
        annotations = {"trainmaster.dev/job-uid": uid}
        meta = {"name": "job-launcher-old", "namespace": "default", "labels": labels, "annotations": annotations}
        return {"metadata": {**meta, "ownerReferences": [owner]}, "status": {"phase": "Running"}}

    async def main() -> None:
        async with operating(api):
            uid = submit(api, scene.policy(suspend=True).manifest)["metadata"]["uid"]
            await quiet(api)
            api.put(PODS, left_behind(uid))
            edit(api, scene.manifest)
            await quiet(api)
            assert (len(api.objects(PODS)), names(api, JOBS)) == (3, [])
            api.remove(PODS, "default", "job-launcher-old")
            await quiet(api)
            assert names(api, JOBS) == ["job-launcher"]

    clock.run(main())
