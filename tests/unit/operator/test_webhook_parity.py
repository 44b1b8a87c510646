"""One set of rules: what the webhook refuses is, word for word, what a job fails with where no webhook was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from trainmaster import frameworks
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import mutable
from trainmaster.objects.resource import Resource
from trainmaster.operator.webhook import Admission, versions_of
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, job_of, operating, quiet, submit

Served: TypeAlias = tuple[Framework, Resource, str]
Job: TypeAlias = dict[str, Any]
ADMISSION = Admission(frameworks.BUILT_IN)


def served() -> Iterator[Any]:
    for framework in frameworks.BUILT_IN:
        for resource in framework.served:
            for version in versions_of(framework, resource):
                yield pytest.param((framework, resource, version), id=f"{resource.kind}.{version}.{resource.group}")


def a_good(framework: Framework, resource: Resource, version: str, name: str) -> Job:
    """With the roles that it must have, or else the one that decides. Its first author is remembered."""
    needed = [role.name for role in framework.roles if role.required] or [framework.decides[0]]
    container = {"name": framework.container or "main", "image": "example/train:1"}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    roles = {name if framework.replicas_field else name.lower(): role for name in needed}
    api_version = f"{resource.group}/{version}"
    author = {"apiVersion": api_version, "operation": "Update", "time": "2024-01-01T00:00:00Z"}
    spec: Job = {framework.replicas_field: roles} if framework.replicas_field else dict(roles)
    for field in framework.required_fields:
        spec[field] = {"jobMode": "MXTrain"}[field]
    metadata = {"name": name, "namespace": "default", "managedFields": [author]}
    return mutable({"apiVersion": api_version, "kind": resource.kind, "metadata": metadata, "spec": spec})


def a_role(framework: Framework, job: Job) -> Job:
    roles: Any = framework.declared(job["spec"])
    role: Job = next(iter(roles.values()))
    return role


def without_roles(framework: Framework, job: Job) -> None:
    for key in [framework.replicas_field] if framework.replicas_field else list(framework.declared(job["spec"])):  # type: ignore[call-overload]  # a mapping, in a good job
        del job["spec"][key]


def with_juggler(framework: Framework, job: Job) -> None:
    field = framework.replicas_field
    (job["spec"][field] if field else job["spec"])["Juggler"] = {"replicas": 1}


def with_container(**changes: Any) -> Callable[[Framework, Job], None]:
    def change(framework: Framework, job: Job) -> None:
        containers = a_role(framework, job)["template"]["spec"]["containers"]
        containers[0] = {key: value for key, value in {**containers[0], **changes}.items() if value is not None}

    return change


def with_role(**changes: Any) -> Callable[[Framework, Job], None]:
    return lambda framework, job: a_role(framework, job).update(changes)


def with_policy(**changes: Any) -> Callable[[Framework, Job], None]:
    return lambda framework, job: job["spec"].update(runPolicy=changes)


SPOILT: dict[str, Callable[[Framework, Job], None]] = {
    "0-name": lambda framework, job: None,
    "a" * 70: lambda framework, job: None,
    "no-spec": lambda framework, job: job.update(spec="text"),
    "no-roles": without_roles,
    "juggler": with_juggler,
    "many": with_role(replicas=20_000),
    "negative": with_role(replicas=-1),
    "not-a-number": with_role(replicas="two"),
    "restarts": with_role(restartPolicy="Sometimes"),
    "no-template": with_role(template={}),
    "no-image": with_container(image=None),
    "stranger": with_container(name="stranger"),
    "quantity": with_container(resources={"limits": {"cpu": "much"}}),
    "cleaning": with_policy(cleanPodPolicy="Sometimes"),
    "gang": with_policy(schedulingPolicy={"minResources": {"cpu": "lots"}}),
    "deadline": with_policy(activeDeadlineSeconds="soon", backoffLimit=-1),
}


def refusal(job: Job) -> list[str]:
    """Every problem that the webhook finds."""
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    status, body = ADMISSION.validate(
        json.dumps({**review, "request": {"uid": "1", "operation": "CREATE", "object": job}}).encode()
    )
    assert status == 200
    response = json.loads(body)["response"]
    causes = response["status"]["details"]["causes"] if not response["allowed"] else ()
    return [f"{cause['field']}: {cause['message']}" for cause in causes]


def failures(jobs: dict[str, Job]) -> dict[str, str]:
    """Why each of them has failed where they were stored unasked; empty for those that have not."""
    api = an_api()

    async def main() -> dict[str, str]:
        async with operating(api):
            for job in jobs.values():
                submit(api, job)
            await quiet(api)
            stored = {name: job_of(api, job).get("status", {}).get("conditions", ()) for name, job in jobs.items()}
        failed = {name: [c["message"] for c in found if c["type"] == "Failed"] for name, found in stored.items()}
        return {name: messages[0] if messages else "" for name, messages in failed.items()}

    return clock.run(main())


@pytest.mark.parametrize("kind", [*served()])
def test_a_reconcile_finds_what_the_webhook_finds(kind: Served) -> None:
    framework, resource, _ = kind
    jobs = {name: a_good(*kind, name) for name in SPOILT}
    for name, job in jobs.items():
        SPOILT[name](framework, job)

    refused = {name: refusal(job) for name, job in jobs.items()}
    failed = failures(jobs)

    assert failed == {
        name: f"{resource.kind} failed validation because " + "; ".join(problems) if problems else ""
        for name, problems in refused.items()
    }
    assert sum(map(bool, refused.values())) >= len(SPOILT) - 4  # some kinds are easier to please than others


@pytest.mark.parametrize("kind", [one for one in served() if one.values[0][2] != "v1alpha1"])
def test_a_good_job_pleases_both(kind: Served) -> None:
    job = a_good(*kind, "good")

    assert refusal(job) == []
    assert failures({"good": job}) == {"good": ""}
