"""The kubelet over a small world in memory, with real processes in real namespaces."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from trainmaster.cluster.kubelet.container import Runner
from trainmaster.cluster.kubelet.container_keeper import Keeper
from trainmaster.cluster.kubelet.kubelet_api import Seen, Timing
from trainmaster.cluster.kubelet.launcher import Process
from trainmaster.cluster.kubelet.podscene import Scene
from trainmaster.cluster.kubelet.podworker import PodWorker
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.podworld import NODE, Lab, PodWorld, a_container, a_lab, a_pod, script

pytestmark = pytest.mark.sandbox

T = TypeVar("T")


def in_lab(root: Path, body: Callable[[Lab], Awaitable[T]], timing: Timing | None = None) -> T:
    async def main() -> T:
        async with a_lab(root, timing=timing) as lab:
            return await body(lab)

    return asyncio.run(main())


def test_a_pod_runs_to_success_and_leaves_a_log(tmp_path: Path) -> None:
    async def body(lab: Lab) -> tuple[str, str, PodWorld]:
        lab.world.add("Pod", a_pod("one", "sh", "-c", "echo hello; echo oops >&2"))
        return await lab.world.finished("one"), lab.log("one"), lab.world

    phase, log, world = in_lab(tmp_path, body)

    status = world.pod("one")["status"]
    assert phase == "Succeeded"
    assert sorted(log.splitlines()) == ["hello", "oops"]
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIP"]
    assert world.state("one")["terminated"]["exitCode"] == 0
    assert world.state("one")["terminated"]["reason"] == "Completed"
    assert {c["type"]: (c["status"], c.get("reason")) for c in status["conditions"]} == {
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
    }


@pytest.mark.namespaces
def test_pods_and_their_machine_have_addresses_of_their_own(tmp_path: Path) -> None:
    async def body(lab: Lab) -> tuple[str, str]:
        await lab.ran(a_pod("one", "true"))
        status = lab.world.pod("one")["status"]
        return status["podIP"], status["hostIP"]

    assert in_lab(tmp_path, body) == ("10.244.0.2", "10.244.0.1")


def test_a_pod_fails_with_the_code_and_the_message_of_its_container(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", "sh", "-c", "echo because > /dev/termination-log; exit 9"))
        assert await lab.world.finished("one") == "Failed"
        return lab.world

    ended = in_lab(tmp_path, body).state("one")["terminated"]

    assert (ended["exitCode"], ended["reason"], ended["message"]) == (9, "Error", "because\n")


def test_a_running_pod_is_ready_and_ends_when_it_is_deleted(tmp_path: Path) -> None:
    async def body(lab: Lab) -> tuple[dict[str, object], int]:
        world = lab.world
        world.add("Pod", a_pod("one", "sleep", "1000"))
        await world.until(lambda: world.phase("one") == "Running")
        status, process = world.status("one"), process_of(lab, "one")
        world.delete_pod("one", grace=1000)
        code = await process.wait()
        await world.until(lambda: not world.has_pod("one"))
        return status, code

    status, code = in_lab(tmp_path, body)

    assert status["ready"] is True
    assert status["started"] is True
    assert "running" in status["state"]  # type: ignore[operator]  # JSON
    assert code == 143  # SIGTERM was enough: no waiting for the end of the grace period


def test_a_pod_that_ignores_sigterm_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(1000)"

    async def body(lab: Lab) -> int:
        lab.world.add("Pod", a_pod("one", *script(deaf)))
        await lab.until_logged("one", "deaf")
        process = process_of(lab, "one")
        lab.world.delete_pod("one", grace=0.3)
        code = await process.wait()
        await lab.world.until(lambda: not lab.world.has_pod("one"))
        return code

    assert in_lab(tmp_path, body) == 137


def process_of(lab: Lab, pod: str) -> Process:
    worker = lab.kubelet.worker("default", pod)
    process = worker.runners["main"].process if worker else None
    assert process is not None
    return process


def test_a_pod_deleted_by_force_is_ended_at_once(tmp_path: Path) -> None:
    async def body(lab: Lab) -> None:
        world = lab.world
        world.add("Pod", a_pod("one", "sleep", "1000"))
        await world.until(lambda: world.phase("one") == "Running")
        process = process_of(lab, "one")
        world.remove("Pod", "one")
        assert await process.wait() == 137

    in_lab(tmp_path, body)


@pytest.mark.namespaces
def test_pods_find_one_another_and_services_by_name(tmp_path: Path) -> None:
    names = ["one", "one.default", "one.default.svc", "one.default.svc.cluster.local", "front", "front.default.svc"]
    look = (
        f"NAMES = {[*names, 'me.sub']}"
        + """
import socket
for name in NAMES:
    print(name, socket.gethostbyname(name))
print(socket.gethostname())
try: socket.gethostbyname("example.com")
except OSError: print("no such name")
"""
    )

    async def body(lab: Lab) -> str:
        world = lab.world
        world.add("Service", {"metadata": {"name": "front"}, "spec": {"selector": {"app": "one"}, "clusterIP": "None"}})
        world.add("Pod", a_pod("one", "sleep", "1000"))
        await world.until(lambda: world.phase("one") == "Running")
        return await lab.ran(a_pod("two", *script(look), hostname="me", subdomain="sub"))

    seen = in_lab(tmp_path, body).splitlines()

    assert [line.split()[1] for line in seen[:6]] == ["10.244.0.2"] * 6
    assert seen[6] == "me.sub 10.244.0.3"
    assert seen[7:] == ["me", "no such name"]


def test_pods_of_other_nodes_are_left_alone(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        other = a_pod("other", "true")
        other["spec"]["nodeName"] = "elsewhere"
        lab.world.add("Pod", other)
        lab.world.add("Pod", a_pod("one", "true"))
        await lab.world.finished("one")
        return lab.world

    world = in_lab(tmp_path, body)

    assert "status" not in world.pod("other")
    assert world.pod("one")["spec"]["nodeName"] == NODE


def test_a_pod_bound_later_is_started_then(tmp_path: Path) -> None:
    async def body(lab: Lab) -> str:
        pod = a_pod("one", "true")
        del pod["spec"]["nodeName"]
        held = lab.world.add("Pod", pod)
        lab.world.add("Pod", {**held, "spec": {**held["spec"], "nodeName": NODE}})
        return await lab.world.finished("one")

    assert in_lab(tmp_path, body) == "Succeeded"


def test_containers_lost_with_the_last_cluster_fail_or_restart_by_policy(tmp_path: Path) -> None:
    running = {
        "phase": "Running",
        "startTime": "2024-01-01T00:00:00Z",
        "containerStatuses": [
            {"name": "main", "restartCount": 2, "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}}}
        ],
    }

    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", {**a_pod("never", "true"), "status": running})
        lab.world.add("Pod", {**a_pod("again", "sh", "-c", "exit 0", restartPolicy="OnFailure"), "status": running})
        await lab.world.finished("never")
        await lab.world.finished("again")
        return lab.world

    world = in_lab(tmp_path, body)

    assert world.phase("never") == "Failed"
    assert world.state("never")["terminated"]["exitCode"] == 137
    assert world.phase("again") == "Succeeded"
    assert world.status("again")["restartCount"] == 3
    assert world.status("again")["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_finished_pod_of_the_last_cluster_is_not_run_again(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", {**a_pod("done", "false"), "status": {"phase": "Succeeded"}})
        lab.world.add("Pod", a_pod("one", "true"))
        await lab.world.finished("one")
        lab.world.delete_pod("done")
        await lab.world.until(lambda: not lab.world.has_pod("done"))
        return lab.world

    world = in_lab(tmp_path, body)

    assert world.reasons() == ["Started"]


def test_status_writes_are_few(tmp_path: Path) -> None:
    """However slow the machine: what changes within half a second is written once, but for the end."""

    async def body(lab: Lab) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        lab.world.add("Pod", a_pod("one", "true", containers=[a_container("true", name=f"c{n}") for n in range(5)]))
        await lab.world.finished("one")
        return lab.world.writes, loop.time() - began

    writes, seconds = in_lab(tmp_path, body, Timing(coalesce=0.5))

    assert writes <= 1 + seconds // 0.5


async def removed(lab: Lab, *names: str) -> None:
    """Deletes pods and returns when the kubelet has nothing more to do for them."""
    for name in names:
        lab.world.delete_pod(name)
    await lab.world.until(lambda: not any(lab.world.has_pod(name) for name in names))
    await left_alone(*names)


async def left_alone(*names: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while left := [task for task in asyncio.all_tasks() if task.get_name() in {f"pod {name}" for name in names}]:
            await asyncio.wait(left)


@pytest.mark.parametrize(("retention", "is_kept"), [(3600.0, True), (0.0, False)])
def test_logs_outlive_the_pod_until_their_time_is_over(tmp_path: Path, retention: float, is_kept: bool) -> None:
    async def body(lab: Lab) -> bool:
        uid = lab.world.add("Pod", a_pod("one", "echo", "hello"))["metadata"]["uid"]
        await lab.world.finished("one")
        await removed(lab, "one")
        log = tmp_path / "pods" / uid / "main" / "0.log"
        async with asyncio.timeout(PATIENCE):
            while not is_kept and log.exists():
                await asyncio.to_thread(str)  # others' turn
        return bool(log.exists())

    assert in_lab(tmp_path, body, Timing(log_retention=retention)) is is_kept


def referenced(lab: Lab, *kinds: type) -> Counter[str]:
    """How many objects of these types this kubelet's pods are made of."""
    gc.collect()
    house = lab.kubelet.house
    found = Counter[str]()
    for one in gc.get_objects():
        if isinstance(one, kinds):
            scene = one if isinstance(one, Scene) else getattr(one, "scene", None) or getattr(one, "_scene", None)
            found[type(one).__name__] += scene is not None and scene.house is house
    return +found


def test_of_a_pod_that_has_ended_only_what_its_logs_and_its_removal_need_is_kept(tmp_path: Path) -> None:
    names = [f"pod-{number}" for number in range(3)]

    async def body(lab: Lab) -> list[Counter[str]]:
        counted = []
        for name in names:
            lab.world.add("Pod", a_pod(name, "echo", "hello", volumes=[{"name": "v", "emptyDir": {}}]))
        for name in names:
            await lab.world.finished(name)
        async with asyncio.timeout(PATIENCE):
            while any(worker.runners for worker in lab.kubelet._workers.values()):
                await asyncio.to_thread(str)
        counted.append(referenced(lab, Runner, Keeper, PodWorker, Scene))
        assert [lab.log(name) for name in names] == ["hello\n"] * 3
        assert not any(worker.scene.volumes._volumes for worker in lab.kubelet._workers.values())
        await removed(lab, *names)
        counted.append(referenced(lab, Runner, Keeper, PodWorker, Scene))
        assert (lab.kubelet._workers, len(lab.kubelet._logs)) == ({}, 3)
        assert not lab.kubelet._done
        return counted

    assert in_lab(tmp_path, body) == [Counter(PodWorker=3, Scene=3), Counter()]


def test_twenty_pods_at_once_all_run_and_leave_nothing(tmp_path: Path) -> None:
    async def body(lab: Lab) -> list[str]:
        world = lab.world
        names = [f"pod-{number}" for number in range(20)]
        for name in names:
            world.add("Pod", a_pod(name, "true"))
        phases = [await world.finished(name) for name in names]
        for name in names:
            world.delete_pod(name)
        await world.until(lambda: not any(world.has_pod(name) for name in names))
        return phases

    assert in_lab(tmp_path, body) == ["Succeeded"] * 20


def test_a_change_that_comes_late_does_not_start_a_pod_again(tmp_path: Path) -> None:
    async def body(lab: Lab) -> tuple[bool, list[str]]:
        world = lab.world
        world.add("Pod", a_pod("one", "true"))
        await world.finished("one")
        late = {**world.pod("one"), "status": {"phase": "Running"}}
        world.delete_pod("one")
        world.is_deaf = True
        await world.until(lambda: not world.has_pod("one"))
        world.is_deaf = False
        await left_alone("one")
        await lab.ran(a_pod("two", "true"))
        is_forgotten = lab.kubelet.worker("default", "one") is None
        world.tell("Pod", Seen("MODIFIED", late))
        world.tell("Pod", Seen("DELETED", late))
        await lab.ran(a_pod("three", "true"))
        return is_forgotten, world.reasons()

    assert in_lab(tmp_path, body) == (True, ["Started"] * 3)


def test_a_watch_that_ends_is_begun_again_and_what_went_is_noticed(tmp_path: Path) -> None:
    async def body(lab: Lab) -> int:
        world = lab.world
        world.add("Pod", a_pod("one", "sleep", "1000"))
        await world.until(lambda: world.phase("one") == "Running")
        process = process_of(lab, "one")
        world.is_deaf = True
        world.remove("Pod", "one")
        world.is_deaf = False
        world.end_watches()
        code = await process.wait()
        await lab.ran(a_pod("two", "true"))
        return code

    assert in_lab(tmp_path, body) == 137


def test_a_pod_deleted_before_it_could_start_is_gone(tmp_path: Path) -> None:
    async def body(lab: Lab) -> list[str]:
        world = lab.world
        world.add("Pod", a_pod("one", "true", volumes=[{"name": "v", "configMap": {"name": "absent"}}]))
        await world.until(lambda: "FailedMount" in world.reasons())
        world.delete_pod("one")
        await world.until(lambda: not world.has_pod("one"))
        return world.reasons()

    assert in_lab(tmp_path, body) == ["FailedMount"]


@pytest.mark.namespaces  # without them the address is this machine's
def test_a_container_is_told_the_addresses_of_services(tmp_path: Path) -> None:
    async def body(lab: Lab) -> str:
        ports = [{"port": 80, "targetPort": 80}]
        spec = {"selector": {"app": "one"}, "clusterIP": "10.96.0.7", "ports": ports}
        lab.world.add("Service", {"metadata": {"name": "front"}, "spec": spec})
        return await lab.ran(a_pod("two", "sh", "-c", "echo $FRONT_SERVICE_HOST"))

    assert in_lab(tmp_path, body) == "10.96.0.7\n"
