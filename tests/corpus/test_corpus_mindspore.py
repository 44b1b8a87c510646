"""The manifests of MindSpore's users and of ms-operator itself, held against rules written down here a second time.

They are read from the directory that CORPUS names and are not part of this project.
"""

import os
from pathlib import Path

import pytest
import yaml

from trainmaster import frameworks
from trainmaster.api import reading, schema, status
from trainmaster.api.settings import DEFAULT
from trainmaster.cli import plan as plan_verb
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import plan
from trainmaster.frameworks.mindspore import MindSpore
from trainmaster.objects.meta import Meta, OwnerReference, Service, ServiceSpec

ADDRESS = "10.96.44.5"
ROLES = {"Scheduler": "MS_SCHED", "PS": "MS_PSERVER", "Worker": "MS_WORKER"}


def files():
    root = Path(os.environ.get("CORPUS", ""))
    return sorted([*root.glob("mindspore/*.yaml"), *root.glob("seeds/003-*.yaml")])


def documents(*, kind="MSJob"):
    for path in files():
        for number, body in enumerate(yaml.safe_load_all(path.read_text())):
            if body and body["kind"] == kind:
                yield pytest.param(body, id=f"{path.parent.name}/{path.name}#{number}")


def observed(body, services=(), stands=None):
    found = frameworks.serving(body["apiVersion"], body["kind"])
    assert found is not None
    placed = {**body, "metadata": {"namespace": "default", "uid": "u", **body["metadata"]}}
    read = reading.read(found[0], {**placed, "status": stands}, resource=found[1])
    assert not read.problems, [str(problem) for problem in read.problems]
    assert read.job is not None
    return Observed(read.framework, read.job, services=tuple(services), advice=read.advice)


def passes(body):
    """The first pass, and the one after the server has given the Services an address."""
    first = plan(observed(body), 0.0)
    owner = (OwnerReference(uid="u", controller=True),)
    services = [
        Service(Meta(name=action.name, namespace="default", owner_references=owner), ServiceSpec(ADDRESS))
        for action in first.actions
        if action.resource.kind == "Service"
    ]
    return first, plan(observed(body, services, status.render(first.status)), 0.0)


def made(one, kind):
    return {action.name: action.body for action in one.actions if action.resource.kind == kind}


def env_of(pod):
    (container,) = [c for c in pod["spec"]["containers"] if c["name"] == "mindspore"]
    return container.get("env", [])


def members(body):
    name, roles = body["metadata"]["name"], body["spec"]["msReplicaSpecs"]
    return [
        (role, index, f"{name}-{role.lower()}-{index}")
        for role in ROLES
        if role in roles
        for index in range(roles[role]["replicas"])
    ]


def test_the_corpus_is_there():
    assert len(list(documents())) >= 6


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_every_file_is_read_without_an_error(path, capsys):
    has_jobs = any(body and body["kind"] == "MSJob" for body in yaml.safe_load_all(path.read_text()))

    code = plan_verb.run([str(path)], "json", "default", DEFAULT)

    printed = capsys.readouterr()
    assert code == (0 if has_jobs else 2)
    assert "is not valid" not in printed.err


@pytest.mark.parametrize("body", list(documents()))
def test_the_scheduler_alone_has_a_service_and_it_comes_before_any_pod(body):
    first, second = passes(body)

    schedulers = [name for role, _, name in members(body) if role == "Scheduler"]
    everyone = [name for _, _, name in members(body)]
    assert list(made(first, "Service")) == schedulers
    assert list(made(first, "Pod")) == ([] if schedulers else everyone)
    assert list(made(second, "Pod")) == everyone
    for service in made(first, "Service").values():
        assert "clusterIP" not in service["spec"]
        assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("msjob-port", 2222)]


@pytest.mark.parametrize("body", list(documents()))
def test_the_variables_are_those_of_ms_operator(body):
    _, second = passes(body)

    roles = body["spec"]["msReplicaSpecs"]
    pods = made(second, "Pod")
    for role, _, name in members(body):
        own = roles[role]["template"]["spec"]["containers"][0].get("env", [])
        added = env_of(pods[name])[len(own) :]
        assert env_of(pods[name])[: len(own)] == own
        if "Scheduler" not in roles:
            assert added == []
            continue
        host = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} if role == "Scheduler" else {"value": ADDRESS}
        assert added == [
            {"name": "MS_SCHED_HOST", **host},
            {"name": "MS_NODE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "MS_SCHED_PORT", "value": "2222"},
            {"name": "MS_SERVER_NUM", "value": str(roles.get("PS", {}).get("replicas", 0))},
            {"name": "MS_WORKER_NUM", "value": str(roles["Worker"]["replicas"])},
            {"name": "MS_ROLE", "value": ROLES[role]},
        ]


@pytest.mark.parametrize("body", list(documents()))
def test_what_the_user_wrote_reaches_the_pod(body):
    _, second = passes(body)

    pods = made(second, "Pod")
    for role, _, name in members(body):
        wanted = body["spec"]["msReplicaSpecs"][role]["template"]["spec"]
        assert pods[name]["spec"].get("volumes") == wanted.get("volumes")
        (container,), (declared,) = pods[name]["spec"]["containers"], wanted["containers"]
        for field in ("image", "command", "args", "resources", "volumeMounts", "imagePullPolicy"):
            assert container.get(field) == declared.get(field)


@pytest.mark.parametrize("body", list(documents()))
def test_pods_and_their_service_bear_the_eight_labels(body):
    first, second = passes(body)

    for role, index, name in members(body):
        plain = {"job-name": body["metadata"]["name"], "replica-type": role.lower(), "replica-index": str(index)}
        wanted = {
            "training.kubeflow.org/operator-name": "msjob-controller",
            "group-name": "mindspore.gitee.com",
            **plain,
            **{f"training.kubeflow.org/{key}": value for key, value in plain.items()},
        }
        assert made(second, "Pod")[name]["metadata"]["labels"] == wanted
        if role == "Scheduler":
            service = made(first, "Service")[name]
            assert (service["spec"]["selector"], service["metadata"]["labels"]) == (wanted, wanted)


@pytest.mark.parametrize("body", list(documents()))
def test_a_plan_on_paper_has_every_object_and_names_for_addresses(body):
    objects = [action.body for action in blueprint(observed(body))]

    pods = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Pod"}
    assert list(pods) == [name for _, _, name in members(body)]
    for role, _, name in members(body):
        env = {entry["name"]: entry.get("value") for entry in env_of(pods[name])}
        if "Scheduler" in body["spec"]["msReplicaSpecs"] and role != "Scheduler":
            assert env["MS_SCHED_HOST"] == f"{body['metadata']['name']}-scheduler-0.default.svc"


@pytest.mark.parametrize("body", list(documents()))
def test_nothing_in_it_is_unknown_or_odd(body):
    seen = observed(body)

    assert seen.advice == ()
    assert seen.job.policy.clean_pod_policy == body["spec"].get("runPolicy", {}).get("cleanPodPolicy", "Running")


@pytest.mark.parametrize("theirs", list(documents(kind="CustomResourceDefinition")))
def test_our_crd_serves_what_theirs_served(theirs):
    ours = schema.crd(MindSpore(), MindSpore().resource)

    (old,), (new,) = theirs["spec"]["versions"], ours["spec"]["versions"]
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    assert {key: ours["spec"][key] for key in ("group", "scope", "names")} == {
        key: theirs["spec"][key] for key in ("group", "scope", "names")
    }
    assert (new["name"], new["subresources"]) == (old["name"], old["subresources"])
    assert new["additionalPrinterColumns"] == old["additionalPrinterColumns"]


@pytest.mark.parametrize("theirs", list(documents(kind="ClusterRole")))
def test_rights_to_their_jobs_are_rights_to_ours(theirs):
    granted = {(rule["apiGroups"][0], name) for rule in theirs["rules"] for name in rule.get("resources", ())}

    known = {(MindSpore().group, f"{MindSpore().plural}{part}") for part in ("", "/status", "/finalizers")}
    assert {pair for pair in granted if "mindspore" in pair[0]} <= known
