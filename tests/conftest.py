"""What holds for all tests."""

import signal

import pytest
from hypothesis import HealthCheck, settings

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
