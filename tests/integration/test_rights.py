"""The operator needs exactly the rights that `trainmaster manifests` grants."""

import re

import pytest
from tests.integration.oldoperators import PASTS, taken_over

from trainmaster import frameworks
from trainmaster.engine import gang
from trainmaster.objects.resource import PODS
from trainmaster.operator.install import Installation, manifests, rules
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.hands import finish, tend
from trainmaster.testing.jobs import KINDS, a_small
from trainmaster.testing.operation import an_api, edit, operating, passing, quiet, set_phases, submit
from trainmaster.testing.scene import a_job

PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+)?/(?P<plural>[^/?]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def needed(request):
    """(group, resource, verb) of a request, as RBAC sees it; None for discovery, which everyone may."""
    match = PATH.match(request.path)
    if match is None or re.fullmatch(r"/apis/[^/]+/[^/]+", request.path):
        return None
    resource = match["plural"] + (f"/{match['sub']}" if match["sub"] else "")
    if request.method != "GET":
        return match["group"] or "", resource, VERBS[request.method]
    if match["name"]:
        return match["group"] or "", resource, "get"
    return match["group"] or "", resource, "watch" if ("watch", "true") in request.params else "list"


def granted(installation):
    """Every (group, resource, verb) in all roles of an installation."""
    return {
        (group, resource, verb)
        for item in manifests(installation)
        for rule in item.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def every_job():
    """All kinds under all their names, each doing what its kind may ever ask of the API server."""
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource"}]}
    scenes = {kind: a_small(kind, kind.lower(), "ExitCode") for kind in KINDS}
    scenes["elastic"] = a_job("PyTorchJob", "elastic").role("Worker", 1).spec(elasticPolicy=elastic)
    jobs = {name: scene.policy(ttlSecondsAfterFinished=60, cleanPodPolicy="All") for name, scene in scenes.items()}
    manifests = [scene.manifest for scene in jobs.values()]
    legacy = {**jobs["XGBoostJob"].meta(name="legacy").manifest, "apiVersion": "xgboostjob.kubeflow.org/v1"}
    batch = a_job("PaddleJob", "batch", group="batch.paddlepaddle.org", intranet="Host", ttlSecondsAfterFinished=60)
    manifests.append(batch.role("worker", 2).manifest)
    renamed = {**jobs["MXJob"].meta(name="renamed").manifest, "kind": "MXNetJob"}
    return [*manifests, legacy, renamed], jobs["elastic"].spec(elasticPolicy={**elastic, "maxReplicas": 4}).manifest


def give_addresses(api):
    for pod in api.objects(PODS):
        api.put(PODS, {**pod, "status": {"phase": "Pending", "podIP": "10.0.0.9"}})


def rights_taken(**options):
    """By the lives of all jobs from submission to deletion."""
    api = an_api()
    jobs, edited = every_job()

    async def main():
        async with operating(api, **options):
            for job in jobs:
                submit(api, job)
            for plural in ("pods", "horizontalpodautoscalers"):  # the repeat finds what the first attempt made
                api.fail_next(f"POST */{plural}", Fault(after_effect=True))
            await quiet(api)
            for group in api.objects(gang.VOLCANO):
                api.put(gang.VOLCANO, {**group, "status": {"phase": "Inqueue"}})
            await quiet(api)
            edit(api, edited)
            give_addresses(api)
            await quiet(api)
            api.remove(PODS, "default", "batch-worker-1")
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            set_phases(api, "Failed", 137, only="worker-0")
            await passing(60)
            set_phases(api, "Succeeded", 0)
            await passing(120)

    clock.run(main())
    assert not api.objects(PODS)
    return {right for request in api.sent if (right := needed(request)) is not None}


def an_mpi_job(version):
    scene = a_job("MPIJob", f"mpi-{version}", version=version).role("Launcher").role("Worker", 2)
    return scene.policy(cleanPodPolicy="All", ttlSecondsAfterFinished=60)


async def tended(api):
    for _ in range(3):  # what waits for others to be ready comes in a later round
        tend(api)
        await quiet(api)


def rights_taken_by_mpi():
    """Jobs that make accounts, roles, keys and Jobs of their own; stopped, scaled and edited on the way."""
    api = an_api()
    old, older, ssh = (an_mpi_job(version) for version in ("v1", "v1alpha2", "v2beta1"))

    async def main():
        async with operating(api):
            for scene in (old, older, ssh):
                submit(api, scene.manifest)
            await quiet(api)
            await tended(api)
            edit(api, ssh.policy(suspend=True).manifest)
            edit(api, old.role("Launcher", serviceAccountName="mine").scaled("Worker", 1).manifest)
            await quiet(api)
            edit(api, ssh.manifest)
            await tended(api)
            finish(api)
            await passing(120)

    clock.run(main())
    return {right for request in api.sent if (right := needed(request)) is not None}


def rights_taken_in_takeovers():
    sent = [request for make in PASTS.values() for request in taken_over(make()).sent]
    return {right for request in sent if (right := needed(request)) is not None}


def test_no_request_needs_more_than_is_granted():
    installation = Installation(frameworks.BUILT_IN, gang_scheduler_name="volcano")

    taken = rights_taken(leader_elect=True, gang_scheduler_name="volcano")

    assert taken | rights_taken_by_mpi() | rights_taken_in_takeovers() <= granted(installation)


def test_nothing_is_granted_that_is_never_needed():
    installation = Installation(frameworks.BUILT_IN)
    taken = rights_taken(leader_elect=True) | rights_taken_by_mpi() | rights_taken_in_takeovers()

    unused = granted(installation) - taken

    finalizers = {right for right in unused if right[1].endswith("/finalizers")}  # an admission plugin asks for it
    given_away = {("", "pods/exec", "create")}  # to launchers: nobody can give what he has not
    assert unused == finalizers | given_away


@pytest.mark.parametrize("kind", KINDS)
def test_rights_shrink_with_the_schemes(kind):
    few = rules(Installation(frameworks.enabled((kind,))))

    plurals = {
        resource
        for rule in few
        for resource in rule["resources"]
        if rule["apiGroups"][0].endswith(("kubeflow.org", "mindspore.gitee.com"))
    }
    others = {f.plural for f in frameworks.BUILT_IN if f.kind != kind}
    assert plurals
    assert not plurals & others


SENSITIVE = {"secrets", "roles", "rolebindings", "pods/exec", "configmaps", "serviceaccounts", "jobs"}
REASONS = {"MPIJob": SENSITIVE, "PaddleJob": {"configmaps"}}
"""Kinds that cannot do without."""


@pytest.mark.parametrize("kind", sorted({framework.kind for framework in frameworks.BUILT_IN}))
def test_nothing_sensitive_is_granted_unless_a_kind_needs_it(kind):
    rights = granted(Installation(frameworks.enabled((kind,)), gang_scheduler_name="volcano"))

    assert {resource for _, resource, _ in rights} & SENSITIVE == REASONS.get(kind, set())


def test_secrets_and_roles_cannot_be_deleted():
    rights = granted(Installation(frameworks.BUILT_IN))

    assert not {(resource, verb) for _, resource, verb in rights if verb == "delete"} & {
        (resource, "delete") for resource in ("secrets", "roles", "rolebindings")
    }


def test_confined_to_a_namespace_only_jobs_can_be_looked_for_outside():
    roles = [item for item in manifests(Installation(frameworks.BUILT_IN, watch_namespace="team")) if "rules" in item]

    outside = [item for item in roles if item["kind"] == "ClusterRole"]

    assert [item["metadata"]["name"] for item in outside] == ["trainmaster-outside"]
    jobs = {resource.plural for framework in frameworks.BUILT_IN for resource in framework.served}
    for rule in outside[0]["rules"]:
        assert rule["resources"] == ["events"] or (set(rule["resources"]) <= jobs and rule["verbs"] == ["list"])
