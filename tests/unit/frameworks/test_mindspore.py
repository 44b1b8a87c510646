"""MSJob: what its pods are told, the Service they meet at, and what a job may say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.api import schema, status
from trainmaster.api.status import JobStatus
from trainmaster.engine import gang
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.plan import plan_rejected
from trainmaster.frameworks.mindspore import MindSpore
from trainmaster.objects.meta import Json, ServiceSpec
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.scene import CLUSTER_IP, Scene, a_job, body, created, states, told

POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
POD_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
MAIN = {"name": "mindspore", "image": "example/train:1"}


def an_msjob(name: str = "j", /, **roles: int) -> Scene:
    scene = a_job("MSJob", name)
    for role, replicas in roles.items():
        scene = scene.role(role, replicas)
    return scene


def distributed() -> Scene:
    return an_msjob(Scheduler=1, PS=2, Worker=3)


def container_of(pod: Json, name: str = "mindspore") -> Json:
    return next(container for container in pod["spec"]["containers"] if container["name"] == name)


def env_of(pod: Json) -> list[tuple[str, Any]]:
    return [(entry["name"], entry.get("value", entry.get("valueFrom"))) for entry in container_of(pod).get("env", ())]


def on_paper(scene: Scene, name: str) -> Json:
    return next(create.body for create in blueprint(scene.observed()) if (create.resource, create.name) == (PODS, name))


def addressed(scene: Scene, cluster_ip: str) -> Scene:
    """With Services of that address."""
    served = scene.served().services
    changed = {name: msgspec.structs.replace(held, spec=ServiceSpec(cluster_ip)) for name, held in served.items()}
    return replace(scene, services=changed)


# The kind.


def test_the_kind_keeps_the_names_of_ms_operator() -> None:
    framework = MindSpore()

    assert (framework.resource.api_version, framework.kind) == ("mindspore.gitee.com/v1", "MSJob")
    assert (framework.plural, framework.singular, framework.short_names) == ("msjobs", "msjob", ())
    assert (framework.replicas_field, framework.container) == ("msReplicaSpecs", "mindspore")
    assert (framework.port_name, framework.port) == ("msjob-port", 2222)
    assert (framework.name, framework.controller_name) == ("mindspore", "msjob-controller")
    assert [role.name for role in framework.roles] == ["Scheduler", "PS", "Worker"]


def test_the_crd_is_the_one_that_ms_operator_installed() -> None:
    crd = schema.crd(MindSpore(), MindSpore().resource)

    (version,) = crd["spec"]["versions"]
    assert crd["metadata"]["name"] == "msjobs.mindspore.gitee.com"
    assert (version["name"], version["subresources"]) == ("v1", {"status": {}})
    assert [(c["name"], c["jsonPath"]) for c in version["additionalPrinterColumns"]] == [
        ("State", ".status.conditions[-1:].type"),
        ("Age", ".metadata.creationTimestamp"),
    ]
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] == ["msReplicaSpecs"]


def test_a_status_without_anything_still_has_the_fields_that_the_old_crd_requires() -> None:
    assert status.render(JobStatus()) == {"conditions": [], "replicaStatuses": {}}


# The contract.


@pytest.mark.parametrize(
    ("name", "host", "role"),
    [
        pytest.param("j-scheduler-0", POD_IP, "MS_SCHED", id="the scheduler"),
        pytest.param("j-ps-1", CLUSTER_IP, "MS_PSERVER", id="a server"),
        pytest.param("j-worker-2", CLUSTER_IP, "MS_WORKER", id="a worker"),
    ],
)
def test_everyone_learns_where_the_scheduler_is_and_how_many_there_are(name: str, host: Any, role: str) -> None:
    pod = body(distributed().served().plan(), name)

    assert env_of(pod) == [
        ("MS_SCHED_HOST", host),
        ("MS_NODE_ID", POD_NAME),
        ("MS_SCHED_PORT", "2222"),
        ("MS_SERVER_NUM", "2"),
        ("MS_WORKER_NUM", "3"),
        ("MS_ROLE", role),
    ]


def test_a_job_without_servers_says_that_there_are_none() -> None:
    env = dict(env_of(body(an_msjob(Scheduler=1, Worker=4).served().plan(), "j-worker-0")))

    assert (env["MS_SERVER_NUM"], env["MS_WORKER_NUM"]) == ("0", "4")


@pytest.mark.parametrize(
    ("domain", "host"),
    [
        pytest.param("", "j-scheduler-0.default.svc", id="plain"),
        pytest.param("example.org", "j-scheduler-0.default.svc.example.org", id="with a cluster domain"),
    ],
)
def test_on_paper_the_name_of_the_service_stands_for_its_address(domain: str, host: str) -> None:
    scene = distributed().having(cluster_domain=domain)

    assert dict(env_of(on_paper(scene, "j-worker-0")))["MS_SCHED_HOST"] == host


@pytest.mark.parametrize("role", ["Worker", "PS"])
def test_without_a_scheduler_there_is_no_service_and_no_variable(role: str) -> None:
    plan = an_msjob(**{role: 1}).plan()

    assert created(plan, SERVICES) == []
    assert env_of(body(plan, f"j-{role.lower()}-0")) == []


@pytest.mark.parametrize("schedulers", [None, 0])
def test_the_name_of_a_job_without_a_service_may_begin_with_a_digit(schedulers: int | None) -> None:
    scene = a_job("MSJob", "2024-resnet").role("Worker")

    if schedulers is not None:
        scene = scene.role("Scheduler", schedulers)

    assert scene.problems == []
    assert created(scene.plan(), SERVICES) == []


def test_the_name_of_a_job_with_a_service_must_begin_with_a_letter() -> None:
    scene = a_job("MSJob", "2024-resnet").role("Scheduler").role("Worker", 2)

    [problem] = scene.problems

    assert problem.startswith('metadata.name: Invalid value: "2024-resnet": should match: ^[a-z](')


@pytest.mark.parametrize("name", ["-resnet", "resnet-", "Resnet", "res.net", "r" * 64])
def test_any_name_must_be_one_that_pods_may_have(name: str) -> None:
    scene = a_job("MSJob", name).role("Worker")

    assert [problem.path for problem in scene.reading.problems] == ["metadata.name"]


def test_only_the_training_container_gets_variables_and_after_its_own() -> None:
    mine = {**MAIN, "env": [{"name": "GLOG_v", "value": "1"}]}
    side = {"name": "side", "image": "example/side:1"}
    scene = an_msjob(Scheduler=1).role("Worker", containers=[side, mine], initContainers=[{"name": "i", "image": "x"}])

    pod = body(scene.served().plan(), "j-worker-0")

    assert [name for name, _ in env_of(pod)][:2] == ["GLOG_v", "MS_SCHED_HOST"]
    assert "env" not in container_of(pod, "side")
    assert "env" not in pod["spec"]["initContainers"][0]


def test_a_named_port_of_the_scheduler_moves_the_meeting_point() -> None:
    container = {**MAIN, "ports": [{"name": "msjob-port", "containerPort": 3333}]}
    scene = an_msjob(Worker=2).role("Scheduler", containers=[container])

    service = body(scene.plan(), "j-scheduler-0", SERVICES)
    workers = [body(scene.served().plan(), name) for name in ("j-worker-0", "j-worker-1")]

    assert service["spec"]["ports"] == [{"name": "msjob-port", "port": 3333, "targetPort": 3333}]
    assert [dict(env_of(pod))["MS_SCHED_PORT"] for pod in workers] == ["3333", "3333"]


@pytest.mark.parametrize("keys", [("scheduler", "ps", "worker"), ("SCHEDULER", "Ps", "WORKER")], ids=str)
def test_roles_may_be_written_in_any_case(keys: tuple[str, str, str]) -> None:
    scene = an_msjob(**dict(zip(keys, (1, 1, 2), strict=True)))

    assert created(scene.served().plan()) == ["j-scheduler-0", "j-ps-0", "j-worker-0", "j-worker-1"]


def test_pods_bear_the_labels_of_both_families_beside_the_users() -> None:
    scene = an_msjob(Scheduler=1).role("Worker", metadata={"labels": {"team": "a"}, "annotations": {"note": "b"}})

    metadata = body(scene.served().plan(), "j-worker-0")["metadata"]

    assert metadata["annotations"]["note"] == "b"
    assert metadata["labels"] == {
        "team": "a",
        "training.kubeflow.org/operator-name": "msjob-controller",
        "group-name": "mindspore.gitee.com",
        "training.kubeflow.org/job-name": "j",
        "job-name": "j",
        "training.kubeflow.org/replica-type": "worker",
        "replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
        "replica-index": "0",
    }


@pytest.mark.parametrize(
    ("written", "policy"), [(None, "Never"), ("OnFailure", "OnFailure"), ("Always", "Always"), ("ExitCode", "Never")]
)
def test_the_replicas_restart_policy_is_the_pods(written: str | None, policy: str) -> None:
    scene = a_job("MSJob", "j").role("Worker", 1, written, restartPolicy="OnFailure")

    plan = scene.plan()

    assert body(plan, "j-worker-0")["spec"]["restartPolicy"] == policy
    assert "SetPodTemplateRestartPolicy" in [reason for reason, _ in told(plan)]


# The meeting point.


def test_the_scheduler_alone_has_a_service_with_an_address_of_its_own() -> None:
    ports = [{"name": "metrics", "containerPort": 9000}]
    scene = distributed().role("Scheduler", containers=[{**MAIN, "ports": ports}])

    plan = scene.plan()

    service = body(plan, "j-scheduler-0", SERVICES)
    assert created(plan, SERVICES) == ["j-scheduler-0"]
    assert service["spec"]["type"] == "ClusterIP"
    assert "clusterIP" not in service["spec"]
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [
        ("metrics", 9000),
        ("msjob-port", 2222),
    ]


def test_the_service_selects_the_schedulers_pod_by_all_the_labels_it_bears() -> None:
    service = body(distributed().plan(), "j-scheduler-0", SERVICES)
    pod = body(distributed().served().plan(), "j-scheduler-0")

    assert service["spec"]["selector"] == service["metadata"]["labels"] == pod["metadata"]["labels"]
    assert len(service["spec"]["selector"]) == 8


def test_the_service_comes_first_and_everyone_else_in_the_pass_after() -> None:
    first = distributed().plan()

    second = distributed().after(first).plan()

    assert (created(first, SERVICES), created(first)) == (["j-scheduler-0"], [])
    assert created(second) == ["j-scheduler-0", "j-ps-0", "j-ps-1", "j-worker-0", "j-worker-1", "j-worker-2"]


@pytest.mark.parametrize("cluster_ip", ["", "None"], ids=["not given yet", "headless"])
def test_nobody_starts_before_the_address_is_known(cluster_ip: str) -> None:
    assert created(addressed(distributed(), cluster_ip).plan()) == []


def test_the_address_of_a_service_that_is_going_is_not_used() -> None:
    scene = addressed(distributed(), "10.96.0.66")
    (name, held), *_ = scene.services.items()
    going = msgspec.structs.replace(held.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    scene = replace(scene, services={name: msgspec.structs.replace(held, metadata=going)})

    assert created(scene.plan()) == []


def test_a_worker_that_comes_later_gets_the_same_address() -> None:
    scene = addressed(distributed(), "10.96.0.66").all("Running").scaled("Worker", 4)

    assert dict(env_of(body(scene.plan(), "j-worker-3")))["MS_SCHED_HOST"] == "10.96.0.66"


def test_of_several_schedulers_everybody_meets_at_the_first() -> None:
    scene = addressed(an_msjob(Scheduler=2, Worker=1), "10.96.0.66")

    assert sorted(scene.services) == ["j-scheduler-0", "j-scheduler-1"]
    assert dict(env_of(body(scene.plan(), "j-worker-0")))["MS_SCHED_HOST"] == "10.96.0.66"


# What a job may say.


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({}, "spec.msReplicaSpecs: Required value: is missing", id="no roles"),
        pytest.param({"msReplicaSpecs": {}}, "must have at least one of Scheduler, PS, Worker", id="an empty map"),
        pytest.param({"msReplicaSpecs": {"Worker": None}}, "[Worker]: Required value: must not be empty", id="null"),
        pytest.param(
            {"msReplicaSpecs": {"Worker": {"template": {"spec": {"containers": []}}}}},
            "spec.msReplicaSpecs[Worker].template.spec.containers: Required value: must be specified",
            id="no containers",
        ),
        pytest.param(
            {"msReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "mindspore"}]}}}}},
            "spec.msReplicaSpecs[Worker].template.spec.containers[0].image: Required value: is missing",
            id="no image",
        ),
        pytest.param(
            {"msReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{**MAIN, "name": "main"}]}}}}},
            "containers: Required value: must have at least one container with name mindspore",
            id="no training container",
        ),
        pytest.param(
            {"msReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [MAIN, MAIN]}}}}},
            'spec.msReplicaSpecs[Worker].template.spec.containers: Invalid value: ["mindspore", "mindspore"]: '
            "must have exactly one container with name mindspore; rename the others",
            id="two training containers",
        ),
        pytest.param(
            {"msReplicaSpecs": {"Work_er": {"template": {"spec": {"containers": [MAIN]}}}}},
            '"Work_er": supported values: "Scheduler", "PS", "Worker"',
            id="an unknown role",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_the_reason(spec: Json, problem: str) -> None:
    problems = a_job("MSJob", "j", **spec).problems

    assert any(problem in text for text in problems), problems


def test_a_refused_job_has_failed_before_anything_was_made() -> None:
    scene = a_job("MSJob", "j").role("Worker", containers=[MAIN, MAIN])

    plan = plan_rejected(
        scene.framework, a_job("MSJob", "j").role("Worker").job, scene.reading.problems, 0.0, has_pods=False
    )

    assert (states(plan.status), plan.actions) == (["Created", "Failed"], ())
    assert "exactly one container with name mindspore" in plan.status.conditions[-1].message
    assert plan.status.conditions[-1].reason == "MSJobFailed"
    assert [event.reason for event in plan.events] == ["MSJobFailed"]


def test_an_underscore_in_a_name_is_refused_with_the_rule() -> None:
    (problem,) = an_msjob("ms_wide", Worker=1).problems

    assert problem.startswith('metadata.name: Invalid value: "ms_wide": should match:')


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        pytest.param({"Worker": 1}, [], id="a lone worker"),
        pytest.param({"Scheduler": 1, "PS": 2, "Worker": 1}, [], id="servers and one worker"),
        pytest.param({"Scheduler": 1, "Worker": 4}, [], id="data-parallel"),
        pytest.param({"Scheduler": 1, "PS": 2, "Worker": 4}, [], id="servers and workers"),
        pytest.param(
            {"Scheduler": 2, "Worker": 2}, ["spec.msReplicaSpecs[Scheduler].replicas is 2"], id="two schedulers"
        ),
        pytest.param({"Scheduler": 0, "Worker": 2}, ["add one with 1 replica"], id="a scheduler of none"),
        pytest.param(
            {"Scheduler": 0, "Worker": 1},
            ["spec.msReplicaSpecs[Scheduler].replicas is 0; set it to 1, or leave the role out"],
            id="a scheduler of none for a lone worker",
        ),
        pytest.param({"Worker": 2}, ["add one with 1 replica"], id="workers alone"),
        pytest.param({"PS": 1, "Worker": 1}, ["add one with 1 replica"], id="a server without scheduler"),
        pytest.param({"Scheduler": 1}, ["never succeeds"], id="a scheduler alone"),
    ],
)
def test_an_odd_topology_is_told_and_runs(roles: dict[str, int], words: list[str]) -> None:
    plan = an_msjob(**roles).plan()

    messages = [message for reason, message in told(plan) if reason == "UnusualTopology"]
    assert len(messages) == len(words)
    assert all(word in message for word, message in zip(words, messages, strict=True))
    assert not plan.status.is_finished


def test_a_gang_is_the_whole_job() -> None:
    scene = distributed().having(gang_scheduler="volcano").group("Inqueue").served()

    plan = scene.plan()

    pod = body(plan, "j-worker-0")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"].items() >= {
        "scheduling.k8s.io/group-name": "j",
        "volcano.sh/task-spec": "worker",
    }.items()  # fmt: skip
    assert scene.framework.gang_size(scene.job) == 6


def test_a_job_that_names_another_scheduler_anywhere_is_left_to_it_as_a_whole() -> None:
    scene = an_msjob(Scheduler=1).role("Worker", 2, schedulerName="mine").having(gang_scheduler="volcano").served()

    plan = scene.plan()

    assert created(plan, gang.VOLCANO) == []
    assert "schedulerName" not in body(plan, "j-scheduler-0")["spec"]
    assert "scheduling.k8s.io/group-name" not in body(plan, "j-worker-0")["metadata"].get("annotations", {})
    assert body(plan, "j-worker-0")["spec"]["schedulerName"] == "mine"
    assert "SetPodTemplateSchedulerName" in [reason for reason, _ in told(plan)]


def test_a_service_that_is_made_again_keeps_the_address_that_running_workers_know() -> None:
    scene = addressed(an_msjob(Scheduler=1, Worker=2), "10.96.0.66")
    running = scene.after()

    lost = replace(running, services={})

    assert body(lost.plan(), "j-scheduler-0", SERVICES)["spec"]["clusterIP"] == "10.96.0.66"
    assert created(lost.plan()) == []


def test_where_nobody_runs_any_more_the_server_chooses_an_address() -> None:
    scene = addressed(an_msjob(Scheduler=1, Worker=2), "10.96.0.66").after()

    lost = replace(scene, services={}, pods={})

    assert "clusterIP" not in body(lost.plan(), "j-scheduler-0", SERVICES)["spec"]
