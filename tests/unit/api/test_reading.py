"""From a stored object to a job: defaults, old spellings, what is tolerated and what the user is told."""

from __future__ import annotations

import difflib
from typing import Any
from unittest.mock import Mock

import pytest

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.api.job import SchedulingPolicy
from trainmaster.engine.pods import pod_of
from trainmaster.objects import template
from trainmaster.objects.resource import Resource
from trainmaster.testing.scene import Scene, a_job

LEAST = {
    "TFJob": "Worker",
    "PyTorchJob": "Master",
    "XGBoostJob": "Master",
    "MXJob": "Worker",
    "PaddleJob": "Worker",
    "JAXJob": "Worker",
}
"""A role that suffices for a whole job."""

each_kind = pytest.mark.parametrize("kind", list(LEAST))


def the_least(kind: str) -> Scene:
    return a_job(kind).role(LEAST[kind], replicas=None)


def with_container(kind: str, **fields: Any) -> Scene:
    scene = the_least(kind)
    container = {"name": scene.framework.container, "image": "example/train:1", **fields}
    return scene.role(LEAST[kind], replicas=None, containers=[container])


def ports_of(scene: Scene) -> list[Any]:
    (replica,) = scene.job.replicas.values()
    return template.ports_of(template.containers_of(replica.template)[0])


def advice_of(scene: Scene) -> list[tuple[str, str]]:
    return [(advice.reason, advice.message) for advice in scene.reading.advice]


# Defaults of a replica.


@each_kind
def test_a_role_has_one_replica_by_default(kind: str) -> None:
    job = the_least(kind).job

    assert job.count(LEAST[kind]) == 1


@each_kind
def test_stated_replicas_are_kept(kind: str) -> None:
    job = the_least(kind).role("Worker", 3).job

    assert job.count("Worker") == 3


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("TFJob", "Never"),
        ("PyTorchJob", "OnFailure"),
        ("XGBoostJob", "Never"),
        ("MXJob", "Never"),
        ("PaddleJob", "OnFailure"),
        ("JAXJob", "Never"),
    ],
)
def test_each_kind_has_its_own_default_restart_policy(kind: str, policy: str) -> None:
    job = the_least(kind).job

    assert job.replicas[LEAST[kind]].restart_policy == policy


@each_kind
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
def test_a_stated_restart_policy_is_kept(kind: str, policy: str) -> None:
    job = a_job(kind).role(LEAST[kind], restart=policy).job

    assert job.replicas[LEAST[kind]].restart_policy == policy


PORTS = {
    "TFJob": ("tfjob-port", 2222),
    "PyTorchJob": ("pytorchjob-port", 23456),
    "XGBoostJob": ("xgboostjob-port", 9999),
    "MXJob": ("mxjob-port", 9091),
    "PaddleJob": ("master", 36543),
    "JAXJob": ("jaxjob-port", 6666),
}


@pytest.mark.parametrize(("kind", "name", "number"), [(kind, *port) for kind, port in PORTS.items()])
def test_a_container_without_ports_gets_the_default_one(kind: str, name: str, number: int) -> None:
    scene = the_least(kind)

    assert ports_of(scene) == [{"name": name, "containerPort": number}]
    assert scene.job.ports == {LEAST[kind]: number}


@pytest.mark.parametrize(("kind", "name", "number"), [(kind, *port) for kind, port in PORTS.items()])
def test_the_default_port_is_appended_to_other_ports(kind: str, name: str, number: int) -> None:
    other = {"name": "metrics", "containerPort": 8000}

    scene = with_container(kind, ports=[other])

    assert ports_of(scene) == [other, {"name": name, "containerPort": number}]
    assert scene.job.ports == {LEAST[kind]: number}


@pytest.mark.parametrize(("kind", "name", "number"), [(kind, *port) for kind, port in PORTS.items()])
def test_a_port_of_the_default_name_is_kept_whatever_its_number(kind: str, name: str, number: int) -> None:
    own = {"name": name, "containerPort": number + 1}

    scene = with_container(kind, ports=[own])

    assert ports_of(scene) == [own]
    assert scene.job.ports == {LEAST[kind]: number + 1}


def test_the_port_goes_to_the_training_container_not_to_a_sidecar() -> None:
    sidecar = {"name": "proxy", "image": "example/proxy:1"}
    training = {"name": "jax", "image": "example/train:1"}

    job = a_job("JAXJob").role("Worker", containers=[sidecar, training]).job

    containers = template.containers_of(job.replicas["Worker"].template)
    assert [container.get("ports") for container in containers] == [
        None,
        [{"name": "jaxjob-port", "containerPort": 6666}],
    ]


def test_each_role_has_its_own_port() -> None:
    container = {
        "name": "xgboost",
        "image": "example/train:1",
        "ports": [{"name": "xgboostjob-port", "containerPort": 7}],
    }

    job = a_job("XGBoostJob").role("Master").role("Worker", containers=[container]).job

    assert job.ports == {"Master": 9999, "Worker": 7}


# Role names.


@pytest.mark.parametrize(
    ("framework", "written", "canonical"),
    [
        pytest.param(framework, spell(role.name), role.name, id=f"{framework.name}-{spell(role.name)}")
        for framework in frameworks.BUILT_IN
        for role in framework.roles
        for spell in (str.lower, str.upper, str.capitalize)
    ],
)
def test_a_role_may_be_written_in_any_case(framework: Framework, written: str, canonical: str) -> None:
    scene = a_job(framework.kind, group=framework.group).role(written)
    for role in scene.framework.roles:
        scene = scene.role(role.name) if role.required and role.name != canonical else scene

    job = scene.job

    assert job.has(canonical)
    assert job.count(canonical) == 1


def test_roles_stand_in_the_order_of_the_framework_and_ranks_follow_it() -> None:
    job = a_job("TFJob").role("evaluator").role("worker", 2).role("Ps").role("CHIEF").job

    assert list(job.replicas) == ["Chief", "PS", "Worker", "Evaluator"]
    assert [(member.name, member.rank) for member in job.members()] == [
        ("job-chief-0", 0),
        ("job-ps-0", 1),
        ("job-worker-0", 2),
        ("job-worker-1", 3),
        ("job-evaluator-0", 4),
    ]


@pytest.mark.parametrize(
    ("role", "index", "name"),
    [
        pytest.param("Worker", 1, "mnist-worker-1", id="lower-cased"),
        pytest.param("PS", 0, "mnist-ps-0", id="initials"),
        pytest.param("TunerTracker", 12, "mnist-tunertracker-12", id="two words without separator"),
    ],
)
def test_a_replica_is_named_after_job_role_and_index(role: str, index: int, name: str) -> None:
    job = a_job("MXJob", "mnist").role("Worker").job

    assert job.host(role, index) == name


# Policies.


@each_kind
def test_what_still_runs_at_the_end_is_ended_unless_the_job_says_otherwise(kind: str) -> None:
    assert the_least(kind).job.policy.clean_pod_policy == "Running"


@pytest.mark.parametrize(
    ("kind", "policy"),
    [("TFJob", "Running"), ("PyTorchJob", "None"), ("XGBoostJob", "None"), ("MXJob", "All"), ("PaddleJob", "None")],
)
def test_the_operators_of_2021_had_other_defaults(kind: str, policy: str) -> None:
    scene = the_least(kind).having(compat_2021=True)

    assert scene.job.policy.clean_pod_policy == policy
    assert scene.policy(cleanPodPolicy="All").job.policy.clean_pod_policy == "All"


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        pytest.param("None", "None", id="None"),
        pytest.param("Running", "Running", id="Running"),
        pytest.param("All", "All", id="All"),
        pytest.param("running", "Running", id="lower case"),
        pytest.param("ALL", "All", id="upper case"),
        pytest.param("", "All", id="empty is neither None nor Running"),
        pytest.param(None, "Running", id="null is unset"),
    ],
)
def test_clean_pod_policy_is_read_in_any_case(written: str | None, policy: str) -> None:
    assert the_least("TFJob").policy(cleanPodPolicy=written).job.policy.clean_pod_policy == policy


POLICY_FIELDS = [
    pytest.param("cleanPodPolicy", "All", "clean_pod_policy", "All", id="cleanPodPolicy"),
    pytest.param("ttlSecondsAfterFinished", 7, "ttl_seconds_after_finished", 7, id="ttlSecondsAfterFinished"),
    pytest.param("activeDeadlineSeconds", 8, "active_deadline_seconds", 8, id="activeDeadlineSeconds"),
    pytest.param("backoffLimit", 0, "backoff_limit", 0, id="backoffLimit"),
    pytest.param("suspend", True, "suspend", True, id="suspend"),
    pytest.param("managedBy", "kubeflow.org/training-operator", "managed_by", "kubeflow.org/training-operator",
                 id="managedBy"),
    pytest.param("schedulingPolicy", {"queue": "q"}, "scheduling", SchedulingPolicy(queue="q"), id="schedulingPolicy"),
]  # fmt: skip


@each_kind
@pytest.mark.parametrize(("field", "value", "attribute", "expected"), POLICY_FIELDS)
def test_a_policy_field_may_stand_in_run_policy_or_flat_in_spec(
    kind: str, field: str, value: Any, attribute: str, expected: Any
) -> None:
    scene = the_least(kind)

    nested = scene.policy(**{field: value}).job.policy
    flat = scene.spec(**{field: value}).job.policy
    inlined = scene.spec(RunPolicy={field: value}).job.policy

    assert getattr(nested, attribute) == expected
    assert flat == nested
    assert inlined == nested


def test_unset_policy_fields_mean_no_limit() -> None:
    policy = the_least("JAXJob").job.policy

    assert (policy.ttl_seconds_after_finished, policy.active_deadline_seconds, policy.backoff_limit) == (None,) * 3
    assert policy.managed_by is None
    assert policy.scheduling == SchedulingPolicy()


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        pytest.param({"runPolicy": {"backoffLimit": 1}, "backoffLimit": 2}, 1, id="nested over flat"),
        pytest.param({"runPolicy": {"backoffLimit": 0}, "backoffLimit": 2}, 0, id="nested zero over flat"),
        pytest.param({"RunPolicy": {"backoffLimit": 1}, "backoffLimit": 2}, 1, id="inlined over flat"),
        pytest.param(
            {"runPolicy": {"backoffLimit": 1}, "RunPolicy": {"backoffLimit": 2}}, 1, id="runPolicy over RunPolicy"
        ),
        pytest.param({"runPolicy": {"backoffLimit": None}, "backoffLimit": 2}, 2, id="nested null is unset"),
        pytest.param({"runPolicy": {"suspend": False}, "backoffLimit": 2}, 2, id="field by field"),
        pytest.param({"runPolicy": None, "backoffLimit": 2}, 2, id="null runPolicy"),
        pytest.param({"runPolicy": {}}, None, id="empty runPolicy"),
    ],
)
def test_the_nested_policy_wins_field_by_field(spec: dict[str, Any], limit: int | None) -> None:
    assert the_least("PyTorchJob").spec(**spec).job.policy.backoff_limit == limit


@pytest.mark.parametrize(
    ("policy", "suspended"),
    [
        pytest.param({}, False, id="unset"),
        pytest.param({"suspend": None}, False, id="null"),
        pytest.param({"suspend": False}, False, id="false"),
        pytest.param({"suspend": True}, True, id="true"),
    ],
)
def test_a_job_is_suspended_only_when_it_says_so(policy: dict[str, Any], suspended: bool) -> None:
    assert the_least("TFJob").policy(**policy).job.policy.suspend is suspended


def test_the_scheduling_policy_is_read_whole() -> None:
    fields = {
        "minAvailable": 2,
        "queue": "gpu",
        "minResources": {"cpu": 2, "memory": "1Gi"},
        "priorityClass": "high",
        "scheduleTimeoutSeconds": 30,
    }

    policy = the_least("TFJob").policy(schedulingPolicy=fields).job.policy

    assert policy.scheduling == SchedulingPolicy(2, "gpu", {"cpu": "2", "memory": "1Gi"}, "high", 30)


MANAGERS = [
    pytest.param({}, False, id="unset is ours"),
    pytest.param({"managedBy": None}, False, id="null is ours"),
    pytest.param({"managedBy": ""}, True, id="empty is another's"),
    pytest.param({"managedBy": "kubeflow.org/training-operator"}, False, id="our name is ours"),
    pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, True, id="multikueue"),
    pytest.param({"managedBy": "example.com/controller"}, True, id="any other"),
]


@each_kind
@pytest.mark.parametrize(("policy", "elsewhere"), MANAGERS)
def test_a_job_managed_by_another_controller_is_left_to_it(kind: str, policy: dict[str, Any], elsewhere: bool) -> None:
    scene = the_least(kind).policy(**policy)

    assert reading.is_managed_elsewhere(scene.framework, scene.manifest) is elsewhere


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({}, id="no spec"),
        pytest.param({"spec": "x"}, id="spec is text"),
        pytest.param({"spec": {"runPolicy": 3}}, id="runPolicy is a number"),
        pytest.param({"spec": {"runPolicy": {"managedBy": 3}}}, id="managedBy is a number"),
    ],
)
def test_a_malformed_job_is_not_managed_elsewhere(raw: dict[str, Any]) -> None:
    assert not reading.is_managed_elsewhere(frameworks.BUILT_IN[0], raw)


# What is normalised and tolerated.


@each_kind
def test_null_replicas_are_one_replica(kind: str) -> None:
    scene = the_least(kind).scaled(LEAST[kind], None)  # type: ignore[arg-type] # null, as YAML may have it

    assert scene.job.count(LEAST[kind]) == 1


def test_nulls_are_dropped_wherever_they_stand() -> None:
    container = {"name": "jax", "image": "x", "command": None, "env": [{"name": "A", "value": None}], "ports": None}
    scene = a_job("JAXJob", runPolicy=None, backoffLimit=None)

    job = scene.role("Worker", restart=None, containers=[container], nodeSelector=None, volumes=[]).job

    pod = job.replicas["Worker"].template["spec"]
    port = {"name": "jaxjob-port", "containerPort": 6666}
    assert pod == {
        "containers": [{"name": "jax", "image": "x", "env": [{"name": "A"}], "ports": [port]}],
        "volumes": [],
    }
    assert set(job.spec) == {"jaxReplicaSpecs"}


def test_null_metadata_is_dropped_and_costs_nothing_else() -> None:
    scene = the_least("TFJob").meta(labels=None, annotations={"team": "vision", "owner": None}, finalizers=None)

    assert scene.job.meta.annotations == {"team": "vision"}


def test_a_null_in_the_status_does_not_lose_the_rest_of_it() -> None:
    held = {"type": "Succeeded", "status": "True", "reason": None, "message": None}
    scene = the_least("TFJob")

    read = reading.read(scene.framework, {**scene.manifest, "status": {"conditions": [held], "replicaStatuses": None}})

    assert read.job is not None
    assert read.job.status.is_finished


def test_whole_floats_are_integers() -> None:
    scene = a_job("PyTorchJob", nprocPerNode=2.0, backoffLimit=3.0).role("Master").role("Worker", 2.0)  # type: ignore[arg-type] # 2.0, as YAML may have it

    job = scene.job

    assert (job.count("Worker"), job.policy.backoff_limit, job.spec["nprocPerNode"]) == (2, 3, "2")
    assert len(job.members()) == 3


@pytest.mark.parametrize("name", ["xgboost", "xgboostjob"])
def test_the_training_container_of_xgboost_may_bear_its_old_name(name: str) -> None:
    container = {"name": name, "image": "example/train:1"}
    scene = a_job("XGBoostJob").role("Master", containers=[{"name": "side", "image": "example/side:1"}, container])

    job = scene.job

    port = {"name": "xgboostjob-port", "containerPort": 9999}
    assert template.containers_of(job.replicas["Master"].template)[1] == {**container, "ports": [port]}


def test_the_command_reaches_the_pod_untouched() -> None:
    given = {"command": ["sh", "-c", "python $(SCRIPT)  --x='1 2'"], "args": ["", "--lr", "1e-3"], "tty": True}
    scene = with_container("TFJob", **given)

    pod = pod_of(scene.framework, scene.job.members()[0])

    container = pod["spec"]["containers"][0]
    assert {key: container[key] for key in given} == given


def test_api_version_and_kind_inside_a_template_are_ignored() -> None:
    scene = the_least("MXJob")
    specs = scene.manifest["spec"]["mxReplicaSpecs"]
    junk = {
        "apiVersion": "v2",
        "kind": "Junk",
        "metadata": {"name": "mine", "namespace": "theirs", "creationTimestamp": None, "labels": {"a": "b"}},
        **specs["Worker"]["template"],
    }
    scene = scene.spec(mxReplicaSpecs={"Worker": {**specs["Worker"], "template": junk}})

    pod = pod_of(scene.framework, scene.job.members()[0])

    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("job-worker-0", "default")
    assert pod["metadata"]["labels"]["a"] == "b"
    assert advice_of(scene) == []


def test_unknown_fields_of_a_template_reach_the_pod() -> None:
    scene = the_least("JAXJob").role("Worker", hostNetwork=True, fieldOfTheFuture={"a": [1]})

    pod = pod_of(scene.framework, scene.job.members()[0])

    assert pod["spec"]["hostNetwork"] is True
    assert pod["spec"]["fieldOfTheFuture"] == {"a": [1]}


def test_an_alias_keeps_its_own_group_and_kind() -> None:
    scene = the_least("XGBoostJob")
    old = Resource("xgboostjob.kubeflow.org", "v1", "xgboostjobs", "XGBoostJob")

    job = reading.read(scene.framework, scene.manifest, resource=old).job

    assert job is not None
    assert pod_of(scene.framework, job.members()[0])["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "xgboostjob.kubeflow.org/v1",
            "kind": "XGBoostJob",
            "name": "job",
            "uid": "job-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_an_unreadable_status_counts_as_none() -> None:
    scene = the_least("TFJob")

    job = reading.read(scene.framework, {**scene.manifest, "status": {"conditions": "x"}}).job

    assert job is not None
    assert job.status.conditions == ()


def test_of_a_rejected_job_identity_and_status_remain() -> None:
    scene = the_least("TFJob")
    held = {"conditions": [{"type": "Created", "status": "True"}]}

    job = reading.bare(scene.framework, scene.framework.resource, {**scene.manifest, "spec": 3, "status": held})

    assert (job.name, job.namespace, job.meta.uid, job.kind) == ("job", "default", "job-uid", "TFJob")
    assert job.status.is_true("Created")
    assert job.replicas == {}


# What the user is told.


@each_kind
def test_a_clean_job_needs_no_advice(kind: str) -> None:
    full = {"cleanPodPolicy": "All", "suspend": False, "schedulingPolicy": {"queue": "q"}}

    assert advice_of(the_least(kind).policy(**full).spec(backoffLimit=1)) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"cleanPolicy": "All"},
            "spec.cleanPolicy is not a known field and is ignored; did you mean cleanPodPolicy?",
            id="flat misspelling",
        ),
        pytest.param(
            {"runPolicy": {"backofLimit": 3}},
            "spec.runPolicy.backofLimit is not a known field and is ignored; did you mean backoffLimit?",
            id="nested misspelling",
        ),
        pytest.param(
            {"RunPolicy": {"backofLimit": 3}},
            "spec.RunPolicy.backofLimit is not a known field and is ignored; did you mean backoffLimit?",
            id="misspelling in the inlined policy",
        ),
        pytest.param({"colour": "blue"}, "spec.colour is not a known field and is ignored", id="resembles nothing"),
        pytest.param(
            {"successPolicy": "AllWorkers"},
            "spec.successPolicy is not a known field and is ignored",
            id="field of another kind",
        ),
    ],
)
def test_unknown_fields_are_named_and_a_near_one_suggested(spec: dict[str, Any], message: str) -> None:
    scene = the_least("MXJob").spec(**spec)

    assert scene.problems == []
    assert advice_of(scene) == [("UnknownField", message)]


def test_of_many_unknown_fields_the_first_are_named_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Mock(wraps=difflib.get_close_matches)
    monkeypatch.setattr(difflib, "get_close_matches", compared)
    scene = the_least("MXJob").spec(**{f"cleanPodPolic{number}": 1 for number in range(200_000)})

    advice = advice_of(scene)

    assert len(advice) == 51
    assert advice[0][1] == "spec.cleanPodPolic0 is not a known field and is ignored; did you mean cleanPodPolicy?"
    assert advice[-1] == ("UnknownField", "199950 more fields are not known and are ignored")
    assert compared.call_count <= 2 * 51


def test_a_long_name_of_an_unknown_field_is_cut() -> None:
    [(_, message)] = advice_of(the_least("MXJob").spec(**{"q" * 1_000_000: 1}))

    assert message == f"spec.{'q' * 253}… is not a known field and is ignored"


def test_unknown_fields_of_a_replica_are_named_under_the_key_that_was_written() -> None:
    scene = a_job("TFJob").role("worker")
    specs = scene.manifest["spec"]["tfReplicaSpecs"]

    scene = scene.spec(tfReplicaSpecs={"worker": {**specs["worker"], "replica": 3}})

    path = "spec.tfReplicaSpecs[worker].replica"
    assert advice_of(scene) == [("UnknownField", f"{path} is not a known field and is ignored; did you mean replicas?")]


def test_the_tuner_label_of_old_mxnet_jobs_is_known() -> None:
    scene = the_least("MXJob")
    specs = scene.manifest["spec"]["mxReplicaSpecs"]

    scene = scene.spec(mxReplicaSpecs={"Worker": {**specs["Worker"], "label": "gpu"}})

    assert advice_of(scene) == []
    assert scene.job.replicas["Worker"].extra == {"label": "gpu"}


def test_a_restart_policy_in_the_template_is_overwritten_and_the_user_told() -> None:
    scene = a_job("JAXJob").role("Worker", restart="OnFailure", restartPolicy="Always")

    pod = pod_of(scene.framework, scene.job.members()[0])

    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert advice_of(scene) == [
        (
            "SetPodTemplateRestartPolicy",
            "Restart policy in pod template of Worker will be overwritten by restart policy in replica spec",
        )
    ]
