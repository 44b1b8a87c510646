"""What the machine of these tests allows: namespaces, or not.

Where they are forbidden (a container without --privileged, a CI runner, a notebook server) the embedded cluster gives
each pod ports of its own instead. What behaves the same either way is tested in the sandbox that is there:
`sandbox="auto"`. What only namespaces can do bears `@pytest.mark.namespaces`, and is left out there (`tools.left_out`).
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path

import pytest

from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, SandboxError

MARK = "sandbox"
"""On tests that start containers: what they show may depend on the machine. `make test-sandbox` runs just these."""

BOTH = [pytest.param("namespaces", marks=pytest.mark.namespaces), "ports"]
"""The sandboxes, as parameters of a test that tries each."""


@functools.cache
def refusal() -> str:
    """Why this machine makes no namespaces; empty where it does. A sandbox is opened to find out."""

    async def opened() -> None:
        with tempfile.TemporaryDirectory() as root:
            sandbox = await NamespaceSandbox.open(Path(root))
            await sandbox.close()

    try:
        asyncio.run(opened())
    except SandboxError as error:
        return str(error)
    return ""


class Marked:
    """A plugin of the test run: of the tests of `make test`, those that do not bear the mark may start no containers.

    So that all tests that depend on the sandbox are found by it.
    """

    def __init__(self) -> None:
        self._running: pytest.Item | None = None

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._running = item

    def starts_containers(self) -> None:
        test = self._running
        if test is not None and test.nodeid.startswith(tuple(test.config.getini("testpaths"))):
            assert test.get_closest_marker(MARK), f"{test.nodeid} starts containers: mark it with {MARK}"


marked = Marked()
