"""MSJobs under `--strict-topology`: replicas that could not find one another are refused, not warned of."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster import frameworks
from trainmaster.api.settings import Settings
from trainmaster.cli.app import app
from trainmaster.objects.resource import EVENTS, PODS, SERVICES
from trainmaster.operator.webhook import Admission
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, conditions_of, operating, quiet, submit
from trainmaster.testing.scene import Scene, a_job, told

REPLICAS = "spec.msReplicaSpecs[Scheduler].replicas: Invalid value"
ONE = "must be 1, because all meet at one scheduler; set it to 1"
MISSING = "spec.msReplicaSpecs[Scheduler]: Required value"
ADD = "could not find one another without it; add one with 1 replica"


def an_msjob(**roles: int) -> Scene:
    scene = a_job("MSJob", "j")
    for role, replicas in roles.items():
        scene = scene.role(role, replicas)
    return scene


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        pytest.param({"Scheduler": 2, "Worker": 2}, f"{REPLICAS}: 2: {ONE}", id="two schedulers"),
        pytest.param({"Scheduler": 0, "Worker": 2}, f"{REPLICAS}: 0: {ONE}", id="a scheduler of none"),
        pytest.param({"Scheduler": 0, "Worker": 1}, f"{REPLICAS}: 0: {ONE}", id="of none, for a lone worker"),
        pytest.param({"Worker": 4}, f"{MISSING}: 4 Worker {ADD}", id="workers alone"),
        pytest.param({"PS": 2, "Worker": 1}, f"{MISSING}: 2 PS and 1 Worker {ADD}", id="servers and a worker"),
        pytest.param({"PS": 1}, f"{MISSING}: 1 PS {ADD}", id="a server alone"),
    ],
)
def test_replicas_that_could_not_meet_are_refused_with_field_value_and_remedy(
    roles: dict[str, int], problem: str
) -> None:
    read = an_msjob(**roles).having(strict_topology=True).reading

    assert [str(one) for one in read.problems] == [problem]
    assert all("Scheduler" not in advice.message for advice in read.advice)


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param({"Worker": 1}, id="a lone worker"),
        pytest.param({"Scheduler": 1, "PS": 2, "Worker": 1}, id="servers and one worker"),
        pytest.param({"Scheduler": 1, "Worker": 4}, id="data-parallel"),
        pytest.param({"Scheduler": 1, "PS": 2, "Worker": 4}, id="servers and workers"),
    ],
)
def test_the_topologies_of_the_manual_are_let_in(roles: dict[str, int]) -> None:
    assert an_msjob(**roles).having(strict_topology=True).problems == []


def test_a_job_without_workers_is_warned_of_as_ever() -> None:
    plan = an_msjob(Scheduler=1).having(strict_topology=True).plan()

    assert [reason for reason, message in told(plan) if "never succeeds" in message] == ["UnusualTopology"]


def test_a_job_that_has_begun_is_let_be() -> None:
    scene = an_msjob(Worker=2).all("Running").settled()

    plan = scene.having(strict_topology=True).all("Succeeded", exit_code=0).plan()

    assert plan.status.is_true("Succeeded")


@pytest.mark.parametrize(("strict", "end"), [(True, ("Failed", "True")), (False, ("Created", "True"))])
def test_the_operator_fails_such_a_job_before_anything_is_made(strict: bool, end: tuple[str, str]) -> None:
    api, job = an_api(), an_msjob(Worker=2).manifest

    async def main() -> None:
        async with operating(api, strict_topology=strict):
            submit(api, job)
            await quiet(api)

    clock.run(main())

    reasons = [event["reason"] for event in api.objects(EVENTS)]
    assert conditions_of(api, job)[-1] == end
    assert (len(api.objects(PODS)), api.objects(SERVICES)) == (0 if strict else 2, [])
    assert ("MSJobFailed" in reasons, "UnusualTopology" in reasons) == (strict, not strict)


def test_the_webhook_refuses_it_at_the_door() -> None:
    admission = Admission(frameworks.BUILT_IN, Settings(strict_topology=True))
    request = {"uid": "u", "operation": "CREATE", "object": an_msjob(Worker=2).manifest}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    _, answer = admission.validate(json.dumps(review).encode())

    response = json.loads(answer)["response"]
    assert not response["allowed"]
    assert f"{MISSING}: 2 Worker {ADD}" in response["status"]["message"]


@pytest.mark.parametrize(("flags", "code"), [(["--strict-topology"], 2), ([], 0)], ids=["strict", "not"])
def test_a_plan_is_as_strict_as_it_is_told_to_be(tmp_path, flags: list[str], code: int) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(an_msjob(Worker=2).manifest))

    result = CliRunner().invoke(app, ["plan", str(manifest), *flags])

    assert result.exit_code == code
    assert (MISSING in result.stderr) == bool(flags)


def test_run_refuses_it_before_a_cluster_is_started(tmp_path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(an_msjob(Worker=2).manifest))

    result = CliRunner().invoke(app, ["run", str(manifest), "--strict-topology"])

    assert result.exit_code == 2
    assert f"{MISSING}: 2 Worker {ADD}" in result.stderr
