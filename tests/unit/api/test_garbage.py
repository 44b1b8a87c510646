"""Whatever an object holds, reading it never raises, and what was read can be planned.

Three sorts of objects: plain garbage, valid jobs in which each field in turn is replaced by something else, and such
in which several are. Runs are derandomised, so that they are the same everywhere; to search further, raise EXAMPLES
and take out `derandomize`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster import frameworks
from trainmaster.api import reading, status
from trainmaster.api.framework import Framework
from trainmaster.api.settings import InitContainer, Settings
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan, plan_rejected
from trainmaster.frameworks.mpi import DIALECTS
from trainmaster.frameworks.paddle_batch_tasks import dialect_of
from trainmaster.objects.meta import encode

NOW = 1_700_000_000.0
EXAMPLES = 25

TASKS = dialect_of({"spec": {"tasks": [{"name": "worker"}]}})
each_framework = pytest.mark.parametrize(
    "framework",
    [*frameworks.BUILT_IN, DIALECTS["v1alpha2"], DIALECTS["v2beta1"], TASKS],
    ids=lambda framework: f"{type(framework).__name__} {framework.version}",
)
search = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)

# Sizes between three and the highest allowed are left out: they are no garbage, and planning them takes a while.
NUMBERS = [-(2**63), -1, 0, 1, 3, 65536, 2**31, 2**53 + 1, 10**30, -0.5, 0.5, 2.0, 1e10, 1e308]
WORDS = ["", "a", "-1", "1", "x" * 300, "None", "Worker", "1e400", "9" * 5000, "\x00", "é", "{{.MasterAddr}}"]
ODDITIES: list[Any] = [
    None,
    True,
    -1,
    0,
    0.5,
    2.0,
    10**30,
    1e308,
    "",
    "é" * 300,
    "9" * 5000,
    [],
    {},
    [None],
    {"": None},
]
SCALARS = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(WORDS) | st.text(max_size=5)
GARBAGE: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=6,
)
CHOSEN = [
    Settings(),
    Settings(compat_2021=True),
    Settings(gang_scheduler="volcano"),
    Settings(gang_scheduler="gang", cluster_domain="example.org"),
    Settings(gang_scheduler="kube-batch", init_container=InitContainer(mode="always")),
]

CONTAINER: dict[str, Any] = {
    "image": "example/train:1",
    "imagePullPolicy": "Always",
    "command": ["python"],
    "args": ["-m", "train"],
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": 0.5}},
}
POLICY: dict[str, Any] = {
    "cleanPodPolicy": "Running",
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 600,
    "backoffLimit": 3,
    "suspend": False,
    "managedBy": "kubeflow.org/training-operator",
    "schedulingPolicy": {
        "minAvailable": 1,
        "queue": "q",
        "minResources": {"cpu": 1},
        "priorityClass": "high",
        "scheduleTimeoutSeconds": 5,
    },
}
ELASTIC: dict[str, Any] = {
    "minReplicas": 1,
    "maxReplicas": 3,
    "maxRestarts": 2,
    "rdzvBackend": "c10d",
    "rdzvHost": "host",
    "rdzvPort": 1234,
    "rdzvId": "id",
    "rdzvConf": [{"key": "a", "value": "b"}],
    "standalone": True,
    "metrics": [{"type": "Resource"}],
}
MPI_FIELDS = {"slotsPerWorker": 2, "mainContainer": "main", "mpiDistribution": "MPICH"}
SSH_FIELDS = {
    "mpiImplementation": "MPICH",
    "sshAuthMountPath": "/home/mpi/.ssh",
    "launcherCreationPolicy": "AtStartup",
    "runLauncherAsWorker": True,
}
BATCH_FIELDS = {
    "intranet": "Host",
    "withGloo": 1,
    "startInOrder": 1,
    "sampleSetRef": {"name": "s", "namespace": "ns", "mountPath": "/s"},
}
STATUS: dict[str, Any] = {
    "conditions": [
        {
            "type": "Created",
            "status": "True",
            "reason": "r",
            "message": "m",
            "lastUpdateTime": "2023-11-14T22:13:20Z",
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        },
        {"type": "Running", "status": "True"},
    ],
    "replicaStatuses": {"Worker": {"active": 1, "selector": "a=b"}},
    "startTime": "2023-11-14T22:13:20Z",
    "completionTime": None,
    "attempts": {"worker-0": 1},
    "completed": {"Worker": [0]},
}


def a_full_job(framework: Framework) -> dict[str, Any]:
    """Every field that we read, with a value that is right."""
    main = framework.container or "main"
    pod = {
        "restartPolicy": "Never",
        "schedulerName": "s",
        "priorityClassName": "high",
        "serviceAccountName": "me",
        "dnsConfig": {"searches": ["example.org"]},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [{"name": "init", "image": "example/init:1"}],
        "containers": [{"name": main, **CONTAINER}, {"name": "side", "image": "example/side:1"}],
    }
    metadata = {"labels": {"a": "b"}, "annotations": {"tuner-server-key": "k"}, "finalizers": ["example.org/f"]}
    replica = {
        "replicas": 1,
        "restartPolicy": framework.restart_policies[-1],
        "template": {"metadata": metadata, "spec": pod},
        "label": "l",
    }
    plain = {"template": {"spec": {"containers": [{"name": main, "image": "example/train:1"}]}}}
    leaders = [role.name for role in framework.roles if role.leader or role.required][-1:]
    own: dict[str, Any] = {
        "TFJob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
        "PyTorchJob": {"nprocPerNode": "2", "elasticPolicy": ELASTIC},
        "PaddleJob": {"elasticPolicy": ELASTIC} if framework.replicas_field else BATCH_FIELDS,
        "MXJob": {"jobMode": "MXTrain"},
        "MPIJob": MPI_FIELDS | ({} if framework.version == "v1" else SSH_FIELDS),
    }
    return {
        "metadata": {"name": "job", "namespace": "ns", "uid": "u", "generation": 1, "annotations": {"a": "b"}},
        "spec": {
            **declared(framework, {**dict.fromkeys(leaders, plain), "Worker": replica}),
            "runPolicy": POLICY,
            "RunPolicy": {"cleanPodPolicy": "All", "backoffLimit": 2, "schedulingPolicy": {"minResources": {}}},
            **{field: POLICY[field] for field in ("cleanPodPolicy", "backoffLimit", "suspend", "managedBy")},
            **own.get(framework.kind, {}),
        },
        "status": STATUS,
    }


def declared(framework: Framework, roles: dict[str, Any]) -> dict[str, Any]:
    if framework is TASKS:
        return {"mode": "PS", "tasks": [{"name": name.lower(), **replica} for name, replica in roles.items()]}
    return {framework.replicas_field: roles} if framework.replicas_field else roles


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place below the top."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        yield from paths_in(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    inner = replaced(value[key], tuple(rest), new)
    return {**value, key: inner} if isinstance(value, dict) else [*value[:key], inner, *value[key + 1 :]]


@st.composite
def broken_jobs(draw: st.DrawFn, framework: Framework) -> dict[str, Any]:
    job: Any = a_full_job(framework)
    for _ in range(draw(st.integers(1, 3))):
        job = _broken(draw, job)
    assert isinstance(job, dict)
    return job


def _broken(draw: st.DrawFn, value: Any, depth: int = 0) -> Any:
    """The same with one part, somewhere below, replaced, dropped or added."""
    stops = depth > 1 and draw(st.integers(0, 5)) == 0
    if stops or not isinstance(value, dict | list) or not value:
        return draw(GARBAGE)
    if isinstance(value, list):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], _broken(draw, value[index], depth + 1), *value[index + 1 :]]
    key = draw(st.sampled_from(sorted(value)))
    match draw(st.integers(0, 9)) if depth else 9:
        case 0:
            return {other: value[other] for other in value if other != key}
        case 1:
            return {**value, draw(st.sampled_from(WORDS)): draw(GARBAGE)}
        case _:
            return {**value, key: _broken(draw, value[key], depth + 1)}


def check(framework: Framework, raw: dict[str, Any], chosen: Settings) -> None:
    read = reading.read(framework, raw, chosen)
    reading.is_managed_elsewhere(framework, raw)

    assert (read.job is None) == bool(read.problems)
    assert all(problem.path.startswith(("spec", "metadata", "apiVersion")) for problem in read.problems)
    assert all(str(problem) for problem in read.problems)

    if read.job is not None:
        made = plan(Observed(read.framework, read.job, advice=read.advice), NOW)
    else:
        bare = reading.bare(framework, framework.resource, raw, chosen)
        made = plan_rejected(framework, bare, read.problems, NOW, has_pods=False)
    assert written(made)


def written(made: Plan) -> list[bytes]:
    """Everything that would go over the wire."""
    return [encode(status.render(made.status)), *(encode(getattr(action, "body", {})) for action in made.actions)]


@each_framework
def test_a_full_job_is_valid_before_it_is_broken(framework: Framework) -> None:
    job = a_full_job(framework)

    assert reading.read(framework, job).problems == ()


@each_framework
def test_garbage_is_refused_and_never_raises(framework: Framework) -> None:
    @search
    @given(
        raw=st.fixed_dictionaries({}, optional={"metadata": GARBAGE, "spec": GARBAGE, "status": GARBAGE}),
        chosen=st.sampled_from(CHOSEN),
    )
    def holds(raw: dict[str, Any], chosen: Settings) -> None:
        check(framework, raw, chosen)

    holds()


@each_framework
def test_garbage_below_the_fields_we_know_never_raises(framework: Framework) -> None:
    roles = [framework.roles[0].name, "Worker", "worker", "Juggler"]
    replicas = st.dictionaries(st.sampled_from(roles), GARBAGE, max_size=2)
    fields = [framework.replicas_field, "runPolicy", "RunPolicy", *POLICY, *framework.fields]

    @search
    @given(
        spec=st.fixed_dictionaries({}, optional={**dict.fromkeys(fields, GARBAGE), framework.replicas_field: replicas}),
        chosen=st.sampled_from(CHOSEN),
    )
    def holds(spec: dict[str, Any], chosen: Settings) -> None:
        check(framework, {"metadata": {"name": "job"}, "spec": spec}, chosen)

    holds()


@each_framework
def test_any_field_may_hold_anything(framework: Framework) -> None:
    job = a_full_job(framework)
    chosen = cycle(CHOSEN)

    for path in paths_in(job):
        for value in ODDITIES:
            check(framework, replaced(job, path, value), next(chosen))


@each_framework
def test_a_job_with_broken_fields_never_raises(framework: Framework) -> None:
    @search
    @given(raw=broken_jobs(framework), chosen=st.sampled_from(CHOSEN))
    def holds(raw: dict[str, Any], chosen: Settings) -> None:
        check(framework, raw, chosen)

    holds()
