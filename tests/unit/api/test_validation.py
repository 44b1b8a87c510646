"""Every rule a job must keep, with the path and the words under which the user learns of it."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api import problem
from trainmaster.api.validation import path_of
from trainmaster.frameworks import BUILT_IN
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
    return a_job(kind).role(LEAST[kind])


def path_to(kind: str, role: str = "") -> str:
    """`spec.tfReplicaSpecs[Worker]`"""
    field = next(framework.replicas_field for framework in BUILT_IN if framework.kind == kind)
    return f"spec.{field}[{role or LEAST[kind]}]"


def with_replicas(kind: str, value: Any) -> Scene:
    scene = the_least(kind)
    return scene.spec(**{scene.framework.replicas_field: value})


def with_containers(kind: str, *containers: Any) -> Scene:
    return the_least(kind).role(LEAST[kind], containers=list(containers))


# Rules of all kinds.


@each_kind
def test_a_valid_job_has_no_problems(kind: str) -> None:
    assert the_least(kind).problems == []


@each_kind
@pytest.mark.parametrize("name", ["0-test", "__test", "00test", "-test", "test-", "Test", "a.b", ""])
def test_the_name_must_be_a_dns_1035_label(kind: str, name: str) -> None:
    scene = the_least(kind).meta(name=name)

    assert scene.problems == [
        f'metadata.name: Invalid value: "{name}": should match: ^[a-z]([-a-z0-9]*[a-z0-9])?$, at most 63 characters'
    ]


@each_kind
def test_a_job_without_a_name_is_told_so(kind: str) -> None:
    scene = the_least(kind).meta(name=None)

    assert [problem.path for problem in scene.reading.problems] == ["metadata.name"]


@each_kind
def test_the_replicas_must_be_there(kind: str) -> None:
    scene = with_replicas(kind, None)

    assert scene.problems == [f"{path_to(kind).partition('[')[0]}: Required value: is missing"]


@each_kind
def test_there_must_be_a_role(kind: str) -> None:
    scene = with_replicas(kind, {})

    roles = ", ".join(role.name for role in scene.framework.roles)
    field = path_to(kind).partition("[")[0]
    assert scene.problems[0] == f"{field}: Required value: must have at least one of {roles}"


@each_kind
def test_a_role_must_not_be_null(kind: str) -> None:
    scene = the_least(kind)
    held = scene.manifest["spec"][scene.framework.replicas_field]
    scene = scene.spec(**{scene.framework.replicas_field: {**held, "Worker": None}})

    assert f"{path_to(kind, 'Worker')}: Required value: must not be empty" in scene.problems


@each_kind
def test_the_spec_must_be_an_object(kind: str) -> None:
    scene = the_least(kind)
    scene = type(scene)(scene.framework, {**scene.manifest, "spec": "train"})

    assert scene.problems == ['spec: Invalid value: "train": must be an object']


@each_kind
def test_a_role_must_be_one_the_kind_knows(kind: str) -> None:
    scene = the_least(kind).role("Juggler")

    supported = ", ".join(f'"{role.name}"' for role in scene.framework.roles)
    assert scene.problems == [
        f'{path_to(kind, "Juggler")}: Unsupported value: "Juggler": supported values: {supported}'
    ]


@each_kind
def test_two_spellings_of_one_role_are_a_contradiction(kind: str) -> None:
    role = LEAST[kind]
    scene = the_least(kind).role(role.lower())

    field = path_to(kind).partition("[")[0]
    assert scene.problems == [
        f'{field}: Invalid value: ["{role}", "{role.lower()}"]: these keys all mean the role {role}; keep one'
    ]


@each_kind
@pytest.mark.parametrize(
    "template",
    [
        pytest.param(None, id="no template"),
        pytest.param({}, id="empty template"),
        pytest.param({"spec": {}}, id="empty pod spec"),
        pytest.param({"spec": {"containers": []}}, id="empty list"),
        pytest.param({"spec": {"containers": None}}, id="null"),
    ],
)
def test_a_template_must_have_containers(kind: str, template: Any) -> None:
    scene = with_replicas(kind, {LEAST[kind]: {"replicas": 1, "template": template}})

    assert scene.problems == [f"{path_to(kind)}.template.spec.containers: Required value: must be specified"]


@each_kind
@pytest.mark.parametrize("image", ["", None], ids=["empty", "null"])
def test_every_container_must_have_an_image(kind: str, image: str | None) -> None:
    name = the_least(kind).framework.container
    scene = with_containers(kind, {"name": name, "image": "example/train:1"}, {"name": "side", "image": image})

    assert scene.problems == [f"{path_to(kind)}.template.spec.containers[1].image: Required value: is missing"]


@each_kind
def test_one_container_must_have_the_name_of_the_kind(kind: str) -> None:
    name = the_least(kind).framework.container
    scene = with_containers(kind, {"name": "main", "image": "example/train:1"})

    assert scene.problems == [
        f"{path_to(kind)}.template.spec.containers: Required value: must have at least one container with name {name}"
    ]


@each_kind
def test_paths_name_the_role_as_the_user_wrote_it(kind: str) -> None:
    written = LEAST[kind].upper()
    scene = a_job(kind).role(written, containers=[])

    assert scene.problems == [f"{path_to(kind, written)}.template.spec.containers: Required value: must be specified"]


@each_kind
@pytest.mark.parametrize("value", ["", "example.com/controller"])
def test_the_manager_must_be_one_of_two(kind: str, value: str) -> None:
    scene = the_least(kind).policy(managedBy=value)

    assert scene.problems == [
        f'spec.runPolicy.managedBy: Unsupported value: "{value}": '
        'supported values: "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
    ]


@each_kind
@pytest.mark.parametrize("value", ["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"])
def test_both_managers_are_accepted(kind: str, value: str) -> None:
    assert the_least(kind).policy(managedBy=value).problems == []


@each_kind
def test_the_restart_policy_must_be_one_of_four(kind: str) -> None:
    scene = a_job(kind).role(LEAST[kind], restart="Sometimes")

    assert scene.problems == [
        f'{path_to(kind)}.restartPolicy: Unsupported value: "Sometimes": '
        'supported values: "Always", "OnFailure", "Never", "ExitCode"'
    ]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"runPolicy": {"cleanPodPolicy": "Some"}}, "spec.runPolicy", id="nested"),
        pytest.param({"RunPolicy": {"cleanPodPolicy": "Some"}}, "spec.RunPolicy", id="inlined"),
        pytest.param({"cleanPodPolicy": "Some"}, "spec", id="flat"),
    ],
)
def test_the_clean_pod_policy_must_be_one_of_three(spec: dict[str, Any], path: str) -> None:
    scene = the_least("TFJob").spec(**spec)

    assert scene.problems == [
        f'{path}.cleanPodPolicy: Unsupported value: "Some": supported values: "None", "Running", "All"'
    ]


@each_kind
@pytest.mark.parametrize(
    ("replicas", "detail"),
    [
        pytest.param(-1, "Invalid value: -1: must be at least 0", id="negative"),
        pytest.param(10_001, "Invalid value: 10001: must be at most 10000", id="too many"),
        pytest.param(10**30, f"Invalid value: {10**30}: must be at most 10000", id="beyond 64 bits"),
        pytest.param(1.5, "Invalid value: 1.5: must be of type integer", id="fraction"),
        pytest.param("2", 'Invalid value: "2": must be of type integer', id="text"),
        pytest.param(True, "Invalid value: true: must be of type integer", id="boolean"),
    ],
)
def test_replicas_are_a_number_within_reason(kind: str, replicas: Any, detail: str) -> None:
    scene = the_least(kind).role("Worker", replicas)

    assert f"{path_to(kind, 'Worker')}.replicas: {detail}" in scene.problems


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"runPolicy": {"backoffLimit": "3"}},
            'spec.runPolicy.backoffLimit: Invalid value: "3": must be of type integer',
            id="text for a number",
        ),
        pytest.param(
            {"backoffLimit": -1}, "spec.backoffLimit: Invalid value: -1: must be at least 0", id="flat and negative"
        ),
        pytest.param(
            {"RunPolicy": {"ttlSecondsAfterFinished": []}},
            "spec.RunPolicy.ttlSecondsAfterFinished: Invalid value: []: must be of type integer",
            id="list for a number",
        ),
        pytest.param(
            {"runPolicy": {"suspend": "yes"}},
            'spec.runPolicy.suspend: Invalid value: "yes": must be of type boolean',
            id="text for a boolean",
        ),
        pytest.param({"runPolicy": 3}, "spec.runPolicy: Invalid value: 3: must be of type object", id="whole policy"),
        pytest.param(
            {"runPolicy": {"schedulingPolicy": {"minResources": {"cpu": "lots"}}}},
            'spec.runPolicy.schedulingPolicy.minResources.cpu: Invalid value: "lots": '
            "must be a quantity such as 500m, 2 or 4Gi",
            id="a gang's resources",
        ),
    ],
)
def test_policy_fields_must_have_their_type(spec: dict[str, Any], problem: str) -> None:
    assert the_least("JAXJob").spec(**spec).problems == [problem]


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        pytest.param({"command": "python"}, 'command: Invalid value: "python": must be of type array', id="command"),
        pytest.param(
            {"args": ["-n", 3]}, "args[1]: Invalid value: 3: must be of type string; put it in quotes", id="argument"
        ),
        pytest.param({"image": 3}, "image: Invalid value: 3: must be of type string; put it in quotes", id="image"),
        pytest.param({"env": {"A": "b"}}, 'env: Invalid value: {"A": "b"}: must be of type array', id="variables"),
        pytest.param(
            {"ports": [{"name": "p", "containerPort": 0}]},
            "ports[0].containerPort: Invalid value: 0: must be at least 1",
            id="port too small",
        ),
        pytest.param(
            {"ports": [{"name": "p", "containerPort": 65536}]},
            "ports[0].containerPort: Invalid value: 65536: must be at most 65535",
            id="port too large",
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "4GB"}}},
            'resources.requests.memory: Invalid value: "4GB": must be a quantity such as 500m, 2 or 4Gi',
            id="request",
        ),
        pytest.param(
            {"resources": {"limits": {"nvidia.com/gpu": "two"}}},
            'resources.limits.nvidia.com/gpu: Invalid value: "two": must be a quantity such as 500m, 2 or 4Gi',
            id="limit",
        ),
    ],
)
def test_container_fields_must_have_their_type(container: dict[str, Any], problem: str) -> None:
    scene = with_containers("JAXJob", {"name": "jax", "image": "example/train:1", **container})

    assert scene.problems == [f"{path_to('JAXJob')}.template.spec.containers[0].{problem}"]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        pytest.param(
            {"metadata": {"labels": {"version": 3}}},
            "metadata.labels.version: Invalid value: 3: must be of type string; put it in quotes",
            id="label",
        ),
        pytest.param({"spec": "x"}, 'spec: Invalid value: "x": must be of type object', id="pod spec"),
        pytest.param(
            {"spec": {"containers": {"name": "jax"}}},
            'spec.containers: Invalid value: {"name": "jax"}: must be of type array',
            id="containers",
        ),
    ],
)
def test_template_fields_must_have_their_type(template: dict[str, Any], problem: str) -> None:
    scene = with_replicas("JAXJob", {"Worker": {"template": template}})

    assert f"{path_to('JAXJob')}.template.{problem}" in scene.problems


def test_all_problems_are_told_at_once() -> None:
    scene = a_job("PyTorchJob", "0-test", backoffLimit=-1).role("Master", 2).role("Cook", containers=[])

    assert [problem.path for problem in scene.reading.problems] == [
        "spec.backoffLimit",
        "metadata.name",
        "spec.pytorchReplicaSpecs[Master].replicas",
        "spec.pytorchReplicaSpecs[Cook]",
        "spec.pytorchReplicaSpecs[Cook].template.spec.containers",
    ]


# Names of replicas.


@pytest.mark.parametrize(
    ("length", "replicas"),
    [
        pytest.param(54, 10, id="one digit"),
        pytest.param(53, 11, id="two digits"),
        pytest.param(54, 0, id="none"),
    ],
)
def test_a_name_may_be_long_as_long_as_its_replicas_fit(length: int, replicas: int) -> None:
    assert a_job("JAXJob", "a" * length).role("Worker", replicas).problems == []


@pytest.mark.parametrize(
    ("length", "replicas", "longest", "limit"),
    [
        pytest.param(55, 10, "-worker-9", 54, id="one digit"),
        pytest.param(54, 11, "-worker-10", 53, id="two digits"),
        pytest.param(63, 1, "-worker-0", 54, id="the longest name"),
    ],
)
def test_a_name_whose_replicas_do_not_fit_is_refused(length: int, replicas: int, longest: str, limit: int) -> None:
    name = "a" * length

    scene = a_job("JAXJob", name).role("Worker", replicas)

    assert scene.problems == [
        f'metadata.name: Invalid value: "{name}": its replica {name}{longest} has more than 63 characters; '
        f"use a name of at most {limit}"
    ]


def test_the_length_of_the_role_counts() -> None:
    scene = a_job("MXJob", "a" * 50).role("Worker").role("TunerTracker")

    assert [problem.path for problem in scene.reading.problems] == ["metadata.name"]
    assert "-tunertracker-0 has more than 63 characters; use a name of at most 48" in scene.problems[0]


# Rules of single kinds.


def test_a_tfjob_has_a_chief_or_a_master_not_both() -> None:
    scene = a_job("TFJob").role("Chief").role("Master").role("Worker")

    assert scene.problems == ["spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"]


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob"])
@pytest.mark.parametrize("replicas", [0, 2])
def test_there_is_exactly_one_master(kind: str, replicas: int) -> None:
    scene = a_job(kind).role("Master", replicas).role("Worker")

    assert scene.problems == [f"{path_to(kind, 'Master')}.replicas: Forbidden: must be 1"]


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob"])
def test_a_master_that_does_not_state_its_replicas_is_one(kind: str) -> None:
    assert a_job(kind).role("Master", None).problems == []


def test_pytorch_workers_are_at_least_one() -> None:
    scene = a_job("PyTorchJob").role("Master").role("Worker", 0)

    assert scene.problems == ["spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"]


@pytest.mark.parametrize("kind", ["TFJob", "XGBoostJob", "MXJob", "PaddleJob", "JAXJob"])
def test_other_kinds_may_have_no_workers_for_a_while(kind: str) -> None:
    assert the_least(kind).role("Worker", 0).problems == []


def test_an_xgboostjob_must_have_a_master() -> None:
    scene = a_job("XGBoostJob").role("Worker", 2)

    assert scene.problems == ["spec.xgbReplicaSpecs[Master]: Required value: must be present"]


def test_an_elastic_job_must_have_workers() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={}).role("Master")

    assert scene.problems == [
        "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"
    ]


def test_the_processes_per_node_are_stated_once() -> None:
    scene = a_job("PyTorchJob", nprocPerNode="2", elasticPolicy={"nProcPerNode": 2}).role("Worker")

    assert scene.problems == ["spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"]


def test_the_old_field_for_processes_per_node_is_deprecated() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={"nProcPerNode": 2}).role("Worker")

    assert scene.problems == []
    assert [(advice.reason, advice.message) for advice in scene.reading.advice] == [
        ("DeprecatedField", "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode")
    ]


def test_elastic_bounds_must_not_cross() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={"minReplicas": 3, "maxReplicas": 2}).role("Worker", 2)

    assert scene.problems == ["spec.elasticPolicy.minReplicas: Forbidden: must be at most maxReplicas (2)"]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        pytest.param({"minReplicas": "1"}, 'minReplicas: Invalid value: "1": must be of type integer', id="bound"),
        pytest.param({"rdzvPort": 0}, "rdzvPort: Invalid value: 0: must be at least 1", id="port"),
        pytest.param(
            {"rdzvConf": {"a": "b"}}, 'rdzvConf: Invalid value: {"a": "b"}: must be of type array', id="configuration"
        ),
        pytest.param({"metrics": ["cpu"]}, 'metrics[0]: Invalid value: "cpu": must be of type object', id="metric"),
    ],
)
def test_elastic_fields_must_have_their_type(policy: dict[str, Any], problem: str) -> None:
    scene = a_job("PyTorchJob", elasticPolicy=policy).role("Worker")

    assert scene.problems == [f"spec.elasticPolicy.{problem}"]


def test_an_mxjob_must_state_its_mode() -> None:
    scene = the_least("MXJob").spec(jobMode=None)

    assert scene.problems == ["spec.jobMode: Required value: is missing"]


def test_the_mode_of_an_mxjob_is_training_or_tuning() -> None:
    scene = the_least("MXJob").spec(jobMode="MXPlay")

    assert scene.problems == ['spec.jobMode: Unsupported value: "MXPlay": supported values: "MXTrain", "MXTune"']


def test_an_mxjob_has_one_scheduler_key() -> None:
    scene = the_least("MXJob").role("Scheduler").role("scheduler")

    assert [problem.path for problem in scene.reading.problems] == ["spec.mxReplicaSpecs"]


# How a problem reads.


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        pytest.param([], "spec", id="the spec itself"),
        pytest.param(["runPolicy", "backoffLimit"], "spec.runPolicy.backoffLimit", id="fields"),
        pytest.param(["tfReplicaSpecs", "PS", "replicas"], "spec.tfReplicaSpecs[PS].replicas", id="a role is a key"),
        pytest.param(["metrics", 0, "name"], "spec.metrics[0].name", id="an index"),
    ],
)
def test_a_path_reads_as_in_the_kubernetes_api(steps: list[str | int], path: str) -> None:
    assert path_of(the_least("TFJob").framework, steps) == path


@pytest.mark.parametrize(
    ("made", "text"),
    [
        pytest.param(problem.required("spec.a", "must be"), "spec.a: Required value: must be", id="required"),
        pytest.param(problem.forbidden("spec.a", "not so"), "spec.a: Forbidden: not so", id="forbidden"),
        pytest.param(problem.invalid("spec.a", "é", "odd"), 'spec.a: Invalid value: "é": odd', id="invalid"),
        pytest.param(
            problem.unsupported("spec.a", 1, ["x", "y"]),
            'spec.a: Unsupported value: 1: supported values: "x", "y"',
            id="unsupported",
        ),
        pytest.param(
            problem.invalid("spec.a", "b" * 500, "long"),
            'spec.a: Invalid value: "' + "b" * 118 + "…: long",
            id="a long value is cut",
        ),
    ],
)
def test_a_problem_says_where_what_and_how_else(made: problem.Problem, text: str) -> None:
    assert str(made) == text
