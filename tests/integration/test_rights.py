"""The operator needs exactly the rights that `trainmaster manifests` grants."""

import re

import pytest

from trainmaster import frameworks
from trainmaster.engine import gang
from trainmaster.objects.resource import PODS
from trainmaster.operator.install import Installation, manifests, rules
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
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
    renamed = {**jobs["MXJob"].meta(name="renamed").manifest, "kind": "MXNetJob"}
    return [*manifests, legacy, renamed], jobs["elastic"].spec(elasticPolicy={**elastic, "maxReplicas": 4}).manifest


def rights_taken(**options):
    """By the lives of all jobs from submission to deletion."""
    api = an_api()
    jobs, edited = every_job()

    async def main():
        async with operating(api, **options):
            for job in jobs:
                submit(api, job)
            api.fail_next("POST */pods", Fault(after_effect=True))  # the repeat finds what the first attempt made
            await quiet(api)
            for group in api.objects(gang.VOLCANO):
                api.put(gang.VOLCANO, {**group, "status": {"phase": "Inqueue"}})
            await quiet(api)
            edit(api, edited)
            set_phases(api, "Running")
            await quiet(api)
            set_phases(api, "Failed", 137, only="worker-0")
            await passing(60)
            set_phases(api, "Succeeded", 0)
            await passing(120)

    clock.run(main())
    assert not api.objects(PODS)
    return {right for request in api.sent if (right := needed(request)) is not None}


def test_no_request_needs_more_than_is_granted():
    installation = Installation(frameworks.BUILT_IN, gang_scheduler_name="volcano")

    taken = rights_taken(leader_elect=True, gang_scheduler_name="volcano")

    assert taken <= granted(installation)


def test_nothing_is_granted_that_is_never_needed():
    installation = Installation(frameworks.BUILT_IN)

    unused = granted(installation) - rights_taken(leader_elect=True)

    finalizers = {right for right in unused if right[1].endswith("/finalizers")}  # an admission plugin asks for it
    adoption = {(group, resource, verb) for group, resource, verb in unused if verb in ("get", "patch")}
    assert unused == finalizers | adoption
    assert {resource for _, resource, _ in adoption} <= {"pods", "services", "horizontalpodautoscalers"}


@pytest.mark.parametrize("kind", KINDS)
def test_rights_shrink_with_the_schemes(kind):
    few = rules(Installation(frameworks.enabled((kind,))))

    plurals = {
        resource for rule in few for resource in rule["resources"] if rule["apiGroups"][0].endswith("kubeflow.org")
    }
    others = {f.plural for f in frameworks.BUILT_IN if f.kind != kind}
    assert plurals
    assert not plurals & others


def test_secrets_roles_and_exec_are_not_granted():
    rights = granted(Installation(frameworks.BUILT_IN, gang_scheduler_name="volcano"))

    assert not {r for _, r, _ in rights} & {
        "secrets",
        "roles",
        "rolebindings",
        "pods/exec",
        "configmaps",
        "serviceaccounts",
    }


def test_confined_to_a_namespace_nothing_of_the_cluster_is_granted():
    kinds = [item["kind"] for item in manifests(Installation(frameworks.BUILT_IN, watch_namespace="team"))]

    assert "ClusterRole" not in kinds
