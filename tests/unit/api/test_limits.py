"""Lists of replicas that Linux or Kubernetes would not take: the job is refused, with the limit and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from tests.unit.engine.test_engine_size import work_of
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.api import limits, reading
from trainmaster.api.framework import Env, Framework, Role
from trainmaster.api.job import Job, Member
from trainmaster.engine import pods
from trainmaster.engine.plan import plan_rejected
from trainmaster.objects.template import container_named
from trainmaster.testing.scene import NOW, Scene, a_job

LARGE = 10_000
VARIABLE, CONFIG_MAP = "131072 bytes that Linux allows for one environment variable", "1048576 bytes"
LONG_NAME = "a-name-of-forty-three-characters-as-it-were"


def tf(workers: int, **spec: Any) -> Scene:
    return a_job("TFJob", **spec).role("PS").role("Worker", workers)


def mxnet(workers: int) -> Scene:
    return a_job("MXJob").role("Scheduler").role("Server").role("Worker", workers)


def xgboost(workers: int) -> Scene:
    return a_job("XGBoostJob").role("Master").role("Worker", workers)


def mpi(version: str, workers: int) -> Scene:
    return a_job("MPIJob", LONG_NAME, version=version).role("Launcher").role("Worker", workers)


REFUSED: dict[str, tuple[Callable[[int], Scene], str, str]] = {
    "TFJob": (tf, "spec.tfReplicaSpecs[Worker]", f"TF_CONFIG lists the replicas and would exceed the {VARIABLE}"),
    "MXJob": (mxnet, "spec.mxReplicaSpecs[Worker]", f"MX_CONFIG lists the replicas and would exceed the {VARIABLE}"),
    "XGBoostJob": (
        xgboost,
        "spec.xgbReplicaSpecs[Worker]",
        f"WORKER_ADDRS lists the replicas and would exceed the {VARIABLE}",
    ),
    "MPIJob v1": (lambda n: mpi("v1", n), "spec.mpiReplicaSpecs[Worker]", CONFIG_MAP),
    "MPIJob v2beta1": (lambda n: mpi("v2beta1", n), "spec.mpiReplicaSpecs[Worker]", CONFIG_MAP),
    "pdj by address": (lambda n: a_paddle(worker=n), "spec.worker", "PADDLE_TRAINER_ENDPOINTS lists the replicas"),
    "pdj by Service": (lambda n: a_paddle(worker=n, intranet="Service"), "spec.worker", "PADDLE_TRAINER_ENDPOINTS"),
}
each_refused = pytest.mark.parametrize(
    ("job", "path", "why"), [(cache(job), path, why) for job, path, why in REFUSED.values()], ids=REFUSED
)

ADMITTED: dict[str, Scene] = {
    "TFJob with dynamic workers": tf(LARGE, enableDynamicWorker=True),
    "PyTorchJob": a_job("PyTorchJob").role("Master").role("Worker", LARGE),
    "PyTorchJob, elastic": a_job("PyTorchJob", elasticPolicy={"minReplicas": 1}).role("Worker", LARGE),
    "JAXJob": a_job("JAXJob").role("Worker", LARGE),
    "PaddleJob": a_job("PaddleJob").role("Worker", LARGE),
    "MSJob": a_job("MSJob").role("Scheduler").role("Worker", LARGE),
    "MPIJob": a_job("MPIJob").role("Launcher").role("Worker", LARGE),
    "pdj, elastic": a_paddle(worker=LARGE, elastic=1),
}


def most_of(problem: str) -> int:
    found = re.search(r"use at most (\d+) replicas", problem)
    assert found is not None, problem
    return int(found[1])


@each_refused
def test_what_would_grow_too_long_is_refused_with_the_limit(job: Callable[[int], Scene], path: str, why: str) -> None:
    (problem,) = job(LARGE).problems

    assert problem.startswith(f"{path}.replicas: Invalid value: {LARGE}: ")
    assert why in problem
    assert "so that no" in problem


@each_refused
def test_the_message_says_how_many_fit(job: Callable[[int], Scene], path: str, why: str) -> None:
    most = most_of(*job(LARGE).problems)

    assert not job(most).problems
    assert job(most + 1).problems


@each_refused
def test_nothing_is_built_for_a_refusal(
    job: Callable[[int], Scene], path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pods, "pod_of")
    scene = job(LARGE)

    bare = reading.bare(scene.framework, scene.framework.resource, scene.manifest)
    made = plan_rejected(scene.framework, bare, scene.reading.problems, NOW, has_pods=False)

    assert not made.actions
    assert made.status.is_true("Failed")


@each_refused
def test_the_text_does_not_depend_on_how_much_too_large_it_is(job: Callable[[int], Scene], path: str, why: str) -> None:
    before, after = (job(replicas).reading.problems[0] for replicas in (LARGE, LARGE - 500))

    assert (before.path, before.sort, before.detail) == (after.path, after.sort, after.detail)


@pytest.mark.parametrize("scene", ADMITTED.values(), ids=ADMITTED)
def test_ten_thousand_workers_that_are_told_little_of_each_other_are_admitted(scene: Scene) -> None:
    assert not scene.problems


def test_a_variable_at_the_limit_is_the_last_that_linux_takes() -> None:
    longest = "x" * (limits.MAX_VARIABLE - len("A=") - len("\0"))

    assert not list(limits.too_long({"A": longest}))
    assert list(limits.too_long({"A": longest + "x"})) == ["A"]


def test_the_longest_tf_config_fits_into_a_variable() -> None:
    most = most_of(*tf(LARGE).problems)
    job = tf(most).job

    longest = max(len(f"TF_CONFIG={job_env(job, member)}") for member in job.members()[-2:])

    assert limits.MAX_VARIABLE - 60 < longest < limits.MAX_VARIABLE


def job_env(job: Job, member: Member) -> str:
    pod = pods.pod_of(tf(1).framework, member)
    container = container_named(pod, ("tensorflow",))
    assert container is not None
    return str(next(entry["value"] for entry in container["env"] if entry["name"] == "TF_CONFIG"))


def test_a_tfjob_is_told_of_dynamic_workers() -> None:
    (problem,) = tf(LARGE).problems

    assert "replicas or set spec.enableDynamicWorker: true" in problem


def test_servers_are_listed_for_dynamic_workers_too() -> None:
    scene = a_job("TFJob", enableDynamicWorker=True).role("PS", LARGE).role("Worker", 2)

    (problem,) = scene.problems

    assert problem.startswith("spec.tfReplicaSpecs[PS].replicas: Invalid value: 10000: TF_CONFIG")
    assert "enableDynamicWorker" not in problem


def test_a_cluster_domain_and_a_long_name_leave_room_for_fewer() -> None:
    plain = most_of(*tf(LARGE).problems)
    far = most_of(*tf(LARGE).having(cluster_domain="cluster.local").problems)
    long = most_of(*a_job("TFJob", LONG_NAME).role("Worker", LARGE).problems)

    assert long < far < plain


def test_evaluators_count_as_they_are_told_of() -> None:
    scene = a_job("TFJob").role("Worker", 2).role("Evaluator", LARGE)

    assert scene.problems
    assert not scene.having(compat_2021=True).problems


def test_a_variable_of_the_same_name_in_the_template_does_not_help() -> None:
    own = {"name": "tensorflow", "image": "example/train:1", "env": [{"name": "TF_CONFIG", "value": "{}"}]}

    assert a_job("TFJob").role("Worker", LARGE, containers=[own]).problems


def test_roles_that_are_too_large_together_are_told_so() -> None:
    (problem,) = a_job("TFJob").role("PS", LARGE).role("Worker", LARGE).problems

    assert "use fewer replicas in all roles" in problem


def test_small_jobs_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most jobs are small, and webhooks are in a hurry."""
    monkeypatch.delattr(limits, "too_long")

    assert not tf(limits.SMALL - 1).problems
    assert not mpi("v2beta1", limits.SMALL - 1).problems


def test_a_job_that_is_wrong_otherwise_is_told_of_that() -> None:
    (problem,) = a_job("XGBoostJob").role("Worker", LARGE).problems

    assert "Master" in problem


def test_frameworks_of_others_are_held_to_it_too() -> None:
    class Ring(Framework):
        name, kind, plural, replicas_field = "ring", "RingJob", "ringjobs", "ringReplicaSpecs"
        roles, decides = (Role("Worker"),), ("Worker",)

        def env(self, member: Member) -> Env:
            return {"PEERS": " ".join(member.job.hosts("Worker"))}

    manifest = a_job("JAXJob").role("Worker", LARGE).manifest
    spec = {"ringReplicaSpecs": manifest["spec"]["jaxReplicaSpecs"]}

    read = reading.read(Ring(), {**manifest, "spec": spec})

    assert [problem.path for problem in read.problems] == ["spec.ringReplicaSpecs[Worker].replicas"]
    assert "PEERS" in str(read.problems[0])


def test_real_addresses_that_are_too_long_end_a_paddle_job() -> None:
    scene = a_paddle(worker=2800)
    long, short = (
        scene.all("Pending", ip=ip).plan().status for ip in ("fd00:1234:5678:9abc:def0:1234:5678:9abc", "10.0.0.1")
    )

    assert long.is_true("Failed")
    assert "PADDLE_TRAINER_ENDPOINTS" in long.conditions[-1].message
    assert not short.is_true("Failed")


def test_a_job_has_at_most_a_thousand_tasks() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "example/train:1"}]}}
    tasks = [{"name": f"trainer-{n}", "replicas": 1, "template": template} for n in range(1001)]
    scene = a_job("PaddleJob", group="batch.paddlepaddle.org", mode="Collective", tasks=tasks)

    (problem,) = scene.problems

    assert problem.startswith("spec.tasks: Invalid value: 1001: must be at most 1000 tasks")
    assert not scene.spec(tasks=tasks[:1000]).problems


def test_a_job_of_tasks_is_checked_against_the_schema_of_all_such_jobs() -> None:
    """Compiled, it takes a megabyte: one for each set of names that tasks can have would fill the operator."""
    template = {"spec": {"containers": [{"name": "main", "image": "example/train:1"}]}}

    def dialect(name: str) -> Framework:
        task = {"name": name, "template": template}
        return a_job("PaddleJob", group="batch.paddlepaddle.org", mode="Single", tasks=[task]).reading.framework

    assert dialect("one") is not dialect("other")
    assert dialect("one").checked_as() is dialect("other").checked_as()


@pytest.mark.parametrize("job", [tf, xgboost, mxnet], ids=["TFJob", "XGBoostJob", "MXJob"])
def test_a_refusal_takes_twice_the_work_for_twice_the_replicas(job: Callable[[int], Scene]) -> None:
    few, many = (job(replicas).meta(name=LONG_NAME) for replicas in (2500, 5000))

    work = [work_of(partial(getattr, scene, "problems")) for scene in (few, many)]

    assert work[1] <= 2.5 * work[0]
