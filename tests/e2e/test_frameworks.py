"""Every example with its real framework: it trains, all ranks agree, and nothing is left behind.

python -m pytest tests/e2e/test_frameworks.py -k jax
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import astuple

import pytest
import yaml
from tests.e2e.examples import TRAINED, Example, example_of, left_running, light, ran, ran_example, shortcomings
from tests.e2e.results import RESULT, Result

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("example", [light(one.environment, one, id=str(one)) for one in TRAINED])
def test_an_example_trains(example: Example, record_property: Callable[[str, object], None]):
    run = ran_example(example)

    missing = shortcomings(example, run)
    name = f"{example.name}/{example.manifest}".rstrip("/")
    told = "; ".join(missing) or "trained"
    record_property(RESULT, astuple(Result(name, example.version, example.ranks, run.seconds, told)))
    assert missing == [], run.text
    assert left_running(example.job) == []


@pytest.mark.light
def test_two_pytorch_jobs_at_once_do_not_see_each_other(tmp_path):
    """Both on port 23456. One trains for longer, so that their weights tell them apart."""
    example = example_of("ddp")
    for name, steps in (("short", "50"), ("long", "100")):
        job = yaml.safe_load((example.directory / "job.yaml").read_text())
        for role in job["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["containers"][0]["env"] = [{"name": "STEPS", "value": steps}]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**job, "metadata": {"name": name}}))

    config = str(example.directory / "trainmaster.yaml")
    run = ran(str(tmp_path), "--config", config, "--image", f"{example.pattern}={example.home}")

    assert run.code == 0, run.text
    told = {job: re.findall(rf"\[{job}/.*final loss (.+)", run.text) for job in ("short", "long")}
    assert [len(results) for results in told.values()] == [3, 3], run.text
    assert [len(set(results)) for results in told.values()] == [1, 1], run.text
    assert told["short"][0] != told["long"][0]
    assert run.text.count("of 3 has joined") == 6
