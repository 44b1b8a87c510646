"""Elastic Horovod on MPIJob: the list of hosts follows the workers that run, without touching those that stay."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from trainmaster.engine.actions import Patch
from trainmaster.frameworks.mpi_base import HOSTS
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, PODS, ROLES
from trainmaster.testing.scene import Scene, a_job, created, deleted

VERSIONS = ["v1", "v2beta1"]
each_version = pytest.mark.parametrize("version", VERSIONS)


def mpi(version: str = "v1", workers: int = 2, launcher: Json | None = None, **spec: Any) -> Scene:
    return a_job("MPIJob", version=version, **spec).role("Launcher", **(launcher or {})).role("Worker", workers)


def launched(scene: Scene) -> Scene:
    if scene.reading.framework.delegates:
        return scene.delegate("Launcher").delegated_pod("Launcher")
    return scene.pod("Launcher", 0)


def running(version: str = "v1", workers: int = 2, **spec: Any) -> Scene:
    return launched(mpi(version, workers, **spec).all("Running", "Worker", ready=True)).settled()


def hosts(scene: Scene) -> list[str]:
    """What the script that the cluster is to have prints when it is run."""
    observed = scene.observed()
    (config,) = [c.body for c in observed.framework.companions(observed.job) if c.resource == CONFIG_MAPS]
    command = ["/bin/sh", "-c", config["data"]["discover_hosts.sh"]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def named(version: str, *workers: int) -> list[str]:
    return [f"job-worker-{i}:1" if version == "v1" else f"job-worker-{i}.job.default.svc" for i in workers]


@each_version
def test_hosts_are_the_workers_that_run(version: str) -> None:
    scene = launched(mpi(version, 5).pod("Worker", 0).pod("Worker", 1, "Pending").pod("Worker", 2, ready=True))
    scene = scene.pod("Worker", 3, "Failed").pod("Worker", 4, terminating=True)

    assert hosts(scene) == named(version, 0, 2)


@each_version
def test_hosts_are_sorted_by_their_names(version: str) -> None:
    assert hosts(running(version, 11)) == named(version, 0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)


@each_version
def test_pods_of_others_are_no_hosts(version: str) -> None:
    scene = launched(mpi(version).pod("Worker", 0).pod("Worker", 1, owner="stranger"))

    assert hosts(scene) == named(version, 0)


@pytest.mark.parametrize(("slots", "suffix"), [(None, ":1"), (4, ":4")])
def test_v1_tells_the_slots_of_every_host(slots: int | None, suffix: str) -> None:
    assert hosts(running(workers=1, slotsPerWorker=slots)) == [f"job-worker-0{suffix}"]


@pytest.mark.parametrize(("domain", "suffix"), [("", ""), ("example.org", ".example.org")])
def test_v2beta1_tells_names_that_resolve(domain: str, suffix: str) -> None:
    scene = launched(mpi("v2beta1", 1).having(cluster_domain=domain).all("Running", "Worker"))

    assert hosts(scene) == [f"job-worker-0.job.default.svc{suffix}"]


GPU = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}


@pytest.mark.parametrize(
    ("scene", "first"),
    [
        pytest.param(mpi("v1", 1, GPU), "job-launcher:1", id="v1 with GPUs on the launcher"),
        pytest.param(mpi("v2beta1", 1, runLauncherAsWorker=True), "job-launcher.job.default.svc", id="v2beta1"),
    ],
)
def test_a_launcher_that_takes_ranks_comes_first(scene: Scene, first: str) -> None:
    assert hosts(launched(scene.all("Running", "Worker", ready=True)))[0] == first


@each_version
def test_the_script_never_prints_a_blank_line(version: str) -> None:
    assert hosts(mpi(version)) == []
    assert "" not in hosts(running(version))


@each_version
def test_before_anybody_can_ask_nothing_is_written(version: str) -> None:
    scene = mpi(version, launcherCreationPolicy="WaitForWorkersReady").settled()

    assert scene.pod("Worker", 0, ready=True).plan().actions == ()


@each_version
def test_more_workers_are_started_and_join_when_they_run(version: str) -> None:
    scene = running(version).scaled("Worker", 3)

    assert (created(scene.plan()), deleted(scene.plan())) == (["job-worker-2"], [])
    assert hosts(scene) == named(version, 0, 1)
    assert hosts(scene.after().pod("Worker", 2)) == named(version, 0, 1, 2)


@each_version
def test_fewer_workers_leave_from_the_end(version: str) -> None:
    scene = running(version, 3).scaled("Worker", 1)

    assert deleted(scene.plan()) == ["job-worker-1", "job-worker-2"]
    assert hosts(scene) == named(version, 0)
    assert not scene.plan().status.is_finished


def test_where_the_launcher_is_rank_0_scaling_down_still_goes_by_name() -> None:
    scene = running("v2beta1", 3, runLauncherAsWorker=True).scaled("Worker", 2)

    assert deleted(scene.plan()) == ["job-worker-2"]


@each_version
def test_the_launcher_is_not_touched_by_scaling(version: str) -> None:
    before = running(version)

    after = before.scaled("Worker", 4).settled().scaled("Worker", 1).settled()

    assert launchers(after) == launchers(before)


def launchers(scene: Scene) -> set[str]:
    """By UID."""
    pods = {pod.metadata.uid for name, pod in scene.pods.items() if "launcher" in name}
    return pods | {held.metadata.uid for (kind, _), held in scene.others.items() if kind == "Job"}


@each_version
def test_a_change_of_hosts_touches_the_launchers_pod_so_that_it_sees_them_at_once(version: str) -> None:
    scene = running(version)

    patches = [a for a in scene.scaled("Worker", 1).plan().actions if isinstance(a, Patch) and a.resource == PODS]

    assert [patch.name for patch in patches] == [name for name in scene.pods if "launcher" in name]
    (mark,) = [patch.body["metadata"]["annotations"][HOSTS] for patch in patches]
    assert mark != scene.pods[patches[0].name].metadata.annotations[HOSTS]


def test_rights_shrink_and_grow_with_the_workers() -> None:
    scene = running(workers=2).scaled("Worker", 1)

    (patch,) = [a for a in scene.plan().actions if isinstance(a, Patch) and a.resource == ROLES]

    assert all(rule["resourceNames"] == ["job-worker-0"] for rule in patch.body["rules"])


def test_horovod_finds_the_agent_under_the_one_name_that_it_looks_for() -> None:
    scene = mpi("v1")
    env = scene.reading.framework.env(scene.job.members()[0])

    assert env["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
