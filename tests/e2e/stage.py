"""Jobs of the examples on one embedded cluster that stays up, so that what happens to them can be watched from outside.

with stage(home, example_of("jax")) as cluster:
    cluster.submit(*jobs_of(example_of("jax"), "killed", STEPS=FOREVER))
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.examples import LIMIT, Example
from tests.integration.bed import MARK, Bed, Json, bed, holding

from trainmaster.cli.embedded import EmbeddedOptions

FOREVER = "1000000000"


@contextlib.contextmanager
def stage(home: Path, *examples: Example, instead: Mapping[str, Path] | None = None) -> Iterator[Bed]:
    """A cluster that has the examples' images; `instead` says, by job, which directory is /app in place of its own."""
    images = [
        {
            "match": example.pattern,
            "python": str(example.home),
            "files": {"/app": str((instead or {}).get(example.job, example.directory))},
        }
        for example in examples
    ]
    config = home / "trainmaster.yaml"
    config.write_text(yaml.safe_dump({"images": images}))
    with bed(EmbeddedOptions(str(home / "cluster"), config=str(config), sandbox="namespaces")) as cluster:
        cluster.patience = LIMIT
        yield cluster


def jobs_of(example: Example, name: str, *, restart: str = "", **env: str) -> list[Json]:
    """The objects of an example's manifest, the job first, under another name by which all that it starts is found on
    this machine."""
    documents = list(yaml.safe_load_all((example.directory / (example.manifest or "job.yaml")).read_text()))
    for document in documents:
        document["metadata"] = {"name": name, "namespace": "default"}
    job = documents[0]
    [field] = [key for key in job["spec"] if key.endswith("ReplicaSpecs")]
    roles = json.loads(json.dumps(job["spec"][field]))  # what is written once and referred to is one object till here
    for role in roles.values():
        role |= {"restartPolicy": restart} if restart else {}
        _adapt(role["template"]["spec"], name, {"MARK": MARK, "JOB": name, **env})
    job["spec"][field] = roles
    return documents


def _adapt(spec: Json, name: str, env: Mapping[str, str]) -> None:
    [container] = spec["containers"]
    variables = [{"name": key, "value": value} for key, value in env.items()]
    container["env"] = [*container.get("env", ()), *variables]
    spec["terminationGracePeriodSeconds"] = 5  # some take SIGTERM for a question, and need it all
    for volume in spec.get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            volume["persistentVolumeClaim"]["claimName"] = name


def ended(cluster: Bed, job: Json) -> Json:
    """The job, once it has."""

    def is_so(found: Json | None) -> bool:
        return found is not None and bool(holding(found) & {"Succeeded", "Failed"})

    found = cluster.until(cluster.resource(job["apiVersion"], job["kind"]), job["metadata"]["name"], is_so)
    assert found is not None
    return found


def message_of(job: Json, condition: str) -> str:
    """Of a condition that holds; nothing where it does not."""
    found: list[Any] = job["status"]["conditions"]
    return next((str(one["message"]) for one in found if one["type"] == condition and one["status"] == "True"), "")
