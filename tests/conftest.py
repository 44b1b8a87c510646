"""What holds for all tests."""

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on who else uses the machine: no property of ours is about that.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=("embedded", "kubernetes"),
        default="embedded",
        help="the API server that tests/suite runs the operator on: ours, or a real control plane",
    )
