"""A framework in a package of its own, installed through the entry point: nothing else has to be edited."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from trainmaster import frameworks
from trainmaster.api.settings import Settings
from trainmaster.cli import plan as plan_verb
from trainmaster.operator.install import Installation, crds, rules
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, conditions_of, operating, quiet, set_phases, submit

SOURCE = Path(__file__).parent / "thirdparty" / "ringjob.py"
JOB = """
apiVersion: ring.example/v1
kind: RingJob
metadata: {name: loop, namespace: default}
spec:
  ringReplicaSpecs:
    Rank: {replicas: 3, template: {spec: {containers: [{name: ring, image: example/ring:1}]}}}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As pip would have it: a module, and metadata beside it that names the entry point."""
    (tmp_path / "ringjob.py").write_text(SOURCE.read_text())
    metadata = tmp_path / "ringjob-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ringjob\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[trainmaster.frameworks]\nring = ringjob:Ring\n")
    monkeypatch.syspath_prepend(tmp_path)
    frameworks.registered.cache_clear()
    yield frameworks.enabled(("ringjob",))
    frameworks.registered.cache_clear()
    sys.modules.pop("ringjob", None)


def test_it_is_one_file_of_at_most_sixty_lines():
    assert len(SOURCE.read_text().splitlines()) <= 60


def test_it_gets_a_crd(installed):
    (crd,) = crds(installed)

    assert crd["metadata"]["name"] == "ringjobs.ring.example"
    assert (
        crd["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"]
        == ".spec.ringReplicaSpecs.Rank.replicas"
    )


def test_it_gets_the_rights_it_needs(installed):
    granted = rules(Installation(installed))

    assert {"apiGroups": ["ring.example"], "resources": ["ringjobs/status"], "verbs": ["update"]} in granted


def test_it_is_planned(installed, tmp_path, capsys):
    manifest = tmp_path / "job.yaml"
    manifest.write_text(JOB)

    code = plan_verb.run([str(manifest)], "yaml", "default", Settings())

    pods = [item for item in yaml.safe_load(capsys.readouterr().out)["items"] if item["kind"] == "Pod"]
    assert code == 0
    assert [pod["spec"]["containers"][0]["env"][2]["value"] for pod in pods] == [
        "loop-rank-1:7000",
        "loop-rank-2:7000",
        "loop-rank-0:7000",
    ]


def test_the_job_that_the_guide_shows_is_planned(installed, tmp_path, capsys):
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "framework-author.md").read_text()
    (tmp_path / "ring.yaml").write_text(re.findall(r"```yaml\n(apiVersion: ring.+?)```", guide, re.DOTALL)[0])

    code = plan_verb.run([str(tmp_path / "ring.yaml")], "yaml", "default", Settings())

    assert code == 0
    assert capsys.readouterr().out.count("RING_RIGHT") == 3


def test_it_is_validated(installed, tmp_path, capsys):
    manifest = tmp_path / "job.yaml"
    manifest.write_text(JOB.replace("replicas: 3", "replicas: 1"))

    code = plan_verb.run([str(manifest)], "yaml", "default", Settings())

    assert code == 2
    assert "spec.ringReplicaSpecs[Rank].replicas: Forbidden: must be at least 2" in capsys.readouterr().err


def test_its_jobs_are_run(installed):
    api, job = an_api(), yaml.safe_load(JOB)

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await quiet(api)

    clock.run(main())

    assert conditions_of(api, job) == [("Created", "True"), ("Succeeded", "True")]
