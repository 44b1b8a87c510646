"""PyTorchJob: torch.distributed and torchrun variables, elastic jobs, and how workers wait for their master."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.framework import Count
from trainmaster.api.settings import InitContainer
from trainmaster.engine.pods import pod_of
from trainmaster.frameworks.pytorch import PyTorch
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS
from trainmaster.testing.scene import Scene, a_job


def env_of(scene: Scene, slot: str) -> list[tuple[str, Any]]:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return list(scene.framework.env(member).items())


def pod_in(scene: Scene, slot: str) -> Json:
    return next(pod_of(scene.framework, member) for member in scene.job.members() if member.slot == slot)


def waits_of(scene: Scene, slot: str) -> list[Any]:
    waits: list[Any] = pod_in(scene, slot)["spec"].get("initContainers", [])
    return waits


def with_master(workers: int = 2, **spec: Any) -> Scene:
    scene = a_job("PyTorchJob", "j", **spec).role("Master")
    return scene.role("Worker", workers) if workers else scene


def elastic(workers: int = 2, **policy: Any) -> Scene:
    return a_job("PyTorchJob", "j", elasticPolicy=policy).role("Worker", workers)


# Defaults.


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        pytest.param({}, (1, 1), id="neither: the number of workers"),
        pytest.param({"minReplicas": 1, "maxReplicas": 1}, (1, 1), id="both"),
        pytest.param({"maxReplicas": 1}, (1, 1), id="only the upper"),
        pytest.param({"minReplicas": 1}, (1, 1), id="only the lower"),
        pytest.param({"minReplicas": 2, "maxReplicas": 5}, (2, 5), id="both and different"),
        pytest.param({"maxReplicas": 5}, (5, 5), id="only a larger upper"),
    ],
)
def test_a_missing_elastic_bound_is_the_other_or_the_number_of_workers(
    policy: dict[str, int], bounds: tuple[int, int]
) -> None:
    spec = elastic(1, **policy).job.spec

    assert (spec["elasticPolicy"]["minReplicas"], spec["elasticPolicy"]["maxReplicas"]) == bounds


@pytest.mark.parametrize(
    ("scene", "processes"),
    [
        pytest.param(with_master(), "auto", id="not elastic"),
        pytest.param(elastic(), "auto", id="elastic"),
        pytest.param(with_master(nprocPerNode="gpu"), "gpu", id="stated"),
        pytest.param(with_master(nprocPerNode=4), "4", id="stated as a number"),
        pytest.param(elastic(nProcPerNode=4), None, id="stated in the old place"),
    ],
)
def test_processes_per_node_are_auto_unless_stated(scene: Scene, processes: str | None) -> None:
    assert scene.job.spec.get("nprocPerNode") == processes


# Variables.


@pytest.mark.parametrize(("slot", "rank"), [("master-0", 0), ("worker-0", 1), ("worker-1", 2)])
def test_members_learn_master_world_and_rank(slot: str, rank: int) -> None:
    assert env_of(with_master(2), slot) == [
        ("PYTHONUNBUFFERED", 1),
        ("MASTER_PORT", 23456),
        ("PET_MASTER_PORT", 23456),
        ("MASTER_ADDR", "j-master-0"),
        ("PET_MASTER_ADDR", "j-master-0"),
        ("WORLD_SIZE", 3),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NNODES", 3),
    ]


def test_a_lone_master_is_a_world_of_one() -> None:
    env = dict(env_of(with_master(0), "master-0"))

    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NNODES"]) == (1, 0, 1)


def test_the_master_is_reached_at_its_named_port() -> None:
    port = {"name": "pytorchjob-port", "containerPort": 8080}
    container = {"name": "pytorch", "image": "example/train:1", "ports": [port]}
    scene = a_job("PyTorchJob", "j").role("Master", containers=[container]).role("Worker")

    env = dict(env_of(scene, "worker-0"))

    assert (env["MASTER_PORT"], env["PET_MASTER_PORT"]) == (8080, 8080)


@pytest.mark.parametrize(
    ("processes", "world"),
    [
        ("4", 12),
        (4, 12),
        ("1", 3),
        ("auto", 3),
        ("cpu", 3),
        ("gpu", 3),
        (None, 3),
    ],
)
def test_the_world_counts_processes_but_ranks_count_pods(processes: Any, world: int) -> None:
    scene = with_master(2, nprocPerNode=processes)

    env = dict(env_of(scene, "worker-1"))

    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NODE_RANK"], env["PET_NNODES"]) == (world, 2, 2, 3)
    assert env["PET_NPROC_PER_NODE"] == str(processes or "auto")


@pytest.mark.parametrize("processes", ["many", "-3", "0", "9" * 5000], ids=["word", "negative", "zero", "huge"])
def test_a_number_of_processes_that_is_none_is_refused(processes: str) -> None:
    scene = with_master(2, nprocPerNode=processes)

    (problem,) = scene.problems

    assert problem.startswith("spec.nprocPerNode: Invalid value")


def test_without_a_master_and_not_elastic_torchrun_gets_only_its_numbers() -> None:
    scene = a_job("PyTorchJob", "j", nprocPerNode="2").role("Worker", 3)

    assert env_of(scene, "worker-1") == [("PYTHONUNBUFFERED", 1), ("PET_NPROC_PER_NODE", "2"), ("PET_NNODES", 3)]


@pytest.mark.parametrize(
    ("slot", "address", "rank"),
    [
        pytest.param("master-0", "localhost", 0, id="master"),
        pytest.param("worker-0", "j-master-0", 1, id="worker 0"),
        pytest.param("worker-1", "j-master-0", 2, id="worker 1"),
    ],
)
def test_in_2021_the_master_called_itself_localhost(slot: str, address: str, rank: int) -> None:
    env = dict(env_of(with_master(2).having(compat_2021=True), slot))

    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["RANK"], env["WORLD_SIZE"]) == (address, 23456, rank, 3)


def test_the_least_elastic_job_meets_at_worker_0() -> None:
    assert env_of(elastic(2), "worker-1") == [
        ("PYTHONUNBUFFERED", 1),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_RDZV_ENDPOINT", "j-worker-0:23456"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_NNODES", "2:2"),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", 1),
    ]


def test_every_elastic_field_has_its_variable() -> None:
    scene = elastic(
        2,
        minReplicas=1,
        maxReplicas=3,
        rdzvBackend="etcd-v2",
        rdzvHost="localhost",
        rdzvPort=1234,
        rdzvId="rdzv",
        rdzvConf=[{"key": "b", "value": "1"}, {"key": "a", "value": "2"}],
        maxRestarts=3,
        nProcPerNode=4,
        standalone=True,
    )

    assert env_of(scene, "worker-0") == [
        ("PYTHONUNBUFFERED", 1),
        ("PET_RDZV_ENDPOINT", "localhost:1234"),
        ("PET_RDZV_BACKEND", "etcd-v2"),
        ("PET_NNODES", "1:3"),
        ("PET_MAX_RESTARTS", 3),
        ("PET_NPROC_PER_NODE", 4),
        ("PET_RDZV_ID", "rdzv"),
        ("PET_RDZV_CONF", "b=1,a=2"),
        ("PET_STANDALONE", ""),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", 1),
    ]


def test_an_elastic_job_with_a_master_gets_both_sets() -> None:
    scene = with_master(1, elasticPolicy={"minReplicas": 1, "maxReplicas": 2})

    assert [name for name, _ in env_of(scene, "worker-0")] == [
        "PYTHONUNBUFFERED",
        "MASTER_PORT",
        "PET_MASTER_PORT",
        "MASTER_ADDR",
        "PET_MASTER_ADDR",
        "WORLD_SIZE",
        "RANK",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_BACKEND",
        "PET_NNODES",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    ]


@pytest.mark.parametrize(
    ("policy", "absent"),
    [
        pytest.param({"rdzvConf": []}, "PET_RDZV_CONF", id="an empty configuration"),
        pytest.param({"standalone": False}, "PET_STANDALONE", id="not standalone"),
        pytest.param({}, "PET_MAX_RESTARTS", id="no limit of restarts"),
        pytest.param({}, "PET_RDZV_ID", id="no id"),
    ],
)
def test_what_an_elastic_policy_does_not_say_has_no_variable(policy: dict[str, Any], absent: str) -> None:
    assert absent not in dict(env_of(elastic(1, **policy), "worker-0"))


def test_the_meeting_point_has_the_port_of_the_workers() -> None:
    port = {"name": "pytorchjob-port", "containerPort": 7777}
    container = {"name": "pytorch", "image": "example/train:1", "ports": [port]}
    scene = a_job("PyTorchJob", "j", elasticPolicy={}).role("Worker", containers=[container])

    assert dict(env_of(scene, "worker-0"))["PET_RDZV_ENDPOINT"] == "j-worker-0:7777"


def test_every_container_gets_the_variables_but_no_init_container() -> None:
    containers = [{"name": "pytorch", "image": "example/train:1"}, {"name": "side", "image": "example/side:1"}]
    scene = with_master(1).role("Worker", 1, containers=containers, initContainers=[{"name": "i", "image": "x"}])

    spec = pod_in(scene, "worker-0")["spec"]

    assert [len(container["env"]) for container in spec["containers"]] == [10, 10]
    assert [container.get("env") for container in spec["initContainers"]] == [None, None]


# Waiting for the master.


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.parametrize(
    ("scene", "slot", "waits"),
    [
        pytest.param(a_job("PyTorchJob").role("Worker"), "worker-0", 0, id="nobody to wait for"),
        pytest.param(with_master(1), "worker-0", 1, id="a worker waits"),
        pytest.param(with_master(1), "master-0", 0, id="the master does not"),
        pytest.param(elastic(1), "worker-0", 0, id="elastic workers do not"),
    ],
)
def test_workers_wait_for_a_master(scene: Scene, slot: str, waits: int, mode: Any) -> None:
    scene = scene.having(init_container=InitContainer(mode=mode))

    assert len(waits_of(scene, slot)) == waits


def test_a_worker_waits_in_its_own_image_by_default() -> None:
    containers = [
        {"name": "side", "image": "example/side:1"},
        {"name": "pytorch", "image": "example/train:7", "imagePullPolicy": "Always"},
    ]
    scene = with_master(1).role("Worker", 1, containers=containers)

    (wait,) = waits_of(scene, "worker-0")

    assert (wait["name"], wait["image"], wait["imagePullPolicy"]) == ("init-pytorch", "example/train:7", "Always")
    assert wait["command"][:2] == ["sh", "-c"]
    assert wait["command"][-1] == "j-master-0"


@pytest.mark.parametrize(
    ("given", "waits_with"),
    [
        pytest.param({}, {}, id="nothing said"),
        pytest.param(
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}},
            id="guaranteed",
        ),
        pytest.param({"requests": {"cpu": "1"}, "limits": None}, {"requests": {"cpu": "1"}}, id="requests alone"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 8, "memory": "1Gi"}, "claims": [{"name": "card"}]},
            {"limits": {"memory": "1Gi"}},
            id="no GPU",
        ),
    ],
)
def test_the_wait_may_use_what_its_container_may(given: Any, waits_with: Any) -> None:
    scene = with_master(1).role("Worker", 1, containers=[{"name": "pytorch", "image": "i", "resources": given}])

    (wait,) = waits_of(scene, "worker-0")

    assert wait["resources"] == waits_with


def test_the_program_that_waits_is_python() -> None:
    (wait,) = waits_of(with_master(1), "worker-0")

    compile(wait["command"][3], "wait", "exec")


def test_no_pull_policy_is_invented() -> None:
    (wait,) = waits_of(with_master(1), "worker-0")

    assert "imagePullPolicy" not in wait


def test_always_is_the_init_container_of_training_operator() -> None:
    scene = with_master(1).having(init_container=InitContainer(mode="always", image="example/tools:2", max_tries=7))

    (wait,) = waits_of(scene, "worker-0")

    script = wait["command"][2]
    assert {key: wait[key] for key in wait if key != "command"} == {
        "name": "init-pytorch",
        "image": "example/tools:2",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
    }
    assert wait["command"][:2] == ["sh", "-c"]
    assert "$tries -lt 7" in script
    assert "nslookup j-master-0" in script
    assert "sleep 2" in script


def test_never_adds_nothing() -> None:
    scene = with_master(1).having(init_container=InitContainer(mode="never"))

    assert waits_of(scene, "worker-0") == []


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
def test_a_template_replaces_the_whole_list(mode: Any) -> None:
    text = """\
- name: look
  image: {{.InitContainerImage}}
  args: ["{{ .MasterAddr }}", "{{.MaxTries}}"]
- name: look-again
  image: example/other:1
"""
    scene = with_master(1).having(init_container=InitContainer(mode=mode, image="example/tools:2", template=text))

    assert waits_of(scene, "worker-0") == [
        {"name": "look", "image": "example/tools:2", "args": ["j-master-0", "100"]},
        {"name": "look-again", "image": "example/other:1"},
    ]


def test_the_users_init_containers_come_first() -> None:
    own = {"name": "fetch", "image": "example/fetch:1"}
    scene = with_master(1).role("Worker", 1, initContainers=[own])

    first, second = waits_of(scene, "worker-0")

    assert first == own
    assert second["name"] == "init-pytorch"


# The autoscaler.

METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def test_an_elastic_job_with_metrics_has_an_autoscaler() -> None:
    scene = elastic(1, minReplicas=1, maxReplicas=3, metrics=[METRIC])

    (companion,) = scene.framework.companions(scene.job)

    assert companion.resource == HORIZONTAL_POD_AUTOSCALERS
    assert not companion.keep
    assert companion.body == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [METRIC],
        },
    }


def test_old_clusters_get_the_version_they_serve() -> None:
    scene = elastic(1, metrics=[METRIC]).having(autoscaling_version="v2beta2")

    (companion,) = scene.framework.companions(scene.job)

    assert companion.body["apiVersion"] == "autoscaling/v2beta2"
    assert scene.settings.adapted(companion.resource).api_version == "autoscaling/v2beta2"


@pytest.mark.parametrize("scene", [with_master(), elastic()], ids=["not elastic", "no metrics"])
def test_other_jobs_have_none(scene: Scene) -> None:
    assert list(scene.framework.companions(scene.job)) == []


# Leaders and the end.


@pytest.mark.parametrize(
    ("scene", "leader"), [(with_master(2), "master-0"), (elastic(2), "worker-0")], ids=["master", "worker 0"]
)
def test_the_master_leads_or_else_worker_0(scene: Scene, leader: str) -> None:
    assert [member.slot for member in scene.job.members() if scene.framework.is_leader(member)] == [leader]


@pytest.mark.parametrize(
    ("scene", "done", "succeeded"),
    [
        pytest.param(with_master(2), {"Master": {0}}, True, id="the master decides"),
        pytest.param(with_master(2), {"Worker": {0, 1}}, False, id="workers do not"),
        pytest.param(a_job("PyTorchJob").role("Worker", 2), {"Worker": {0, 1}}, True, id="all workers decide"),
        pytest.param(a_job("PyTorchJob").role("Worker", 2), {"Worker": {0}}, False, id="one worker does not"),
        pytest.param(elastic(2), {"Worker": {1}}, True, id="any worker of an elastic job does"),
        pytest.param(elastic(2), {}, False, id="but one it must be"),
        pytest.param(with_master(2, elasticPolicy={}), {"Worker": {0}}, False, id="not under a master"),
    ],
)
def test_a_job_has_succeeded_when_its_deciding_role_has(
    scene: Scene, done: dict[str, set[int]], succeeded: bool
) -> None:
    counts = {role: Count(succeeded=frozenset(done.get(role, ()))) for role in scene.job.replicas}

    assert PyTorch().succeeded(scene.job, counts) is succeeded


@pytest.mark.parametrize(
    ("scene", "running", "succeeded"),
    [
        pytest.param(
            with_master(), "{kind} {name} is running.", "{kind} {name} is successfully completed.", id="with a master"
        ),
        pytest.param(
            elastic(),
            "{kind} {namespace}/{name} is running.",
            "{kind} {namespace}/{name} successfully completed.",
            id="without",
        ),
    ],
)
def test_messages_name_the_namespace_only_without_a_master(scene: Scene, running: str, succeeded: str) -> None:
    messages = scene.framework.messages(scene.job)

    assert (messages.running, messages.succeeded) == (running, succeeded)
