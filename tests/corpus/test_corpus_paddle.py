"""Manifests of paddle-operator: every job must plan, and the plan must keep the rules of that operator's documents.

Read from the directory that CORPUS names, as `test_corpus` does. The rules are written down a second time here, from
the manifest alone and without the code under test. What is no job (definitions, deployments, roles) is held against
what we offer in its place: the same fields, the same flags, the same rights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.main import get_command

from trainmaster import frameworks
from trainmaster.api import reading, schema
from trainmaster.api.status import render
from trainmaster.cli import GO_BOOLEANS
from trainmaster.cli.app import app
from trainmaster.engine.actions import Create
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan
from trainmaster.objects.meta import Service
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import CONFIG_MAPS, PODS, SERVICES
from trainmaster.operator.install import Installation, manifests
from trainmaster.operator.options import go_flags

GROUP = "batch.paddlepaddle.org"
ROLES = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}
LISTS = {
    "ps": "PADDLE_PSERVERS_IP_PORT_LIST",
    "worker": "PADDLE_TRAINER_ENDPOINTS",
    "heter": "PADDLE_HETER_ENDPOINTS",
}
KEPT = {"": (False, True), "Always": (False, False), "OnCompletion": (False, True), "OnFailure": (True, False)}
"""By policy: whether pods are kept when the job has completed, and when it has failed. All others keep them."""

BESIDE = {"SampleSet", "SampleJob", "PodGroup", "PersistentVolume", "PersistentVolumeClaim", "Service", "Namespace"}
INSTALLED = {"CustomResourceDefinition", "Deployment", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def files() -> list[Path]:
    root = Path(os.environ.get("CORPUS", ""))
    return sorted([*root.glob("paddle/*.yaml"), *root.glob("seeds/004-*.yaml")])


def documents(*kinds: str) -> Any:
    for path in files():
        for number, body in enumerate(yaml.safe_load_all(path.read_text())):
            if body and body["kind"] in kinds:
                yield pytest.param(body, id=f"{path.parent.name}/{path.name}#{number}")


JOBS = list(documents("PaddleJob"))
ROLED = [job for job in JOBS if "tasks" not in job.values[0]["spec"]]
each_job = pytest.mark.parametrize("body", JOBS)
each_roled_job = pytest.mark.parametrize("body", ROLED)


class Life:
    """A job carried along by hand, pass by pass."""

    def __init__(self, body: Any) -> None:
        found = frameworks.serving(body["apiVersion"], body["kind"])
        assert found is not None
        self.framework, self.resource = found
        self.raw = {**body, "metadata": {"namespace": "default", "uid": "u", **body["metadata"]}}
        self.pods: list[Pod] = []
        self.services: list[Service] = []
        self.made = self.next()
        self.bodies = self.created(PODS)
        self.services = [msgspec.convert(item, Service) for item in self.created(SERVICES)]

    def read(self) -> reading.Reading:
        read = reading.read(self.framework, self.raw, resource=self.resource)
        assert read.job is not None, [str(problem) for problem in read.problems]
        return read

    def next(self) -> Plan:
        read = self.read()
        assert read.job is not None
        observed = Observed(read.framework, read.job, tuple(self.pods), tuple(self.services), advice=read.advice)
        made = plan(observed, 0.0)
        self.raw = {**self.raw, "status": render(made.status)}
        return made

    def created(self, resource: Any) -> list[Any]:
        return [a.body for a in self.made.actions if isinstance(a, Create) and a.resource == resource]

    def stand(self, phases: dict[str, str]) -> Plan:
        """All pods with addresses, in these phases by name; Running if nothing is said."""
        self.pods = []
        for number, body in enumerate(self.bodies):
            phase = phases.get(body["metadata"]["name"], "Running")
            self.pods.append(msgspec.convert({**body, "status": {"phase": phase, "podIP": address(number)}}, Pod))
        return self.next()

    def gate(self) -> dict[str, str]:
        self.made = self.stand(dict.fromkeys((body["metadata"]["name"] for body in self.bodies), "Pending"))
        [config] = self.created(CONFIG_MAPS)
        return dict(config["data"])


def address(number: int) -> str:
    return f"10.1.0.{number + 1}"


def named(body: Any) -> list[tuple[str, int, str]]:
    """Role, index and pod of every replica, ps first."""
    name, spec = body["metadata"]["name"], body["spec"]
    if "tasks" in spec:
        groups = [(task["name"], task["replicas"]) for task in spec["tasks"]]
    else:
        groups = [(role, spec[role]["replicas"]) for role in ROLES if role in spec]
    return [(role, index, f"{name}-{role}-{index}") for role, replicas in groups for index in range(replicas)]


def template_of(body: Any, role: str) -> Any:
    tasks = {task["name"]: task for task in body["spec"].get("tasks", ())}
    return (tasks.get(role) or body["spec"][role])["template"]


def test_the_corpus_is_there_and_nothing_in_it_is_passed_over() -> None:
    kinds = {body["kind"] for path in files() for body in yaml.safe_load_all(path.read_text()) if body}

    assert len(files()) >= 30, "CORPUS names no corpus: a directory with paddle/ and seeds/ is needed"
    assert len(JOBS) >= 18
    assert kinds <= {"PaddleJob", "ServiceAccount", "ConfigMap"} | BESIDE | INSTALLED


@each_job
def test_every_replica_has_a_pod_and_a_headless_service_of_its_name(body: Any) -> None:
    life = Life(body)

    names = [name for _, _, name in named(body)]
    services = {item["metadata"]["name"]: item["spec"] for item in life.created(SERVICES)}
    assert [pod["metadata"]["name"] for pod in life.created(PODS)] == names
    assert list(services) == names
    for name, spec in services.items():
        assert (spec["clusterIP"], spec["selector"]) == ("None", {"paddle-res-name": name})
        assert [port["port"] for port in spec["ports"]] == list(range(36000, 36020))


@each_job
def test_what_the_user_wrote_reaches_the_pod(body: Any) -> None:
    pods = {pod["metadata"]["name"]: pod for pod in Life(body).created(PODS)}

    for role, _, name in named(body):
        wanted, spec = template_of(body, role)["spec"], pods[name]["spec"]
        for field in ("volumes", "nodeSelector", "tolerations"):
            assert spec.get(field) == wanted.get(field)
        for field in ("image", "command", "args", "resources", "volumeMounts", "imagePullPolicy"):
            assert spec["containers"][0].get(field) == wanted["containers"][0].get(field)
        assert (spec["hostname"], spec["subdomain"]) == (name, name)


@each_roled_job
def test_replicas_are_told_who_they_are(body: Any) -> None:
    pods = {pod["metadata"]["name"]: pod for pod in Life(body).created(PODS)}
    spec, name = body["spec"], body["metadata"]["name"]

    for role, index, pod in named(body):
        container = pods[pod]["spec"]["containers"][0]
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        by_name = spec.get("intranet") == "Service"
        assert env["POD_IP"] == (pod if by_name else None)
        assert env["PADDLE_TRAINER_ID"] == str(index)
        assert env["TRAINING_ROLE"] == env["PADDLE_TRAINING_ROLE"] == ROLES[role]
        if "elastic" in spec:
            assert env["PADDLE_ELASTIC_NP"] == str(spec["worker"]["replicas"])
            assert env["PADDLE_ELASTIC_JOB_ID"] == f"default-{name}"
        assert [source["configMapRef"]["name"] for source in container.get("envFrom", ())] == (
            [] if "elastic" in spec else [name]
        )


@each_roled_job
def test_the_restart_policy_is_the_users_or_follows_from_the_network(body: Any) -> None:
    pods = {pod["metadata"]["name"]: pod for pod in Life(body).created(PODS)}
    spec = body["spec"]

    for role, _, name in named(body):
        by_name = role == "worker" and spec.get("intranet") == "Service"
        said = template_of(body, role)["spec"].get("restartPolicy", "OnFailure" if by_name else "Never")
        assert pods[name]["spec"]["restartPolicy"] == ("OnFailure" if "elastic" in spec else said)


@each_roled_job
def test_the_gate_holds_everybodys_endpoint(body: Any) -> None:
    data, spec = Life(body).gate(), body["spec"]

    by_name = spec.get("intranet") == "Service"
    hosts = {pod: pod if by_name else address(number) for number, (_, _, pod) in enumerate(named(body))}
    port = int(data["PADDLE_PORT"])
    assert port == 36000 if by_name else 36000 <= port < 56000
    assert data["TRAINER_PORTS_NUM"] == "20"
    for role, key in LISTS.items():
        wanted = ",".join(f"{hosts[pod]}:{port}" for of, _, pod in named(body) if of == role)
        assert data.get(key, "") == wanted
    assert data["PADDLE_TRAINERS_NUM"] == str(spec["worker"]["replicas"])
    meeting = f"{hosts[named(body)[0][2]]}:{port + 18}" if spec.get("withGloo") and "ps" in spec else None
    assert data.get("PADDLE_GLOO_HTTP_ENDPOINT") == meeting
    assert data.get("PADDLE_WITH_GLOO") == (str(spec["withGloo"]) if meeting else None)


@each_job
def test_the_table_shows_mode_and_replicas(body: Any) -> None:
    status = render(Life(body).stand({}).status)

    spec = body["spec"]
    collective = "Collective" if "worker" in spec and spec["worker"]["replicas"] > 1 else "Single"
    assert status["phase"] == "Running"
    assert status["mode"] == spec.get("mode", "PS" if "ps" in spec else collective)
    for role in ROLES:
        replicas = spec.get(role, {}).get("replicas")
        assert status.get(role, {}).get("ready") == (f"{replicas}/{replicas}" if replicas else None)


@each_roled_job
def test_when_it_has_failed_pods_go_or_stay_by_policy(body: Any) -> None:
    life = Life(body)
    life.stand({})

    made = life.stand({pod: "Failed" for role, _, pod in named(body) if role == "worker"})

    is_elastic = "elastic" in body["spec"]  # then workers are taken back
    kept = KEPT.get(body["spec"].get("cleanPodPolicy", ""), (True, True))[1] and not is_elastic
    assert (render(made.status)["phase"] == "Failed") == (not is_elastic)
    assert gone(made) == (set() if kept else {pod for _, _, pod in named(body)})


def gone(made: Plan) -> set[str]:
    return {action.name for action in made.actions if action.resource == PODS}


@each_roled_job
def test_when_it_has_completed_pods_go_or_stay_by_policy(body: Any) -> None:
    life = Life(body)
    life.stand({})

    made = life.stand({pod: "Succeeded" for role, _, pod in named(body) if role == "worker"})

    status = render(made.status)
    kept = KEPT.get(body["spec"].get("cleanPodPolicy", ""), (True, True))[0]
    assert status["phase"] == "Completed"
    assert gone(made) == (set() if kept else {pod for _, _, pod in named(body)})
    if "ps" in body["spec"] and kept:
        assert status["ps"]["ready"] == "{0}/{0}".format(body["spec"]["ps"]["replicas"])
        assert status["worker"]["ready"] == "0/{}".format(body["spec"]["worker"]["replicas"])


@each_roled_job
def test_volcano_by_the_worker_counts_for_all_pods(body: Any) -> None:
    life = Life(body)

    by_volcano = template_of(body, "worker")["spec"].get("schedulerName") == "volcano"
    for pod in life.created(PODS):
        group = pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name")
        assert group == (body["metadata"]["name"] if by_volcano else None)
        assert (pod["spec"].get("schedulerName") == "volcano") == by_volcano
    assert not [action for action in life.made.actions if action.resource.kind == "PodGroup"]


def test_the_misspelt_policy_of_seed_004_06_is_named() -> None:
    [body] = [job.values[0] for job in JOBS if "004-06" in str(job.id)]

    told = [event for event in Life(body).made.events if event.type == "Warning"]

    assert [event.reason for event in told] == ["UnknownField"]
    assert "spec.cleanPolicy" in told[0].message
    assert "did you mean cleanPodPolicy?" in told[0].message


@each_job
def test_nothing_but_misspellings_is_warned_of(body: Any) -> None:
    events = [event for event in Life(body).made.events if event.type == "Warning"]

    odd = [body["spec"].get("cleanPodPolicy", "Never") not in (*KEPT, "Never"), "cleanPolicy" in body["spec"]]
    assert len(events) == sum(odd)


@pytest.mark.parametrize("body", list(documents("CustomResourceDefinition")))
def test_every_field_and_column_name_of_the_old_definitions_is_ours_too(body: Any) -> None:
    [version] = body["spec"]["versions"]
    framework = frameworks.serving(f"{GROUP}/v1", "PaddleJob")
    assert framework is not None
    ours = schema.crd(*framework)

    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    known = schema.spec_schema(framework[0])["properties"]
    [columns] = [one["additionalPrinterColumns"] for one in ours["spec"]["versions"]]
    assert ours["metadata"]["name"] == body["metadata"]["name"]
    assert ours["spec"]["names"]["shortNames"] == body["spec"]["names"]["shortNames"]
    assert set(fields) <= set(known)
    for role in set(ROLES) & set(fields):
        assert set(fields[role]["properties"]) <= {"replicas", "template", "requests", "limits"}
    assert {column["name"] for column in version["additionalPrinterColumns"]} <= {column["name"] for column in columns}


@pytest.mark.parametrize("body", list(documents("Deployment")))
def test_every_flag_of_the_old_deployments_is_taken(body: Any) -> None:
    containers = body["spec"]["template"]["spec"]["containers"]
    managers = [container for container in containers if "/manager" in container.get("command", ())]
    command: Any = get_command(app)
    known = {name for option in command.commands["operator"].params for name in option.opts}

    for manager in managers:
        given = {flag.partition("=")[0] for flag in go_flags(manager.get("args", ()), GO_BOOLEANS)}
        assert given <= known


@pytest.mark.parametrize("body", list(documents("ClusterRole")))
def test_what_the_old_roles_name_of_this_group_exists(body: Any) -> None:
    served = {"paddlejobs", "paddlejobs/status", "paddlejobs/finalizers"}

    for rule in body["rules"]:
        if GROUP in rule.get("apiGroups", ()):
            assert set(rule["resources"]) <= served


def test_the_operator_can_be_installed_where_the_manual_puts_it() -> None:
    chosen = frameworks.enabled(("PaddleJob",))

    made = list(manifests(Installation(chosen, namespace="paddle-system", watch_namespace="paddle-system")))

    assert f"paddlejobs.{GROUP}" in {item["metadata"]["name"] for item in made}
    [deployment] = [item for item in made if item["kind"] == "Deployment"]
    assert deployment["metadata"]["namespace"] == "paddle-system"
    assert "--namespace=paddle-system" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("body", list(documents(*BESIDE)))
def test_what_comes_with_the_jobs_is_left_to_others(body: Any) -> None:
    assert frameworks.serving(body["apiVersion"], body["kind"]) is None
