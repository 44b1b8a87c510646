"""MPIJob v1 and v1alpha2 from the first worker to the end: who waits for whom, and what each end means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.api.status import ReplicaStatus
from trainmaster.engine.actions import Create
from trainmaster.engine.pods import pod_of
from trainmaster.objects.meta import Json, Meta, OwnerReference, Service, ServiceSpec
from trainmaster.objects.resource import CONFIG_MAPS, PODS
from trainmaster.testing.scene import Scene, a_job, body, created, deleted, states, told

both = pytest.mark.parametrize("version", ["v1", "v1alpha2"])


def mpi(version: str = "v1", workers: int = 2, **spec: Any) -> Scene:
    return a_job("MPIJob", version=version, **spec).role("Launcher").role("Worker", workers)


def running(version: str = "v1", workers: int = 2, **spec: Any) -> Scene:
    scene = mpi(version, workers, **spec).all("Running", "Worker", ready=True).settled()
    return scene.pod("Launcher", 0, "Running").settled()


def tallies(scene: Scene) -> dict[str, tuple[int, int, int]]:
    held = scene.plan().status.replica_statuses
    return {role: (tally.active, tally.succeeded, tally.failed) for role, tally in held.items()}


def pod_labels(scene: Scene, slot: str) -> Json:
    member = next(member for member in scene.job.members() if member.slot == slot)
    found: Json = pod_of(scene.reading.framework, member)["metadata"]["labels"]
    return found


# The launcher waits.


@both
@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(lambda s: s, id="no worker"),
        pytest.param(lambda s: s.all("Pending", "Worker"), id="all pending"),
        pytest.param(lambda s: s.all("Running", "Worker"), id="all running, none ready"),
        pytest.param(lambda s: s.pod("Worker", 0, ready=True), id="one ready, one missing"),
        pytest.param(lambda s: s.pod("Worker", 0, ready=True).pod("Worker", 1), id="one ready, one running"),
        pytest.param(
            lambda s: s.pod("Worker", 0, ready=True).pod("Worker", 1, ready=True, terminating=True), id="one leaving"
        ),
        pytest.param(lambda s: s.all("Running", "Worker", ready=True, owner="stranger"), id="workers of another job"),
    ],
)
def test_the_launcher_waits_until_all_workers_are_ready(scene: Any, version: str) -> None:
    assert "job-launcher" not in created(scene(mpi(version)).plan())


@both
def test_the_launcher_starts_when_all_workers_are_ready(version: str) -> None:
    scene = mpi(version, 16).all("Running", "Worker", ready=True)

    assert created(scene.plan()) == ["job-launcher"]
    assert tallies(scene) == {"Launcher": (0, 0, 0), "Worker": (16, 0, 0)}


@both
@pytest.mark.parametrize("workers", [0, None])
def test_a_launcher_without_workers_starts_at_once(version: str, workers: int | None) -> None:
    scene = a_job("MPIJob", version=version).role("Launcher")
    scene = scene if workers is None else scene.role("Worker", workers)

    assert created(scene.plan()) == ["job-launcher"]


def test_a_worker_that_is_no_longer_ready_does_not_touch_a_launcher_that_runs() -> None:
    scene = running().pod("Worker", 1, "Running", ready=False)

    assert deleted(scene.plan()) == []
    assert scene.plan().status.is_true("Running")


@pytest.mark.parametrize("slot", ["launcher-0", "worker-1"])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_the_replicas_restart_policy_reaches_the_pod(slot: str, policy: str) -> None:
    scene = a_job("MPIJob").role("Launcher", 1, policy).role("Worker", 2, policy, restartPolicy="Always")

    member = next(member for member in scene.job.members() if member.slot == slot)

    effective = pod_of(scene.reading.framework, member)["spec"]["restartPolicy"]
    assert effective == ("Never" if policy == "ExitCode" else policy)


# Labels.


def test_pods_of_v1_bear_the_labels_of_training_operator() -> None:
    prefix = "training.kubeflow.org/"

    assert pod_labels(mpi(), "launcher-0") == {
        prefix + "operator-name": "mpijob-controller",
        prefix + "job-name": "job",
        prefix + "replica-type": "launcher",
        prefix + "replica-index": "0",
        prefix + "job-role": "master",
    }
    assert pod_labels(mpi(), "worker-1") == {
        prefix + "operator-name": "mpijob-controller",
        prefix + "job-name": "job",
        prefix + "replica-type": "worker",
        prefix + "replica-index": "1",
    }


def test_with_compat_pods_of_v1_bear_those_of_mpi_operator_too() -> None:
    labels = pod_labels(mpi().having(compat_2021=True), "worker-1")

    own = {"group-name": "kubeflow.org", "mpi-job-name": "job", "mpi-job-role": "worker", "replica-index": "1"}
    assert labels.items() >= own.items()
    assert "training.kubeflow.org/job-name" in labels


@pytest.mark.parametrize(("slot", "role"), [("launcher-0", "launcher"), ("worker-0", "worker")])
def test_pods_of_v1alpha2_bear_the_labels_of_their_time(slot: str, role: str) -> None:
    labels = pod_labels(mpi("v1alpha2"), slot)

    own = {"group_name": "kubeflow.org", "mpi_job_name": "job", "mpi_role_type": role}
    assert labels.items() >= own.items()


# Running.


@pytest.mark.parametrize(
    ("scene", "counts", "is_running"),
    [
        pytest.param(mpi().all("Pending", "Worker").pod("Launcher", 0), ((1, 0, 0), (0, 0, 0)), True, id="pending"),
        pytest.param(mpi().all("Running"), ((1, 0, 0), (2, 0, 0)), True, id="all run"),
        pytest.param(mpi().all("Running", "Worker"), ((0, 0, 0), (2, 0, 0)), False, id="only workers"),
    ],
)
def test_v1_runs_as_soon_as_its_launcher_does(scene: Scene, counts: tuple[Any, Any], is_running: bool) -> None:
    assert tallies(scene) == {"Launcher": counts[0], "Worker": counts[1]}
    assert scene.plan().status.is_true("Running") is is_running


def test_with_compat_v1_runs_when_its_workers_do_too() -> None:
    scene = mpi().having(compat_2021=True).pod("Launcher", 0)

    assert not scene.all("Pending", "Worker").plan().status.is_true("Running")
    assert scene.all("Running", "Worker").plan().status.is_true("Running")


def test_a_settled_job_is_silent() -> None:
    assert (running().plan().actions, running().plan().events) == ((), ())


# Success.


@both
def test_the_job_succeeds_with_its_launcher(version: str) -> None:
    scene = running(version).pod("Launcher", 0, "Succeeded", exit_code=0)

    made = scene.plan()

    assert states(made.status) == ["Created", "Running(False)", "Succeeded"]
    assert made.status.completion_time is not None
    assert tallies(scene) == {"Launcher": (0, 1, 0), "Worker": (0, 2 if version == "v1" else 0, 0)}
    assert [reason for reason, _ in told(made)] == ["MPIJobSucceeded"]


@both
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("None", {"job-launcher", "job-worker-0", "job-worker-1"}),
        ("Running", {"job-launcher", "job-worker-1"}),
        ("All", set()),
    ],
)
def test_pods_are_cleaned_away_by_policy_at_the_end(version: str, policy: str, left: set[str]) -> None:
    scene = running(version, cleanPodPolicy=policy).pod("Worker", 1, "Succeeded", exit_code=0)

    assert set(scene.pod("Launcher", 0, "Succeeded", exit_code=0).settled().pods) == left


@both
def test_files_and_rights_stay_after_the_end(version: str) -> None:
    scene = running(version).pod("Launcher", 0, "Succeeded", exit_code=0).settled()

    assert {kind for kind, _ in scene.others} == {"ConfigMap", "Role", "RoleBinding", "ServiceAccount"}


# Failure.


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("Launcher", "MPIJob job is failed because 1 Launcher replica(s) failed."),
        ("Worker", "MPIJob job is failed because 1 Worker replica(s) failed."),
    ],
)
def test_v1_fails_with_a_launcher_or_a_worker(role: str, message: str) -> None:
    made = running().pod(role, 0, "Failed", exit_code=1).plan()

    failed = made.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("MPIJobFailed", message)
    assert made.status.completion_time is not None


def test_with_compat_a_dead_worker_is_left_to_mpirun_to_notice() -> None:
    scene = running().having(compat_2021=True).pod("Worker", 0, "Failed", exit_code=1)

    assert (scene.plan().status.is_finished, deleted(scene.plan())) == (False, [])


def test_with_compat_the_words_are_those_of_mpi_operator() -> None:
    scene = running().having(compat_2021=True).pod("Launcher", 0, "Failed", exit_code=1)

    failed = scene.plan().status.condition("Failed")

    assert failed is not None
    assert failed.message == "MPIJob default/job has failed"


@pytest.mark.parametrize(("code", "is_replaced"), [(137, True), (1, False)])
def test_exit_codes_decide_whether_a_launcher_of_v1_starts_again(code: int, is_replaced: bool) -> None:
    scene = running(cleanPodPolicy="None").role("Launcher", 1, "ExitCode").pod("Launcher", 0, "Failed", exit_code=code)

    made = scene.plan()

    assert (deleted(made), made.status.is_true("Failed")) == (["job-launcher"] if is_replaced else [], not is_replaced)


def test_a_limit_under_never_gives_no_second_try() -> None:
    scene = running().policy(backoffLimit=3).pod("Launcher", 0, "Failed", exit_code=1)

    assert scene.plan().status.is_true("Failed")


# Eviction.


def evicted(scene: Scene, *workers: int) -> Scene:
    for index in workers:
        scene = scene.pod("Worker", index, "Failed", reason="Evicted")
    return scene


def test_an_evicted_worker_ends_a_job_of_v1_for_good() -> None:
    scene = evicted(running(cleanPodPolicy="Running"), 1)

    made = scene.plan()

    failed = made.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("MPIJobEvicted", "1/2 workers are evicted")
    assert made.status.completion_time is not None
    assert deleted(made) == ["job-worker-0", "job-launcher"]
    assert scene.settled().plan().actions == ()


def test_with_compat_an_evicted_worker_ends_the_job_as_well() -> None:
    assert evicted(running().having(compat_2021=True), 0, 1).plan().status.is_true("Failed")


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(running("v1alpha2"), id="v1alpha2"),
        pytest.param(running().role("Worker", 2, "OnFailure"), id="v1 that restarts"),
    ],
)
def test_an_evicted_worker_that_may_restart_is_replaced(scene: Scene) -> None:
    made = evicted(scene, 1).plan()

    assert (deleted(made), made.status.is_finished) == (["job-worker-1"], False)


# v1alpha2's own.


def hostfile(scene: Scene) -> str:
    return str(body(scene.plan(), "job-config", CONFIG_MAPS)["data"]["hostfile"])


@pytest.mark.parametrize(
    ("distribution", "line"),
    [
        (None, "job-worker-0 slots=4\n"),
        ("OpenMPI", "job-worker-0 slots=4\n"),
        ("IntelMPI", "job-worker-0:4\n"),
        ("MPICH", "job-worker-0:4\n"),
    ],
)
def test_the_hostfile_of_v1alpha2_speaks_the_notation_of_its_distribution(distribution: str | None, line: str) -> None:
    assert hostfile(mpi("v1alpha2", 1, slotsPerWorker=4, mpiDistribution=distribution)) == line


def test_no_rank_runs_on_a_launcher_of_v1alpha2_because_its_gpus_are_hidden() -> None:
    gpu = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    scene = a_job("MPIJob", version="v1alpha2").role("Launcher", containers=[gpu]).role("Worker")
    framework = scene.reading.framework

    env = framework.env(scene.job.members()[0])

    assert hostfile(scene) == "job-worker-0 slots=1\n"
    assert env["NVIDIA_VISIBLE_DEVICES"] == ""


def test_a_launcher_of_v1alpha2_may_restart_so_often() -> None:
    scene = running("v1alpha2", backoffLimit=3)

    assert not scene.pod("Launcher", 0, restarts=2).plan().status.is_finished
    assert scene.pod("Launcher", 0, restarts=3).plan().status.is_true("Failed")


def test_workers_of_v1alpha2_may_restart_for_ever() -> None:
    scene = running("v1alpha2", backoffLimit=0).pod("Worker", 0, restarts=99, ready=True)

    replaced = evicted(scene, 1).after().pod("Worker", 1, "Failed", attempt=1)

    assert not replaced.settled().job.status.is_finished


def test_the_words_of_v1alpha2_are_those_of_its_operator() -> None:
    messages = {c.type: c.message for c in running("v1alpha2").plan().status.conditions}
    again = running("v1alpha2").pod("Launcher", 0, "Failed", exit_code=1).plan().status.condition("Restarting")

    assert messages == {"Created": "MPIJob default/job is created.", "Running": "MPIJob default/job is running."}
    assert again is not None
    assert again.message == "MPIJob default/job is restarting."


def test_the_words_of_v1_are_those_of_training_operator() -> None:
    scene = running().pod("Launcher", 0, "Succeeded", exit_code=0)

    messages = {c.type: c.message for c in scene.plan().status.conditions}

    assert messages == {
        "Created": "MPIJob job is created.",
        "Running": "MPIJob job is running.",
        "Succeeded": "MPIJob job is successfully completed.",
    }


# Names that are taken.


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_a_pod_of_the_name_that_is_anothers_is_not_counted_and_the_name_is_asked_for(role: str) -> None:
    scene = mpi(workers=1).all("Running", "Worker", ready=True).pod(role, 0, "Succeeded", owner="stranger")

    made = scene.plan()

    assert f"job-{role.lower()}" in {name.removesuffix("-0") for name in created(made, PODS)}
    assert made.status.replica_statuses[role] == ReplicaStatus(selector=made.status.replica_statuses[role].selector)


COMPANIONS = [
    ("v1", "ConfigMap", "job-config"),
    ("v1", "Role", "job-launcher"),
    ("v1", "RoleBinding", "job-launcher"),
    ("v1", "ServiceAccount", "job-launcher"),
    ("v2beta1", "ConfigMap", "job-config"),
    ("v2beta1", "Secret", "job-ssh"),
    ("v2beta1", "Service", "job"),
]


@pytest.mark.parametrize("owner", ["", "stranger"], ids=["nobody's", "another's"])
@pytest.mark.parametrize(("version", "kind", "name"), COMPANIONS)
def test_an_object_of_the_name_that_is_anothers_is_left_alone_and_the_name_is_asked_for(
    version: str, kind: str, name: str, owner: str
) -> None:
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    meta = Meta(name=name, namespace="default", uid="x", owner_references=owners)
    scene = mpi(version).other(kind, meta, {})
    if kind == "Service":
        scene = replace(mpi(version), services={name: Service(meta, ServiceSpec())})

    actions = [action for action in scene.plan().actions if (action.resource.kind, action.name) == (kind, name)]

    assert [type(action) for action in actions] == [Create], "the server says that the name is taken"
