"""All scenarios by name. Each is a talk with one server, which the differential test holds with both."""

from __future__ import annotations

from tests.kubernetes import (
    scenarios_create,
    scenarios_custom,
    scenarios_delete,
    scenarios_http,
    scenarios_patch,
    scenarios_read,
    scenarios_update,
    scenarios_watch,
)
from tests.kubernetes.scenario import Scenario

_MODULES = (
    scenarios_create,
    scenarios_read,
    scenarios_update,
    scenarios_patch,
    scenarios_delete,
    scenarios_watch,
    scenarios_custom,
    scenarios_http,
)
SCENARIOS: dict[str, Scenario] = {name: one for module in _MODULES for name, one in module.SCENARIOS.all.items()}
