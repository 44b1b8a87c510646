"""The helper process that starts containers is killed: pods tell the truth and go on under another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trainmaster.cli.home import trouble_in
from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, Sandbox
from trainmaster.cluster.kubelet.sandbox_ports import PortSandbox
from trainmaster.cluster.kubelet.spawn_init import descendants
from trainmaster.cluster.kubelet.zygote import HelperError, Zygote
from trainmaster.objects.meta import Json
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.podworld import NODE, Lab, PodWorld, a_container, a_pod, running

pytestmark = pytest.mark.sandbox

TIMING = Timing(back_off=0.05, back_off_max=0.2, retry=0.05, coalesce=0.001, helper_back_off=0.01)
WAITS = ("sh", "-c", "echo up; exec sleep 1000")
BOTH = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("root", marks=pytest.mark.namespaces),
        pytest.param("rootless", marks=pytest.mark.namespaces),
        "ports",
    ],
)


@asynccontextmanager
async def a_bed(root: Path, kind: str, timing: Timing = TIMING) -> AsyncIterator[Lab]:
    opened: Sandbox
    if kind == "ports":
        opened = await PortSandbox.open(root)
    else:
        opened = await NamespaceSandbox.open(root, user_namespace=True if kind == "rootless" else None)
    world = PodWorld()
    world.add("Node", {"metadata": {"name": NODE}})
    try:
        async with running(world, root, opened, timing=timing) as kubelet:
            yield Lab(world, kubelet, opened, root)
    finally:
        await opened.close()


def helper_of(lab: Lab) -> int:
    assert isinstance(lab.sandbox, NamespaceSandbox | PortSandbox)
    return lab.sandbox.helper_pid


async def kill_helper(lab: Lab, *, inner: bool = False) -> int:
    """How many processes went: the helper and all that it had started. `inner` is the one in the PID namespace."""
    helper = helper_of(lab)
    handles = []
    for pid in (helper, *descendants(helper)):
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    os.kill(min(descendants(helper)) if inner else helper, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        await lab.sandbox.lost()
        for handle in handles:
            await until_readable(handle)
    return len(handles)


async def until_readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(handle, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def lost_state(lab: Lab, pod: str, field: str = "state") -> tuple[int, str]:
    ended = lab.world.status(pod).get(field, {}).get("terminated") or {}
    return ended.get("exitCode", -1), ended.get("reason", "")


LOST = (137, "ContainerStatusUnknown")


@BOTH
def test_a_pod_that_is_never_restarted_fails_and_says_that_its_end_is_unknown(tmp_path: Path, kind: str) -> None:
    async def main() -> tuple[str, tuple[int, str], str]:
        async with a_bed(tmp_path, kind) as lab:
            lab.world.add("Pod", a_pod("p", *WAITS))
            await lab.until_logged("p", "up")
            await kill_helper(lab)
            phase = await lab.world.finished("p")
            return phase, lost_state(lab, "p"), await lab.ran(a_pod("after", "echo", "hello"))

    assert asyncio.run(main()) == ("Failed", LOST, "hello\n")


@BOTH
def test_a_pod_that_is_restarted_goes_on_under_the_next_helper(tmp_path: Path, kind: str) -> None:
    """Twice in a row."""

    async def main() -> list[tuple[int, tuple[int, str]]]:
        seen = []
        async with a_bed(tmp_path, kind) as lab:
            lab.world.add("Pod", a_pod("p", *WAITS, restartPolicy="OnFailure"))
            for deaths in (1, 2):
                await lab.world.until(lambda: "running" in lab.world.state("p"))
                await kill_helper(lab)
                await lab.world.until(
                    lambda deaths=deaths: (
                        lab.world.status("p").get("restartCount") == deaths  # type: ignore[misc]  # a loop's variable
                        and "running" in lab.world.state("p")
                    )
                )
                seen.append((lab.world.status("p")["restartCount"], lost_state(lab, "p", "lastState")))
            assert "SandboxChanged" in lab.world.reasons()
            assert "ContainerHelperDied" in lab.world.reasons()
        return seen

    assert asyncio.run(main()) == [(1, LOST), (2, LOST)]


@pytest.mark.namespaces
def test_the_end_of_the_process_within_is_the_end_of_the_helper(tmp_path: Path) -> None:
    async def main() -> tuple[tuple[int, str], str]:
        async with a_bed(tmp_path, "root") as lab:
            lab.world.add("Pod", a_pod("p", *WAITS))
            await lab.until_logged("p", "up")
            await kill_helper(lab, inner=True)
            await lab.world.finished("p")
            return lost_state(lab, "p"), await lab.ran(a_pod("after", "echo", "hello"))

    assert asyncio.run(main()) == (LOST, "hello\n")


@BOTH
def test_init_containers_run_again_in_the_new_sandbox(tmp_path: Path, kind: str) -> None:
    async def main() -> str:
        init = a_container("sh", "-c", f"echo made >> {tmp_path}/made", name="init")
        async with a_bed(tmp_path, kind) as lab:
            lab.world.add("Pod", a_pod("p", *WAITS, restartPolicy="Always", initContainers=[init]))
            await lab.until_logged("p", "up")
            await kill_helper(lab)
            await lab.world.until(
                lambda: lab.world.status("p").get("restartCount") == 1 and "running" in lab.world.state("p")
            )
            return (tmp_path / "made").read_text()

    assert asyncio.run(main()) == "made\nmade\n"


@BOTH
def test_a_container_that_was_being_started_is_started_by_the_next_helper(tmp_path: Path, kind: str) -> None:
    """The helper is stopped, so that the request stays without an answer; no attempt of the container is counted."""

    async def main() -> tuple[str, str, int]:
        async with a_bed(tmp_path, kind) as lab:
            helper = helper_of(lab)
            frozen = [helper, *descendants(helper)]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            lab.world.add("Pod", a_pod("p", "echo", "hello"))
            await lab.world.until(lambda: "waiting" in lab.world.state("p"))
            for pid in reversed(frozen):
                os.kill(pid, signal.SIGKILL)
            phase = await lab.world.finished("p")
            return phase, lab.log("p"), lab.world.status("p")["restartCount"]

    assert asyncio.run(main()) == ("Succeeded", "hello\n", 0)


@BOTH
def test_a_container_that_waits_for_its_restart_does_not_hold_the_others_back(tmp_path: Path, kind: str) -> None:
    async def main() -> int:
        timing = Timing(back_off=3600, back_off_max=3600, retry=0.05, coalesce=0.001, helper_back_off=0.01)
        containers: list[Json] = [a_container(*WAITS), a_container("false", name="fails")]
        async with a_bed(tmp_path, kind, timing) as lab:
            lab.world.add("Pod", a_pod("p", containers=containers, restartPolicy="OnFailure"))
            await lab.world.until(
                lambda: "waiting" in lab.world.state("p", "fails") and "running" in lab.world.state("p")
            )
            await lab.world.until(lambda: lab.world.status("p", "fails").get("restartCount") == 1)
            await lab.world.until(lambda: "waiting" in lab.world.state("p", "fails"))
            await kill_helper(lab)
            await lab.world.until(
                lambda: lab.world.status("p").get("restartCount") == 1 and "running" in lab.world.state("p")
            )
            return int(lab.world.status("p")["restartCount"])

    assert asyncio.run(main()) == 1


@BOTH
def test_what_has_left_its_session_does_not_outlive_the_helper(tmp_path: Path, kind: str) -> None:
    async def main() -> int:
        script = "(setsid sleep 1000 &) ; echo up; exec sleep 1000"
        async with a_bed(tmp_path, kind) as lab:
            lab.world.add("Pod", a_pod("p", "sh", "-c", script))
            await lab.until_logged("p", "up")
            gone = await kill_helper(lab)
            await lab.world.finished("p")
            return gone

    assert asyncio.run(main()) >= 4  # the helper, the container's first process, its shell, what has left


@BOTH
def test_a_pod_that_is_deleted_while_there_is_no_helper_goes(tmp_path: Path, kind: str) -> None:
    async def main() -> bool:
        async with a_bed(tmp_path, kind) as lab:
            lab.world.add("Pod", a_pod("p", *WAITS, restartPolicy="Always"))
            await lab.until_logged("p", "up")
            await kill_helper(lab)
            lab.world.delete_pod("p")
            await lab.world.until(lambda: not lab.world.has_pod("p"))
            return lab.world.has_pod("p")

    assert asyncio.run(main()) is False


@BOTH
def test_a_helper_that_cannot_be_started_is_tried_again_and_status_says_so(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Zygote.start

    async def main() -> tuple[str, list[str], str]:
        refusals = asyncio.Semaphore(0)
        left = 3

        async def refused(*arguments: object) -> Zygote:
            nonlocal left
            if left:
                left -= 1
                refusals.release()
                raise HelperError("no room")
            return await start(*arguments)  # type: ignore[arg-type]  # passed on

        async with a_bed(tmp_path, kind) as lab:
            monkeypatch.setattr(Zygote, "start", refused)
            await kill_helper(lab)
            await refusals.acquire()
            await lab.world.until(lambda: "another could not be started: no room" in str(lab.world.events))
            trouble = trouble_in(tmp_path)
            ran = await lab.ran(a_pod("after", "echo", "hello"))
            said = [event.message for event in lab.world.events if event.reason == "ContainerHelperDied"]
            return ran, said, trouble

    ran, said, trouble = asyncio.run(main())

    assert ran == "hello\n"
    assert [f"(attempt {number})" in message for number, message in enumerate(said, 1)] == [True] * 4
    assert [message.partition("again in ")[2].partition(" s")[0] for message in said] == ["0", "0.01", "0.02", "0.04"]
    assert trouble.startswith("no container can start: the helper process that starts containers is gone")
    assert trouble_in(tmp_path) == ""
