"""What holds for all tests."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import machine
from tools import kubectl
from tools.left_out import LeftOut

from trainmaster.cluster.kubelet.launcher import Launcher

# How long an example takes depends on who else uses the machine: no property of ours is about that.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


# What a shell runs in the background ignores Ctrl-C, and so would all that tests start from there.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=("embedded", "kubernetes"),
        default="embedded",
        help="the API server that tests/suite runs the operator on: ours, or a real control plane",
    )
    parser.addoption(
        "--no-namespaces",
        action="store_true",
        help="this machine forbids namespaces on purpose: with CI=true too, tests that need them are left out",
    )


def pytest_configure(config: pytest.Config) -> None:
    meant = {"namespaces"} if config.getoption("--no-namespaces") else set[str]()
    needs = {"kubectl": kubectl.missing, "namespaces": machine.refusal}
    config.pluginmanager.register(LeftOut(needs, meant=meant))
    config.pluginmanager.register(machine.marked)
    guard_launcher()


def guard_launcher() -> None:
    """Only marked tests open one."""
    unguarded = Launcher.open

    async def guarded(root: Path, settings: Mapping[str, Any]) -> Launcher:
        machine.marked.starts_containers()
        return await unguarded(root, settings)

    Launcher.open = guarded  # type: ignore[method-assign]  # a test tool's own doing
