"""`run --context`: the job is another cluster's, and goes on whatever becomes of this command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.docs.pages import ROOT

from trainmaster.cli import run as module
from trainmaster.cli.run import RunOptions, run
from trainmaster.engine.gang import VOLCANO
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.fakediscovery import Discovering
from trainmaster.testing.operation import an_api

JOB = str(ROOT / "examples" / "01-ring" / "job.yaml")
OPTIONS = RunOptions((JOB,), context="prod")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """The cluster of the context `prod`."""
    api = FakeApi(an_api([VOLCANO]).resources)
    monkeypatch.setattr(module, "config_of", lambda choice: SimpleNamespace(namespace="default"))
    monkeypatch.setattr(module, "HttpTransport", lambda config: Discovering(api))
    return api


def succeed(api: FakeApi) -> None:
    (resource,) = (one for one in api.resources if (one.kind, one.version) == ("PyTorchJob", "v1"))
    (job,) = api.objects(resource)
    moment = "2023-11-14T22:14:00Z"
    condition = {"type": "Succeeded", "status": "True", "lastTransitionTime": moment, "lastUpdateTime": moment}
    api.put(resource, {**job, "status": {"conditions": [condition]}})


@pytest.mark.parametrize("what", ["pytorchjobs", "pods"])
@pytest.mark.parametrize(("status", "words"), [(401, "may have expired"), (403, "right")])
def test_who_may_not_follow_the_job_is_told_that_it_goes_on(
    api: FakeApi, capsys: pytest.CaptureFixture[str], what: str, status: int, words: str
) -> None:
    api.on_request(lambda method, path, body: status if (method, path[-len(what) :]) == ("GET", what) else None)

    code = run(OPTIONS)

    told = capsys.readouterr().err
    assert code == 1
    assert words in told
    assert "PyTorchJob ring goes on; to stop it: trainmaster delete pytorchjob/ring -n default --context prod" in told
    assert len([path for method, path in api.requests if (method, path[-11:]) == ("POST", "pytorchjobs")]) == 1


def test_who_may_not_read_events_has_the_result_all_the_same(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(method: str, path: str, body: bytes) -> Any:
        if path.endswith("/events"):
            succeed(api)
            return 403
        return None

    api.on_request(answer)

    assert run(OPTIONS) == 0
    assert capsys.readouterr().out.count("events cannot be read") == 1
