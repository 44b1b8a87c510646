"""How containers end when their cluster is stopped in order: over a small world, with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.machine import BOTH

from trainmaster.cluster.kubelet import ending as ending_module
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.kubelet.sandbox import Kind
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.podworld import Lab, PodWorld, a_container, a_lab, a_pod, script

pytestmark = pytest.mark.sandbox

T = TypeVar("T")

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(1000)"


def saving(path: Path) -> tuple[str, str, str]:
    return "sh", "-c", f"trap 'echo saved >> {path}; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def in_lab(root: Path, body: Callable[[Lab], Awaitable[T]], kind: Kind = "auto") -> T:
    async def main() -> T:
        async with a_lab(root, kind=kind) as lab:
            return await body(lab)

    return asyncio.run(main())


async def begun(lab: Lab, *pods: dict[str, object]) -> None:
    for pod in pods:
        name = lab.world.add("Pod", pod)["metadata"]["name"]
        await lab.until_logged(name, "ready")


def hurried() -> Ending:
    """Somebody loses patience when it has begun."""
    ending = Ending()
    asyncio.get_running_loop().call_later(0.1, ending.hurry.set)
    return ending


@pytest.mark.parametrize("kind", BOTH)
def test_every_container_may_save_before_the_cluster_ends(tmp_path: Path, kind: Kind) -> None:
    saved = [tmp_path / "one", tmp_path / "two"]

    async def body(lab: Lab) -> int:
        await begun(lab, *(a_pod(path.name, *saving(path)) for path in saved))
        await lab.kubelet.end(Ending())
        return sum(worker.running for worker in map(lab.kubelet.worker, ("default",) * 2, ("one", "two")) if worker)

    left = in_lab(tmp_path, body, kind)

    assert [path.read_text() for path in saved] == ["saved\n", "saved\n"]
    assert left == 0


def test_what_ends_with_the_cluster_is_not_reported(tmp_path: Path) -> None:
    """The next cluster in the same place finds what a crash would have left."""

    async def body(lab: Lab) -> tuple[PodWorld, int, int]:
        await begun(lab, a_pod("one", *saving(tmp_path / "one"), restartPolicy="Always"))
        writes, events = lab.world.writes, len(lab.world.events)
        await lab.kubelet.end(Ending())
        return lab.world, lab.world.writes - writes, len(lab.world.events) - events

    world, writes, events = in_lab(tmp_path, body)

    assert (tmp_path / "one").read_text() == "saved\n"
    assert (writes, events) == (0, 0)
    assert world.phase("one") == "Running"
    assert "running" in world.state("one")


def test_a_pod_under_deletion_stays_for_the_next_cluster_to_remove(tmp_path: Path) -> None:
    async def body(lab: Lab) -> bool:
        await begun(lab, a_pod("one", *script(DEAF)))
        lab.world.delete_pod("one", grace=0.2)
        await lab.kubelet.end(Ending())
        return lab.world.has_pod("one")

    assert in_lab(tmp_path, body)


def test_hooks_run_before_the_signal(tmp_path: Path) -> None:
    path = tmp_path / "told"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"echo hook >> {path}"]}}}

    async def body(lab: Lab) -> None:
        await begun(lab, a_pod("one", containers=[a_container(*saving(path), lifecycle=hook)]))
        await lab.kubelet.end(Ending())

    in_lab(tmp_path, body)

    assert path.read_text() == "hook\nsaved\n"


def test_a_container_that_does_not_listen_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    async def body(lab: Lab) -> int:
        await begun(lab, a_pod("one", *script(DEAF), terminationGracePeriodSeconds=0.2))
        worker = lab.kubelet.worker("default", "one")
        assert worker is not None
        process = worker.runners["main"].process
        assert process is not None
        await lab.kubelet.end(Ending())
        assert not process.is_running
        return await process.wait()

    assert in_lab(tmp_path, body) == 137


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(hurried, id="in a hurry"),
        pytest.param(lambda: Ending(limit=0.0), id="without time"),
        pytest.param(lambda: Ending(limit=0.1), id="with less time than the pod would have"),
    ],
)
def test_nobody_need_wait_for_a_container_that_does_not_listen(tmp_path: Path, ending: Callable[[], Ending]) -> None:
    async def body(lab: Lab) -> None:
        await begun(lab, a_pod("one", *script(DEAF), terminationGracePeriodSeconds=1000))
        async with asyncio.timeout(PATIENCE):
            await lab.kubelet.end(ending())

    in_lab(tmp_path, body)


def test_who_waits_is_told_for_how_many_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_module, "_QUIET", 0.1)
    told: list[tuple[int, float]] = []

    async def body(lab: Lab) -> None:
        await begun(lab, *(a_pod(n, *script(DEAF), terminationGracePeriodSeconds=100_000) for n in ("one", "two")))
        chosen = Ending()

        def tell(containers: int, seconds: float) -> None:
            told.append((containers, seconds))
            chosen.hurry.set()

        chosen.tell = tell
        await lab.kubelet.end(chosen)

    in_lab(tmp_path, body)

    [(containers, seconds)] = told
    assert containers == 2
    assert 99_000 < seconds < 100_000


def test_quick_ends_stay_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_module, "_QUIET", PATIENCE)
    told: list[int] = []

    async def body(lab: Lab) -> None:
        await begun(lab, a_pod("one", "sh", "-c", "echo ready; exec sleep 1000"))
        await lab.kubelet.end(Ending(tell=lambda containers, _: told.append(containers)))

    in_lab(tmp_path, body)

    assert told == []


def test_nothing_is_started_while_the_cluster_ends(tmp_path: Path) -> None:
    async def body(lab: Lab) -> list[bool]:
        await begun(lab, a_pod("one", *script(DEAF), terminationGracePeriodSeconds=0.3))
        async with asyncio.TaskGroup() as group:
            over = group.create_task(lab.kubelet.end(Ending()))
            await asyncio.sleep(0)
            lab.world.add("Pod", a_pod("late", "sleep", "1000"))
            await over
        return [lab.kubelet.worker("default", name) is not None for name in ("one", "late")]

    assert in_lab(tmp_path, body) == [True, False]


def test_a_kubelet_that_has_failed_is_not_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_lab(tmp_path) as lab:
            await begun(lab, a_pod("one", *script(DEAF), terminationGracePeriodSeconds=1000))
            kubelet = lab.kubelet
        async with asyncio.timeout(PATIENCE):
            await kubelet.end(Ending())

    asyncio.run(main())
