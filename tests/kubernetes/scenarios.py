"""All scenarios by name. Each is a talk with one server, which the differential test holds with both."""

from __future__ import annotations

from tests.kubernetes.scenario import Scenario
from tests.kubernetes.scenarios_create import SCENARIOS as CREATE
from tests.kubernetes.scenarios_custom import SCENARIOS as CUSTOM
from tests.kubernetes.scenarios_delete import SCENARIOS as DELETE
from tests.kubernetes.scenarios_http import SCENARIOS as HTTP
from tests.kubernetes.scenarios_patch import SCENARIOS as PATCH
from tests.kubernetes.scenarios_read import SCENARIOS as READ
from tests.kubernetes.scenarios_update import SCENARIOS as UPDATE
from tests.kubernetes.scenarios_watch import SCENARIOS as WATCH

_ALL = (CREATE, READ, UPDATE, PATCH, DELETE, WATCH, CUSTOM, HTTP)
SCENARIOS: dict[str, Scenario] = {name: scenario for some in _ALL for name, scenario in some.all.items()}
