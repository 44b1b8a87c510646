"""What the security fields of a pod promise is kept, and no pod takes the machine with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cluster.otheruser import IS_ROOT

from trainmaster.cli import up
from trainmaster.cluster.kubelet import orphans
from trainmaster.cluster.kubelet.cgroups import Cgroups
from trainmaster.cluster.kubelet.sandbox import Sandbox
from trainmaster.testing.podworld import Lab, a_container, a_lab, a_pod, script

pytestmark = pytest.mark.sandbox

NON_ROOT = {"runAsNonRoot": True}
WILL_BE_ROOT = 'container has runAsNonRoot and image will run as root (pod: "one_default('
BREAKS = "container's runAsUser breaks non-root policy (pod: \"one_default("


def waiting(root: Path, pod: dict[str, Any]) -> tuple[dict[str, Any], list[str], str]:
    """What a container that cannot be configured says, its events, and whether it ran."""

    async def main() -> tuple[dict[str, Any], list[str], str]:
        async with a_lab(root) as lab:
            world = lab.world
            world.add("Pod", pod)
            await world.until(lambda: "reason" in world.state("one").get("waiting", {}) and world.events)
            await world.until(lambda: world.state("one")["waiting"]["reason"] != "ContainerCreating")
            return world.state("one")["waiting"], world.reasons(), lab.log("one")

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("shared", "own", "message"),
    [
        pytest.param({**NON_ROOT, "runAsUser": 0}, {}, BREAKS, id="root-by-number"),
        pytest.param({"runAsUser": 1000}, {**NON_ROOT, "runAsUser": 0}, BREAKS, id="root-in-the-container"),
        *(
            [
                pytest.param(NON_ROOT, {}, WILL_BE_ROOT, id="nothing-said"),
                pytest.param({}, NON_ROOT, WILL_BE_ROOT, id="of-the-container"),
            ]
            if IS_ROOT  # an ordinary user is none anyway
            else []
        ),
    ],
)
def test_what_must_not_run_as_root_waits_with_kubernetes_words(
    tmp_path: Path, shared: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    container = a_container("echo", "ran", securityContext=own)

    state, events, log = waiting(tmp_path, a_pod("one", containers=[container], securityContext=shared))

    assert state["reason"] == "CreateContainerConfigError"
    assert state["message"].startswith(message)
    assert (events.count("Failed"), log) == (1, "")


@pytest.mark.parametrize(
    ("shared", "own"),
    [
        pytest.param({**NON_ROOT, "runAsUser": 1000}, {}, id="another-user"),
        pytest.param({**NON_ROOT, "runAsUser": 0}, {"runAsUser": 1000}, id="the-container-has-the-last-word"),
        pytest.param(NON_ROOT, {"runAsNonRoot": False}, id="the-container-may"),
        *([] if IS_ROOT else [pytest.param(NON_ROOT, {}, id="an-ordinary-user")]),
    ],
)
def test_what_does_not_run_as_root_runs(tmp_path: Path, shared: dict[str, Any], own: dict[str, Any]) -> None:
    container = a_container("echo", "ran", securityContext=own)

    async def main() -> str:
        async with a_lab(tmp_path) as lab:
            return await lab.ran(a_pod("one", containers=[container], securityContext=shared))

    assert asyncio.run(main()) == "ran\n"


MANY = """
import os, time
count = 0
try:
    while count < 300:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError:
    pass
print(count, flush=True)
os._exit(0)
"""


def test_the_limit_of_trainmaster_yaml_holds(tmp_path: Path) -> None:
    container = {"name": "pytorch", "image": "x", "command": list(script(MANY))}
    template = {"spec": {"containers": [container]}}
    job: dict[str, Any] = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "one"}}
    job["spec"] = {"pytorchReplicaSpecs": {"Master": {"template": template}}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    (tmp_path / "trainmaster.yaml").write_text("node: {processes: 40}")
    command = [sys.executable, "-m", "trainmaster", "run", "job.yaml"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    groups = Cgroups.make(orphans.cgroup_name("test"), lambda _: False)
    forks = 39 if "pids" in groups._parents else 300
    assert f"[master-0] {forks}" in done.stdout.splitlines()


def limited(sandbox: Sandbox) -> bool:
    return "pids" in sandbox._launcher._cgroups._parents  # type: ignore[attr-defined]  # what this machine allows


def test_a_pod_that_only_forks_gets_no_more_than_its_limit_and_others_go_on(tmp_path: Path) -> None:
    async def body(lab: Lab) -> tuple[int, str, bool]:
        forks = int(await lab.ran(a_pod("forks", *script(MANY))))
        return forks, await lab.ran(a_pod("other", "sh", "-c", "echo $(echo on)")), limited(lab.sandbox)

    async def main() -> tuple[int, str, bool]:
        async with a_lab(tmp_path, processes=50) as lab:
            return await body(lab)

    forks, other, is_limited = asyncio.run(main())

    assert forks == (49 if is_limited else 300)
    assert other == "on\n"


def test_a_fork_bomb_is_ended_with_its_pod(tmp_path: Path) -> None:
    bomb = "import os\nfor _ in range(6): os.fork()\nprint('up', flush=True)\nimport time; time.sleep(1000)"

    async def main() -> list[str]:
        async with a_lab(tmp_path, processes=100) as lab:
            lab.world.add("Pod", a_pod("bomb", *script(bomb)))
            await lab.until_logged("bomb", "up")
            lab.world.delete_pod("bomb", grace=0)
            await lab.world.until(lambda: not lab.world.has_pod("bomb"))
            return [name for name in os.listdir("/proc") if name.isdigit() and bomb.encode() in _command(name)]

    assert asyncio.run(main()) == []


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("user", "lines"), [(0, 1), (1000, 0)], ids=["root", "an-ordinary-user"])
def test_root_is_told_once_what_pods_may_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user: int, lines: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)

    up._tell(Path("/home/me/cluster"))

    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    assert all("they can read and change every file of this machine" in line for line in told)
