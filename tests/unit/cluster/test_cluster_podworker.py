"""Status, names and limits: the pure parts of a pod's life, and where its worker meets trouble."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.kubelet import orphans
from trainmaster.cluster.kubelet.cgroups import Cgroups, process_limit
from trainmaster.cluster.kubelet.hosts import Hosts, hostname_of
from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.podstatus import Record, View, phase_of, status_of, view_of
from trainmaster.cluster.kubelet.stopping import Stop
from trainmaster.objects.meta import Json
from trainmaster.testing import clock
from trainmaster.testing.podworld import a_lab, a_pod

DONE: Json = {"terminated": {"exitCode": 0}}
BROKEN: Json = {"terminated": {"exitCode": 1}}
GOING: Json = {"running": {}}
WAITING: Json = {"waiting": {"reason": "ContainerCreating"}}
LOOPING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}


def a_view(*states: Json, init: tuple[Json, ...] = (), **fields: Any) -> View:
    def record(number: int, state: Json) -> Record:
        return Record(f"c{number}", "", state, BROKEN if state is LOOPING else {})

    containers = [record(number, state) for number, state in enumerate(states)]
    return View(containers, [record(number, state) for number, state in enumerate(init)], 0.0, **fields)


@pytest.mark.parametrize(
    ("policy", "view", "phase"),
    [
        pytest.param("Never", a_view(WAITING), "Pending", id="not-started"),
        pytest.param("Never", a_view(GOING, WAITING), "Pending", id="one-not-started"),
        pytest.param("Never", a_view(GOING), "Running", id="running"),
        pytest.param("Never", a_view(GOING, BROKEN), "Running", id="one-failed"),
        pytest.param("Never", a_view(DONE, DONE), "Succeeded", id="all-done"),
        pytest.param("Never", a_view(DONE, BROKEN), "Failed", id="some-failed"),
        pytest.param("OnFailure", a_view(DONE, LOOPING), "Running", id="to-be-restarted"),
        pytest.param("OnFailure", a_view(DONE), "Succeeded", id="on-failure-done"),
        pytest.param("Always", a_view(DONE), "Running", id="always"),
        pytest.param("Always", a_view(DONE, is_over=True), "Succeeded", id="always-deleted"),
        pytest.param("Never", a_view(WAITING, init=(GOING,)), "Pending", id="initializing"),
        pytest.param("Never", a_view(WAITING, init=(BROKEN,)), "Failed", id="init-failed"),
        pytest.param("OnFailure", a_view(WAITING, init=(BROKEN,)), "Pending", id="init-restarts"),
        pytest.param("Never", a_view(WAITING, is_over=True), "Failed", id="deleted-before-it-started"),
        pytest.param("Never", a_view(GOING, reason="DeadlineExceeded"), "Running", id="ending"),
        pytest.param("Never", a_view(BROKEN, reason="DeadlineExceeded"), "Failed", id="ended"),
    ],
)
def test_the_phase_follows_from_the_containers(policy: str, view: View, phase: str) -> None:
    assert phase_of(a_pod("p", "true", restartPolicy=policy), view) == phase


def test_conditions_of_others_stay_and_transitions_are_dated_once() -> None:
    pod = a_pod("p", "true")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    pod["status"] = {"qosClass": "BestEffort", "conditions": [scheduled]}
    view = view_of(pod, 1000.0)

    first = status_of(pod, view, 1000.0)
    later = status_of(pod, view, 2000.0, first)

    assert first["qosClass"] == "BestEffort"
    assert first["conditions"][0] == scheduled
    assert later == first
    ready = next(condition for condition in first["conditions"] if condition["type"] == "Ready")
    assert ready["message"] == "containers with unready status: [main]"


def test_a_readiness_gate_holds_the_pod_back() -> None:
    pod = a_pod("p", "true", readinessGates=[{"conditionType": "example.com/gate"}])
    view = view_of(pod, 0.0)
    view.containers[0].state, view.containers[0].is_ready = GOING, True

    conditions = {c["type"]: c for c in status_of(pod, view, 0.0)["conditions"]}

    assert conditions["ContainersReady"]["status"] == "True"
    assert conditions["Ready"]["reason"] == "ReadinessGatesNotReady"


def named(name: str, **fields: Any) -> dict[str, Any]:
    pod = a_pod(name, "true", **fields)
    pod["metadata"]["uid"] = f"uid-of-{name}"
    return pod


def test_names_come_and_go_with_pods_and_services(tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        hosts = Hosts(tmp_path)
        hosts.add_pod(named("a"), "10.244.0.2")
        hosts.set_service({"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "a"}}})
        hosts.add_pod(named("b"), "10.244.0.3")
        before = hosts.file_of(named("a")).read_text()
        hosts.remove_pod(named("a"))
        hosts.add_pod({**named("a"), "metadata": {**named("a")["metadata"], "uid": "another"}}, "10.244.0.9")
        after = hosts.file_of(named("b")).read_text()
        hosts.close()
        return before, after

    before, after = asyncio.run(main())

    assert "10.244.0.2 s s.default s.default.svc s.default.svc.cluster.local\n" in before
    assert "10.244.0.3 b b.default b.default.svc b.default.svc.cluster.local\n" in before
    assert "10.244.0.2" not in after
    assert "10.244.0.9 a a.default" in after
    assert "10.244.0.9 s s.default" in after


def test_a_pod_and_a_service_of_one_name_have_one_line(tmp_path: Path) -> None:
    async def main() -> list[str]:
        hosts = Hosts(tmp_path)
        service = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"selector": {"app": "a"}}}
        hosts.add_pod(named("a"), "10.244.0.2")
        hosts.set_service(service)
        hosts.remove_pod(named("a"))
        hosts.add_pod(named("a"), "10.244.0.3")
        hosts.close()
        return hosts.file_of(named("a")).read_text().splitlines()

    lines = asyncio.run(main())

    assert [line for line in lines if " a " in line] == [
        "10.244.0.3 a a.default a.default.svc a.default.svc.cluster.local"
    ]
    assert len(lines) == len(set(lines))


def test_a_pod_with_aliases_has_a_file_of_its_own(tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        hosts = Hosts(tmp_path, {"kubernetes.default.svc": "10.244.0.1"})
        special = named("a", hostAliases=[{"ip": "1.2.3.4", "hostnames": ["x", "y"]}])
        own = hosts.file_of(special)
        hosts.add_pod(special, "10.244.0.2")
        hosts.add_pod(named("b"), "10.244.0.3")
        return own.read_text(), hosts.file_of(named("b")).read_text()

    own, shared = asyncio.run(main())

    assert own.startswith("1.2.3.4 x y\n")
    assert "10.244.0.3 b " in own
    assert "1.2.3.4" not in shared
    assert "10.244.0.1 kubernetes.default.svc\n" in shared


def test_a_host_name_is_cut_to_what_a_kernel_takes() -> None:
    assert hostname_of(named("x" * 62 + "-yy")) == "x" * 62


def test_an_order_to_stop_can_become_more_urgent_but_not_less() -> None:
    async def main() -> float:
        stop = Stop()
        stop.order(100)
        stop.order(200)
        asyncio.get_running_loop().call_later(10, stop.order, 5)
        await stop.due()
        return asyncio.get_running_loop().time()

    assert clock.run(main()) == 15


def test_a_nap_is_cut_short_by_the_order_to_stop() -> None:
    async def main() -> tuple[bool, bool]:
        stop = Stop()
        full = await stop.sleep(10)
        asyncio.get_running_loop().call_later(1, stop.order, 0)
        return full, await stop.sleep(1000)

    assert clock.run(main()) == (False, True)


def never(_name: str) -> bool:
    return False


def a_cgroup_tree(root: Path, *, version: int) -> Path:
    """A /proc and a hierarchy such as the kernel shows them."""
    proc, base = root / "proc", root / "cgroup"
    proc.mkdir()
    if version == 2:
        (base / "mine").mkdir(parents=True)
        (base / "cgroup.controllers").write_text("cpu memory pids")
        (proc / "cgroup").write_text("0::/mine\n")
        (proc / "mounts").write_text(f"cgroup2 {base} cgroup2 rw 0 0\n")
    else:
        for controller in ("memory", "pids"):
            (base / controller / "mine").mkdir(parents=True)
        (proc / "cgroup").write_text("4:memory:/mine\n8:pids:/mine\n1:cpu:/\n")
        lines = [f"cgroup {base}/{name} cgroup rw,{name} 0 0\n" for name in ("memory", "pids")]
        (proc / "mounts").write_text("".join(lines))
    return proc


@pytest.mark.parametrize(
    ("version", "limit"),
    [pytest.param(1, "memory.limit_in_bytes", id="v1"), pytest.param(2, "memory.max", id="v2")],
)
def test_memory_limits_are_written_for_either_version(tmp_path: Path, version: int, limit: str) -> None:
    cgroups = Cgroups.make("ours", never, a_cgroup_tree(tmp_path, version=version))
    parent = cgroups.directories[0]
    if version == 2:
        (parent / "pod").mkdir(parents=True)
        (parent / "pod" / "cgroup.controllers").touch()

    group = cgroups.create("pod", 1 << 20, None)

    assert parent.parent.name == "mine"
    assert (group.directories["memory"] / limit).read_text() == "1048576"
    assert group.joins == [str(parent / "pod" / "cgroup.procs")]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("memory.events", "low 0\noom 1\noom_kill 1\n", id="v2"),
        pytest.param("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", id="v1"),
    ],
)
def test_an_oom_kill_is_read_from_the_group(tmp_path: Path, file: str, text: str) -> None:
    group = Cgroups.make("ours", never, a_cgroup_tree(tmp_path, version=1)).create("pod", 1, None)

    assert not group.was_oom_killed()
    (group.directories["memory"] / file).write_text(text)
    assert group.was_oom_killed()


@pytest.mark.parametrize("version", [1, 2])
def test_processes_are_limited_for_each_container_and_for_all_together(tmp_path: Path, version: int) -> None:
    cgroups = Cgroups.make("ours", never, a_cgroup_tree(tmp_path, version=version))

    group = cgroups.create("pod", None, None, 100)

    directory = group.directories["pids"]
    assert (directory / "pids.max").read_text() == "100"
    assert int((directory.parent / "pids.max").read_text()) >= 2 * (process_limit(None) or 0)
    assert group.joins == [str(directory / "cgroup.procs")]


@pytest.mark.parametrize(("asked", "limit"), [(100, 100), (-1, None)])
def test_the_limit_of_processes_is_what_was_asked_for(asked: int, limit: int | None) -> None:
    assert process_limit(asked) == limit


def test_the_usual_limit_of_processes_leaves_most_of_them_to_the_machine() -> None:
    room = min(int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max"))

    assert 0 < (process_limit(None) or 0) <= room // 4


def test_limits_are_set_below_the_nearest_group_that_passes_them_on(tmp_path: Path) -> None:
    """As for a user of a desktop: a group with processes in it takes no limits below it, the one above may."""
    proc = a_cgroup_tree(tmp_path, version=2)
    (proc / "cgroup").write_text("0::/user/app/terminal\n")
    terminal = tmp_path / "cgroup" / "user" / "app" / "terminal"
    (terminal / "cgroup.subtree_control").mkdir(parents=True)  # writing there fails, as in the kernel

    cgroups = Cgroups.make("ours", never, proc)

    assert cgroups.directories == [terminal.parent / "ours"]


def test_a_group_that_processes_may_not_leave_for_ours_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = a_cgroup_tree(tmp_path, version=2)
    theirs = tmp_path / "cgroup" / "mine" / "cgroup.procs"
    theirs.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path != theirs)

    cgroups = Cgroups.make("ours", never, proc)

    assert cgroups.directories == [tmp_path / "cgroup" / "ours"]


def test_a_process_without_the_right_has_no_limits(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")

    cgroups = Cgroups.make("ours", never, tmp_path)

    assert not cgroups.can_limit
    assert cgroups.create("pod", 1, 1.0).joins == []


def test_groups_that_a_dead_cluster_left_are_removed_and_no_others(tmp_path: Path) -> None:
    proc = a_cgroup_tree(tmp_path, version=1)
    groups = tmp_path / "cgroup" / "memory" / "mine"
    alive = orphans.cgroup_name("token")
    for name in (alive, "trainmaster-1-1-token", "somebody-else"):
        (groups / name / "pod").mkdir(parents=True)

    Cgroups.make("ours", orphans.is_stale_cgroup, proc)

    assert sorted(path.name for path in groups.iterdir()) == sorted([alive, "somebody-else"])


@pytest.mark.sandbox
def test_a_status_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    async def main() -> str:
        async with a_lab(tmp_path, timing=Timing(retry=0.01)) as lab:
            lab.world.failures = 2
            lab.world.add("Pod", a_pod("one", "true"))
            return await lab.world.finished("one")

    assert asyncio.run(main()) == "Succeeded"
