"""Golden plans: `<framework>/<case>.input.yaml` is a job, `<case>.plan.yaml` what we do when we first see it.

    GOLDEN_UPDATE=1 pytest tests/golden        (or: make golden)

rewrites the plans; review the diff as code, against the specification. An input may begin with comments that set the
scene: `# settings: {compat_2021: true}` gives fields of `Settings`; `# podgroup: Inqueue` and `# clusterip: 10.96.1.7`
show the pass after the first one, with the PodGroup of the first pass in that phase, or its Services at that address;
`# addresses: 10.0.0.` shows it with all its pods waiting, at addresses that begin so; `# ready: true` with all of them
ready. UIDs and times are masked as `<uid>` and `<now>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from trainmaster import frameworks
from trainmaster.api import reading, status
from trainmaster.api.settings import Settings
from trainmaster.engine.actions import Action, Create, Patch
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Object, Service, mutable
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS, SERVICES

HERE = Path(__file__).parent
INPUT, PLAN = ".input.yaml", ".plan.yaml"
NOW = 1_700_000_000.0
UID = "<uid>"
INPUTS = sorted(HERE.glob(f"*/*{INPUT}"))


class Dumper(yaml.SafeDumper):
    """Scripts as blocks, and everything spelled out: an alias in a plan helps nobody."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, _represent_text)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name.removesuffix(INPUT)}")
def test_the_plan_is_the_golden_one(path: Path) -> None:
    golden = path.with_name(path.name.removesuffix(INPUT) + PLAN)

    text = shown(planned(path.read_text()))
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)

    assert text == golden.read_text()


def test_every_plan_has_its_input() -> None:
    plans = {path.relative_to(HERE).as_posix().removesuffix(PLAN) for path in HERE.glob(f"*/*{PLAN}")}

    assert plans == {path.relative_to(HERE).as_posix().removesuffix(INPUT) for path in INPUTS}


@pytest.mark.parametrize("framework", frameworks.BUILT_IN, ids=lambda framework: framework.name)
def test_every_framework_has_golden_plans(framework: Any) -> None:
    assert len([path for path in INPUTS if path.parent.name == framework.name]) >= 2


def planned(text: str) -> Plan:
    scene = _scene(text)
    settings = msgspec.convert(scene.get("settings", {}), Settings)
    raw = yaml.safe_load(text)
    raw["metadata"]["uid"] = UID
    served = frameworks.serving(raw["apiVersion"], raw["kind"])
    assert served is not None, f"nobody serves {raw['apiVersion']} {raw['kind']}"
    framework, resource = served

    def seen(
        raw: dict[str, Any],
        group: Object | None = None,
        services: tuple[Service, ...] = (),
        pods: tuple[Pod, ...] = (),
    ) -> Plan:
        read = reading.read(framework, raw, settings, resource)
        assert read.job is not None, [str(problem) for problem in read.problems]
        return plan(Observed(read.framework, read.job, pods, services, pod_group=group, advice=read.advice), NOW)

    first = seen(raw)
    following = {**raw, "status": status.render(first.status)}
    if "clusterip" in scene:
        return seen(following, None, tuple(_services(first, scene["clusterip"])))
    if "addresses" in scene:
        return seen(following, None, tuple(_services(first, "None")), tuple(_pods(first, scene["addresses"])))
    if "ready" in scene:
        return seen(following, None, tuple(_services(first, "None")), tuple(_ready_pods(first)))
    if "podgroup" not in scene:
        return first
    group = next(a.body for a in first.actions if isinstance(a, Create) and a.resource.kind == "PodGroup")
    held = msgspec.json.encode({**group, "status": {"phase": scene["podgroup"]}})
    return seen(following, msgspec.json.decode(held, type=Object))


def _services(made: Plan, cluster_ip: str) -> Iterator[Service]:
    """The Services of a plan, as the server stores them."""
    for action in made.actions:
        if isinstance(action, Create) and action.resource == SERVICES:
            yield msgspec.convert({**action.body, "spec": {**action.body["spec"], "clusterIP": cluster_ip}}, Service)


def _pods(made: Plan, addresses: str) -> Iterator[Pod]:
    """The pods of a plan, waiting, each with an address."""
    bodies = [a.body for a in made.actions if isinstance(a, Create) and a.resource == PODS]
    for number, body in enumerate(bodies, start=1):
        yield msgspec.convert({**body, "status": {"phase": "Pending", "podIP": f"{addresses}{number}"}}, Pod)


def _ready_pods(made: Plan) -> Iterator[Pod]:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    bodies = [a.body for a in made.actions if isinstance(a, Create) and a.resource == PODS]
    yield from (msgspec.convert({**body, "status": ready}, Pod) for body in bodies)


def _scene(text: str) -> dict[str, Any]:
    """What the leading comments say beside prose."""
    marks = ("# settings:", "# podgroup:", "# clusterip:", "# addresses:", "# ready:")
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith(marks)]
    return yaml.safe_load("\n".join(lines)) or {}


def shown(made: Plan) -> str:
    document: dict[str, Any] = {"status": status.render(made.status), "actions": _actions(made.actions)}
    if made.events:
        document["events"] = [f"{event.type} {event.reason}: {event.message}" for event in made.events]
    text = yaml.dump(mutable(document), Dumper=Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return text.replace(f"'{timestamp.render(NOW)}'", "<now>")


def _actions(actions: Sequence[Action]) -> list[dict[str, Any]]:
    return [
        {type(action).__name__.lower(): action.body if isinstance(action, Create | Patch) else action.name}
        for action in actions
    ]
