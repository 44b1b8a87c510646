"""PaddleJobs written as lists of tasks."""

from typing import Any

import pytest
from tests.unit.frameworks.paddle_jobs import GROUP, addressed, env_of, the_pod

from trainmaster.api.status import render
from trainmaster.frameworks import paddle_batch_status as statuses
from trainmaster.objects.resource import CONFIG_MAPS
from trainmaster.testing.scene import Scene, a_job, body, created


def a_task(name: Any, replicas: int = 1, **template: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/train:1"}]
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": containers, **template}}}


def tasked(mode: str, *tasks: dict[str, Any], **spec: Any) -> Scene:
    return a_job("PaddleJob", group=GROUP, mode=mode, tasks=list(tasks), **spec)


PS = tasked("PS", a_task("ps-1"), a_task("ps-2"), a_task("trainer", 2), a_task("heter"), a_task("driver"))
COLLECTIVE = tasked("Collective", a_task("gpu-1"), a_task("xpu-22", 2))


def data_of(scene: Scene) -> dict[str, str]:
    return dict(body(addressed(scene).plan(), "job", CONFIG_MAPS)["data"])


def who(scene: Scene, pod: str) -> tuple[str, str]:
    env = env_of(the_pod(scene, pod))
    return env["PADDLE_TRAINING_ROLE"], env["PADDLE_TRAINER_ID"]


def test_pods_are_named_after_their_tasks():
    assert created(COLLECTIVE.plan()) == ["job-gpu-1-0", "job-xpu-22-0", "job-xpu-22-1"]


def test_tasks_may_bear_the_names_of_status_fields():
    scene = tasked("Collective", a_task("mode"), a_task("phase", 2)).all("Running")

    report = scene.plan().status.report

    assert (report["phase"], report["mode"]) == ("Running", "Collective")
    assert {task: stands["ready"] for task, stands in report["tasks"].items()} == {"mode": "1/1", "phase": "2/2"}


@pytest.mark.parametrize(
    ("job", "task", "problem"),
    [
        pytest.param(
            "resnet",
            "t" * 60,
            f'spec.tasks[{"t" * 60}].name: Invalid value: "{"t" * 60}": its replica resnet-{"t" * 60}-0'
            " has more than 63 characters; use a name of at most 54",
            id="task",
        ),
        pytest.param(
            "j" * 60,
            "worker",
            f'metadata.name: Invalid value: "{"j" * 60}": its replica {"j" * 60}-worker-0'
            " has more than 63 characters; use a name of at most 54",
            id="job",
        ),
        pytest.param(
            "j" * 59,
            "t" * 60,
            f'spec.tasks[{"t" * 60}].name: Invalid value: "{"t" * 60}": its replica {"j" * 59}-{"t" * 60}-0'
            " has more than 63 characters; use a name of at most 30",
            id="both",
        ),
    ],
)
def test_of_two_names_that_are_too_long_together_the_longer_is_to_give_way(job, task, problem):
    scene = tasked("Collective", a_task(task)).meta(name=job)

    assert scene.problems == [problem]


@pytest.mark.parametrize(("tasks", "shown"), [(1, 4), (2, 3), (3, 2), (12, 1)])
def test_the_status_names_only_so_many_pods_of_all_tasks(tasks, shown, monkeypatch):
    monkeypatch.setattr(statuses, "MAX_REFERENCES", 4)
    monkeypatch.setattr(statuses, "ALL_REFERENCES", 6)
    scene = tasked("Collective", *(a_task(f"t-{number}", 5) for number in range(tasks)))

    report = scene.all("Pending").plan().status.report["tasks"]

    assert {len(task["refs"]) for task in report.values()} == {shown}
    assert {task["pending"] for task in report.values()} == {5}


def test_in_collective_mode_all_are_trainers_numbered_through():
    found = [who(COLLECTIVE, pod) for pod in created(COLLECTIVE.plan())]

    assert found == [("TRAINER", "0"), ("TRAINER", "1"), ("TRAINER", "2")]


def test_in_ps_mode_the_type_tells_the_role_and_numbers_go_by_role():
    found = {pod.removeprefix("job-"): who(PS, pod) for pod in created(PS.plan())}

    assert found == {
        "ps-1-0": ("PSERVER", "0"),
        "ps-2-0": ("PSERVER", "1"),
        "trainer-0": ("TRAINER", "0"),
        "trainer-1": ("TRAINER", "1"),
        "heter-0": ("HETER", "0"),
        "driver-0": ("DRIVER", "0"),
    }


def test_a_pod_bears_its_task_and_its_ranks():
    metadata = the_pod(COLLECTIVE, "job-xpu-22-1")["metadata"]

    assert metadata["labels"].items() >= {"paddle-pod-key": "job-xpu-22-1", "paddle-task-name": "xpu-22"}.items()
    assert metadata["annotations"].items() >= {
        "paddle-task-type": "XPU",
        "paddle-task-rank": "1",
        "paddle-pod-rank": "1",
        "paddle-global-rank": "2",
        "paddle-local-rank": "1",
    }.items()  # fmt: skip


def test_collective_tasks_learn_hosts_and_types():
    data = data_of(COLLECTIVE)

    assert data["PADDLE_TRAINERS"] == "10.0.0.1,10.0.0.2,10.0.0.3"
    assert data["PADDLE_TRAINERS_TYPES"] == "GPU,XPU,XPU"
    assert data["PADDLE_TRAINERS_NUM"] == "3"


def test_ps_tasks_learn_the_endpoints_of_every_type():
    data = data_of(PS)

    port = data["PADDLE_PORT"]
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == f"10.0.0.1:{port},10.0.0.2:{port}"
    assert data["PADDLE_HETER_TRAINER_IP_PORT_LIST"] == f"10.0.0.5:{port}"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == f"10.0.0.3:{port},10.0.0.4:{port}"
    assert data["PADDLE_DRIVER_ENDPOINTS"] == f"10.0.0.6:{port}"


def test_custom_tasks_learn_the_hosts_of_every_type():
    scene = tasked("Custom", a_task("actor", 2), a_task("critic"))

    data = data_of(scene)

    assert (data["PADDLE_ACTOR_HOST"], data["PADDLE_CRITIC_HOST"]) == ("10.0.0.1,10.0.0.2", "10.0.0.3")
    assert who(scene, "job-critic-0") == ("CRITIC", "0")


@pytest.mark.parametrize(
    ("template", "expected"),
    [pytest.param({}, "OnFailure", id="unset"), pytest.param({"restartPolicy": "Never"}, "Never", id="set")],
)
def test_tasks_restart_unless_their_template_says_otherwise(template, expected):
    pod = the_pod(tasked("Single", a_task("main", **template)), "job-main-0")

    assert pod["spec"]["restartPolicy"] == expected


def test_all_but_servers_decide():
    scene = PS.all("Running")

    status = render(
        scene.all("Succeeded", "trainer").all("Succeeded", "heter").all("Succeeded", "driver").plan().status
    )

    assert (status["phase"], status["mode"]) == ("Completed", "PS")
    assert status["tasks"]["ps-1"]["ready"] == "1/1"
    assert status["tasks"]["trainer"]["ready"] == "0/2"


def test_in_order_a_task_starts_when_those_before_it_have_addresses():
    scene = tasked("PS", a_task("ps"), a_task("trainer", 2), startInOrder=1)

    first = scene.after()

    assert list(first.pods) == ["job-ps-0"]
    assert created(first.plan()) == []
    assert created(first.pod("ps", 0, "Pending", ip="10.0.0.1").plan()) == ["job-trainer-0", "job-trainer-1"]


@pytest.mark.parametrize(
    ("scene", "problem"),
    [
        pytest.param(
            tasked("Nonsense", a_task("a")),
            'spec.mode: Unsupported value: "Nonsense": supported values: "PS", "Collective", "Single", "Custom"',
            id="mode",
        ),
        pytest.param(
            tasked("Single", a_task("a"), a_task("a")),
            "spec.tasks[a].name: Forbidden: must be the name of one task only",
            id="two of a name",
        ),
        pytest.param(
            tasked("Single", a_task("A_b")),
            'spec.tasks[A_b].name: Invalid value: "A_b": should match: ^[a-z]([-a-z0-9]*[a-z0-9])?$',
            id="no name for a pod",
        ),
        pytest.param(
            tasked("Single", a_task("a"), a_task(7)),
            "spec.tasks[1].name: Invalid value: 7: must be of type string; put it in quotes",
            id="a number for a name",
        ),
        pytest.param(
            tasked("Single", {"name": "a", "template": {"spec": {"containers": []}}}),
            "spec.tasks[a].template.spec.containers: Required value: must be specified",
            id="no container",
        ),
        pytest.param(
            tasked("Collective", a_task("a"), elastic=1),
            "spec.tasks[worker]: Required value: must be present, "
            "because spec.elastic lets the number of workers change",
            id="elastic",
        ),
        pytest.param(
            tasked("Collective", a_task("a"), worker=a_task("worker")),
            "spec.worker: Forbidden: must not stand beside spec.tasks; make it one of them",
            id="roles beside tasks",
        ),
    ],
)
def test_mistakes_in_tasks_are_named_with_their_path(scene, problem):
    assert problem in scene.problems


@pytest.mark.parametrize(
    ("scene", "is_grouped"),
    [
        pytest.param(tasked("PS", a_task("ps"), a_task("trainer", schedulerName="volcano")), True, id="a trainer's"),
        pytest.param(tasked("PS", a_task("ps", schedulerName="volcano"), a_task("trainer")), False, id="a server's"),
    ],
)
def test_the_scheduler_of_those_that_train_counts_for_all(scene, is_grouped):
    pods = [the_pod(scene, name) for name in ("job-ps-0", "job-trainer-0")]

    assert [pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == "job" for pod in pods] == [
        is_grouped,
        is_grouped,
    ]


def test_tasks_need_no_advice():
    assert COLLECTIVE.reading.advice == ()
