"""A real control plane for the whole session, the CRDs installed, the operator running with exactly its own rights."""

import asyncio
import threading

import pytest
from tests.kubernetes.installed import NAMESPACE, Answers, Recording, connected, install, token_of_operator
from tools.kubernetes.controlplane import control_plane

from trainmaster.kube import config as kubeconfig
from trainmaster.kube.transport import HttpTransport
from trainmaster.operator.install import NAME
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options


@pytest.fixture(scope="session")
def plane():
    with control_plane() as running:
        yield running


@pytest.fixture(scope="session")
def operator(plane, tmp_path_factory):
    """The operator in a thread of its own, as its ServiceAccount; gives the codes of all its answers."""
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    ready, stop = threading.Event(), threading.Event()
    codes: Answers = []

    async def main():
        async with connected(plane.kubeconfig) as admin:
            await install(admin)
            plane.write_kubeconfig(path, NAME, await token_of_operator(admin))
        ready.set()
        stopped = asyncio.Event()
        transport = Recording(HttpTransport(kubeconfig.load(str(path))), codes)
        options = Options(
            metrics_bind_address="0",
            health_probe_bind_address="0",
            leader_elect=True,
            leader_election_namespace=NAMESPACE,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(operate(options, transport, stopped), name="operator")
            await asyncio.to_thread(stop.wait)
            stopped.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="operator")
    thread.start()
    assert ready.wait(60)
    yield codes
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
