"""What the machine of these tests allows: namespaces, or not.

Where they are forbidden (a container without --privileged, a CI runner, a notebook server) the embedded cluster gives
each pod ports of its own instead. What behaves the same either way is tested in the sandbox that is there:
`sandbox="auto"`. What only namespaces can do bears `@pytest.mark.namespaces`. There it is left out, and a line at the
end says so.
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
    """A plugin of the test run: refuses to start containers in a test that does not bear the mark.

    So that all tests that depend on the sandbox are found by it.
    """

    def __init__(self) -> None:
        self._running: pytest.Item | None = None

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._running = item

    def starts_containers(self) -> None:
        test = self._running
        assert test is None or test.get_closest_marker(MARK), f"{test.nodeid} starts containers: mark it with {MARK}"


marked = Marked()


class LeftOut:
    """A plugin of the test run: leaves out what the machine cannot do, and says so at the end.

    With several processes each counts its own tests, and all of them count the same.
    """

    KEY = "left_out"

    def __init__(self, config: pytest.Config, *, is_error: bool) -> None:
        self.count = 0
        self._config = config
        self._is_error = is_error

    @pytest.hookimpl(trylast=True)  # after what the command line selects
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanting = [item for item in items if item.get_closest_marker("namespaces")]
        if wanting and refusal():
            self.count = len(wanting)
            self._config.hook.pytest_deselected(items=wanting)
            items[:] = [item for item in items if not item.get_closest_marker("namespaces")]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, object] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[self.KEY] = self.count
        elif self.count and self._is_error and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.count = max(self.count, getattr(node, "workeroutput", {}).get(self.KEY, 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.count:
            line = f"left out: {self.count} tests of what only namespaces can do. Why: {refusal()}"
            terminalreporter.write_line(line, yellow=True)
            if self._is_error:
                terminalreporter.write_line(
                    "CI=true: this is a failure; --no-namespaces says that it is meant", red=True
                )
