"""`run` on a cluster whose API server goes away: the user hears of it, and of how the job ended meanwhile."""

import asyncio
import signal
import sys

import pytest
from tests.kubernetes.installed import connected
from tests.kubernetes.operators import staged
from tests.unit.docs.pages import ROOT

from trainmaster import frameworks
from trainmaster.kube.client import Client

PATIENCE = 60.0
JOB = ROOT / "examples" / "01-ring" / "job.yaml"
DONE = [{"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "all ranks are done"}]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("follow"), flags=["--request-timeout=5s"]) as running:
        yield running


class Command:
    """`trainmaster run` as a user has it, without an operator on the other side."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    async def says(self, words: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while not any(words in line for line in self.said):
                line = await self.process.stdout.readline()
                assert line, f"it has ended without a word on {words!r}: {self.said}"
                self.said.append(line.decode())


async def started(kubeconfig) -> Command:
    program = (sys.executable, "-u", "-m", "trainmaster", "run", "--kubeconfig", str(kubeconfig), str(JOB))
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return Command(await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=both))


async def set_conditions(client: Client, conditions: list[dict[str, str]]) -> None:
    found = frameworks.serving("kubeflow.org/v1", "PyTorchJob")
    assert found is not None
    job = await client.get(found[1], "ring", "default")
    moment = "2024-01-01T00:00:00Z"
    dated = [{**one, "lastTransitionTime": moment, "lastUpdateTime": moment} for one in conditions]
    await client.update(found[1], {**job, "status": {"conditions": dated}}, "default", "status")


@pytest.mark.timeout(300)
def test_a_job_is_followed_through_an_outage_of_the_server_to_its_end(stage):
    async def main() -> None:
        command = await started(stage.plane.kubeconfig)
        try:
            async with connected(stage.plane.kubeconfig) as client:
                await _submitted(client, command)
                await asyncio.to_thread(stage.plane.stop_apiserver, signal.SIGKILL)
                await command.says("the API server is not available")
                await asyncio.to_thread(stage.plane.start_apiserver)
                await set_conditions(client, DONE)
                await command.says("the API server is available again")
                await command.says("Succeeded  all ranks are done")
                assert await command.process.wait() == 0
        finally:
            if command.process.returncode is None:
                command.process.kill()

    asyncio.run(main())


async def _submitted(client: Client, command: Command) -> None:
    """Returns when the job is there and is followed."""
    running = [{"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "off it goes"}]
    found = frameworks.serving("kubeflow.org/v1", "PyTorchJob")
    assert found is not None
    watch = client.watch(found[1], "default", resource_version="0", timeout_seconds=int(PATIENCE))
    await anext(event async for event in watch if event.type == "ADDED")
    await set_conditions(client, running)
    await command.says("off it goes")
