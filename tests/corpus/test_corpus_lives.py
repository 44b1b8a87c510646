"""Every job of paddle-operator's and ms-operator's manifests, from its submission to its end, under the whole operator.

The API server is one in memory and time is virtual; kubelets are played here, as far as jobs depend on them: a pod gets
an address, starts when the ConfigMap that it reads is there, and ends. Read from the directory that CORPUS names, as
`test_corpus` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.operation import an_api, job_of, operating, passing, quiet, set_phases, submit

FILES = ("paddle/*.yaml", "mindspore/*.yaml", "seeds/003-*.yaml", "seeds/004-*.yaml")
SERVING = ("ps", "scheduler")
"""The beginnings of the names of replicas that wait until somebody stops them."""

AN_HOUR = 3600.0


def documents() -> Iterator[Any]:
    root = Path(os.environ.get("CORPUS", ""))
    for path in sorted(path for pattern in FILES for path in root.glob(pattern)):
        for number, body in enumerate(yaml.safe_load_all(path.read_text())):
            if body and body["kind"] in ("PaddleJob", "MSJob"):
                yield pytest.param(body, id=f"{path.parent.name}/{path.name}#{number}")


JOBS = list(documents())
each_job = pytest.mark.parametrize("job", JOBS)


def replicas(job: Json) -> list[str]:
    """The pods that there should be."""
    spec = job["spec"]
    roles = spec.get("msReplicaSpecs") or {role: spec[role] for role in ("ps", "worker", "heter") if role in spec}
    named = [(role, body["replicas"]) for role, body in roles.items()] if "tasks" not in spec else []
    named += [(task["name"], task["replicas"]) for task in spec.get("tasks", ())]
    return sorted(f"{job['metadata']['name']}-{role.lower()}-{n}" for role, count in named for n in range(count))


def serves(job: Json, pod: str) -> bool:
    return pod.removeprefix(f"{job['metadata']['name']}-").startswith(SERVING)


def is_paddle(job: Json) -> bool:
    return str(job["kind"]) == "PaddleJob"


def is_elastic(job: Json) -> bool:
    return "elastic" in job["spec"]


def names(api: FakeApi) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in api.objects(PODS))


def give_addresses(api: FakeApi) -> None:
    for number, pod in enumerate(api.objects(PODS), start=1):
        api.put(PODS, {**pod, "status": {"phase": "Pending", "podIP": f"10.0.0.{number}"}})


async def start(api: FakeApi, job: Json) -> None:
    """All its pods run; of those that read a ConfigMap, none before it is there."""
    submit(api, job)
    await quiet(api)
    assert names(api) == replicas(job)
    give_addresses(api)
    await quiet(api)
    sources = {
        s["configMapRef"]["name"] for p in api.objects(PODS) for s in p["spec"]["containers"][0].get("envFrom", ())
    }
    assert sources <= {held["metadata"]["name"] for held in api.objects(CONFIG_MAPS)}
    assert bool(sources) == (is_paddle(job) and not is_elastic(job))
    set_phases(api, "Running")
    await quiet(api)


def ended(job: Json, phase: str, exit_code: int) -> tuple[FakeApi, dict[str, Any], int]:
    """The world long after the replicas that train have ended so, the job's status, and its writes since its end."""
    api, late = an_api(), []

    async def main() -> None:
        async with operating(api):
            await start(api, job)
            for pod in replicas(job):
                if not serves(job, pod):
                    set_phases(api, phase, exit_code, only=pod)
            await quiet(api)
            late.append(len(api.writes()))
            await passing(AN_HOUR)

    clock.run(main())
    return api, job_of(api, job)["status"], len(api.writes()) - late[0]


def last(status: dict[str, Any]) -> str:
    return str(status["conditions"][-1]["type"])


def test_the_corpus_is_there() -> None:
    assert len(JOBS) >= 24, "CORPUS names no corpus: a directory with paddle/, mindspore/ and seeds/ is needed"


@each_job
def test_a_job_whose_replicas_all_start_runs(job: Json) -> None:
    api = an_api()

    async def main() -> None:
        async with operating(api):
            await start(api, job)

    clock.run(main())

    status = job_of(api, job)["status"]
    assert last(status) == "Running"
    assert status.get("phase", "Running") == "Running"


@each_job
def test_a_job_whose_training_ends_well_succeeds_and_costs_nothing_after(job: Json) -> None:
    api, status, writes = ended(job, "Succeeded", 0)

    assert last(status) == "Succeeded"
    assert status.get("phase", "Completed") == "Completed"
    assert status["completionTime"]
    assert {event["type"] for event in api.objects(EVENTS) if event["reason"].endswith("Succeeded")} == {"Normal"}
    assert writes == 0


@each_job
def test_after_its_success_pods_go_by_policy_and_services_with_them(job: Json) -> None:
    api, _, _ = ended(job, "Succeeded", 0)

    policy = job["spec"].get("runPolicy", job["spec"]).get("cleanPodPolicy", "")
    if is_paddle(job):
        kept = [] if policy in ("", "Always", "OnCompletion") else replicas(job)
    else:
        kept = replicas(job) if policy == "None" else [pod for pod in replicas(job) if not serves(job, pod)]
    assert names(api) == kept
    assert {service["metadata"]["name"] for service in api.objects(SERVICES)} <= {*kept}


@each_job
def test_a_job_whose_training_fails_is_told_to_have_failed_or_taken_back(job: Json) -> None:
    api, status, _ = ended(job, "Failed", 1)

    restarts = is_elastic(job) or _restarting(job)
    assert last(status) == ("Restarting" if restarts else "Failed")
    assert status.get("phase", "Failed") in (("Pending", "Starting", "Running") if restarts else ("Failed",))
    told = [event["message"] for event in api.objects(EVENTS) if event["type"] == "Warning"]
    assert any("replica(s) failed" in message for message in told)


def _restarting(job: Json) -> bool:
    """Whether whole pods are replaced: of these kinds, MSJobs under OnFailure or Always."""
    roles = job["spec"].get("msReplicaSpecs", {})
    return any(role.get("restartPolicy") in ("OnFailure", "Always") for role in roles.values())
