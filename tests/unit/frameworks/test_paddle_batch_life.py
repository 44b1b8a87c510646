"""How a paddle-operator job goes through its phases, ends, and is cleaned up."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.unit.frameworks.paddle_jobs import a_paddle, addressed

from trainmaster.api.status import render
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated, Waiting
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import Scene, created, deleted, states

RUNNING = ContainerState(running={})
WAITING = ContainerState(waiting=Waiting("CrashLoopBackOff"))
ENDED = ContainerState(terminated=Terminated(exit_code=0))


def status_of(scene: Scene) -> dict[str, Any]:
    return render(scene.plan().status)


def phase_of(scene: Scene) -> str:
    return str(status_of(scene)["phase"])


def standing(scene: Scene, role: str, index: int, **status: Any) -> Scene:
    """The pod with these containers in its status."""
    held = scene.pods[f"job-{role}-{index}"]
    changed = Pod(held.metadata, structs.replace(held.status, **status))
    return replace(scene, pods={**scene.pods, held.name: changed})


def container(name: str = "main", state: ContainerState = RUNNING, *, ready: bool = True) -> ContainerStatus:
    return ContainerStatus(name=name, ready=ready, state=state)


@pytest.mark.parametrize(
    ("roles", "mode"),
    [
        pytest.param({"ps": 1, "worker": 2}, "PS", id="servers and workers"),
        pytest.param({"ps": 0, "worker": 2}, "PS", id="no server now"),
        pytest.param({"ps": 1, "worker": 1, "heter": 1}, "PS", id="with heter"),
        pytest.param({"worker": 2}, "Collective", id="workers"),
        pytest.param({"worker": 1}, "Single", id="a worker"),
    ],
)
def test_the_mode_follows_from_the_roles(roles, mode):
    assert status_of(a_paddle(**roles))["mode"] == mode


@pytest.mark.parametrize(
    ("status", "counter"),
    [
        pytest.param(PodStatus("Pending"), "pending", id="pending"),
        pytest.param(
            PodStatus("Pending", init_container_statuses=(container("mine"),)), "pending", id="own init container"
        ),
        pytest.param(
            PodStatus("Pending", init_container_statuses=(container("coord-paddle", ready=False),)),
            "starting",
            id="coordinator runs",
        ),
        pytest.param(
            PodStatus("Pending", init_container_statuses=(container("coord-paddle", ENDED),)),
            "pending",
            id="coordinator has ended",
        ),
        pytest.param(PodStatus("Running", container_statuses=(container(),)), "running", id="running"),
        pytest.param(
            PodStatus("Running", container_statuses=(container(ready=False),)), "starting", id="not ready yet"
        ),
        pytest.param(
            PodStatus("Running", container_statuses=(container(), container("log", ENDED))),
            "starting",
            id="one of two has ended",
        ),
        pytest.param(
            PodStatus("Running", container_statuses=(container(state=WAITING, ready=False),)), "starting", id="crashing"
        ),
        pytest.param(
            PodStatus(
                "Running",
                container_statuses=(container(),),
                init_container_statuses=(container("mine", WAITING, ready=False),),
            ),
            "starting",
            id="init not ready",
        ),
        pytest.param(PodStatus("Succeeded"), "succeeded", id="succeeded"),
        pytest.param(PodStatus("Failed"), "failed", id="failed"),
        pytest.param(PodStatus("Unknown"), "", id="unknown"),
    ],
)
def test_a_pod_is_counted_by_what_it_does(status, counter):
    scene = a_paddle(worker=1).all("Running")

    worker = status_of(standing(scene, "worker", 0, **structs.asdict(status)))["worker"]

    counted = {key: value for key, value in worker.items() if key not in ("ready", "refs")}
    assert counted == ({counter: 1} if counter else {})
    assert worker["ready"] == ("1/1" if counter == "running" else "0/1")


STARTING = {"container_statuses": (container(ready=False),)}


@pytest.mark.parametrize(
    ("scene", "phase"),
    [
        pytest.param(a_paddle(ps=1, worker=2), "Pending", id="nothing yet"),
        pytest.param(a_paddle(ps=1, worker=2).all("Pending"), "Pending", id="all pending"),
        pytest.param(
            a_paddle(ps=1, worker=2).all("Running").pod("worker", 1, "Pending"), "Pending", id="one is pending"
        ),
        pytest.param(
            standing(a_paddle(ps=1, worker=2).all("Running").pod("worker", 1, "Pending"), "ps", 0, **STARTING),
            "Starting",
            id="starting goes before pending",
        ),
        pytest.param(a_paddle(ps=1, worker=2).all("Running"), "Running", id="all run"),
        pytest.param(
            standing(a_paddle(ps=1, worker=2).all("Failed", "worker"), "worker", 0, phase="Pending"),
            "Failed",
            id="failed goes before all",
        ),
        pytest.param(
            a_paddle(ps=1, worker=2).all("Succeeded", "worker").pod("ps", 0, "Failed"),
            "Failed",
            id="failed goes before completed",
        ),
        pytest.param(
            a_paddle(ps=2, worker=2).all("Running").all("Succeeded", "worker"), "Completed", id="servers serve on"
        ),
        pytest.param(
            a_paddle(ps=1, worker=1, heter=1).all("Running").all("Succeeded", "worker"), "Pending", id="heter works on"
        ),
        pytest.param(
            a_paddle(ps=1, worker=1, heter=1).all("Running").all("Succeeded", "worker").all("Succeeded", "heter"),
            "Completed",
            id="workers and heters are done",
        ),
        pytest.param(a_paddle(ps=2).all("Running").pod("ps", 0, "Succeeded"), "Pending", id="no workers, one done"),
        pytest.param(a_paddle(ps=2).all("Succeeded"), "Completed", id="no workers, all done"),
        pytest.param(a_paddle(ps=1, worker=0).all("Running"), "Running", id="workers scaled to nothing"),
        pytest.param(a_paddle(worker=0), "Pending", id="scaled to nothing"),
    ],
)
def test_the_phase_follows_from_the_pods(scene, phase):
    assert phase_of(scene) == phase


def test_a_job_some_of_whose_workers_are_done_still_runs():
    scene = a_paddle(worker=2).all("Running").after().pod("worker", 0, "Succeeded")

    assert phase_of(scene) == "Running"
    assert status_of(scene)["worker"]["ready"] == "1/2"


def test_a_completed_job_with_servers_still_serving_shows_2_of_2_and_0_of_2():
    scene = a_paddle(ps=2, worker=2, cleanPodPolicy="Never").all("Running").after().all("Succeeded", "worker").settled()

    status = status_of(scene)
    assert (status["phase"], status["mode"]) == ("Completed", "PS")
    assert (status["ps"]["ready"], status["worker"]["ready"]) == ("2/2", "0/2")
    assert status["completionTime"]
    assert states(scene.plan().status)[-1] == "Succeeded"


def test_every_role_of_the_spec_is_shown_also_when_its_pods_are_gone_and_no_other():
    scene = a_paddle(worker=2).all("Succeeded").settled()

    status = status_of(scene)

    assert scene.pods == {}
    assert status["worker"] == {"ready": "0/2"}
    assert "ps" not in status
    assert "heter" not in status


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_end_is_final(phase):
    ended = a_paddle(worker=1, cleanPodPolicy="Never").all(phase).after()

    assert phase_of(ended.all("Running")) == phase_of(ended)
    assert phase_of(ended) == {"Succeeded": "Completed", "Failed": "Failed"}[phase]


def test_start_time_is_when_the_job_was_first_seen_running():
    pending = a_paddle(worker=2).all("Pending")

    running = pending.after().at(60).all("Running")

    assert "startTime" not in status_of(pending)
    assert status_of(running)["startTime"] == "2023-11-14T22:14:20Z"
    assert status_of(running.after().at(60))["startTime"] == "2023-11-14T22:14:20Z"


def test_references_name_the_pods_of_each_role():
    scene = a_paddle(ps=3, worker=2).all("Running")

    status = status_of(scene)

    assert [ref["name"] for ref in status["ps"]["refs"]] == ["job-ps-0", "job-ps-1", "job-ps-2"]
    assert status["worker"]["refs"][0] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "job-worker-0",
        "uid": "uid-job-worker-0-0",
    }


def test_upstreams_own_test_scaling_a_job_of_3_servers_and_2_workers_to_1_and_4():
    scene = a_paddle(ps=3, worker=2, intranet="Service", cleanPodPolicy="Never").settled()
    before = status_of(scene)

    after = status_of(scene.scaled("ps", 1).scaled("worker", 4).settled())

    assert before["mode"] == "PS"
    assert (len(before["ps"]["refs"]), len(before["worker"]["refs"])) == (3, 2)
    assert (len(after["ps"]["refs"]), len(after["worker"]["refs"])) == (1, 4)


CLEANED = [
    pytest.param(None, "Succeeded", True, id="unset, completed"),
    pytest.param(None, "Failed", False, id="unset, failed"),
    pytest.param("", "Succeeded", True, id="empty, completed"),
    pytest.param("", "Failed", False, id="empty, failed"),
    pytest.param("Always", "Succeeded", True, id="Always, completed"),
    pytest.param("Always", "Failed", True, id="Always, failed"),
    pytest.param("OnCompletion", "Succeeded", True, id="OnCompletion, completed"),
    pytest.param("OnCompletion", "Failed", False, id="OnCompletion, failed"),
    pytest.param("OnFailure", "Succeeded", False, id="OnFailure, completed"),
    pytest.param("OnFailure", "Failed", True, id="OnFailure, failed"),
    pytest.param("Never", "Succeeded", False, id="Never, completed"),
    pytest.param("Never", "Failed", False, id="Never, failed"),
    pytest.param("Nerver", "Succeeded", False, id="unknown, completed"),
    pytest.param("Nerver", "Failed", False, id="unknown, failed"),
]


@pytest.mark.parametrize(("policy", "phase", "cleaned"), CLEANED)
def test_pods_and_services_are_kept_or_go_by_policy_and_outcome(policy, phase, cleaned):
    scene = addressed(a_paddle(ps=1, worker=1, **({} if policy is None else {"cleanPodPolicy": policy})), "Running")

    ended = scene.after().pod("worker", 0, phase).settled()

    assert (not ended.pods, not ended.services) == (cleaned, cleaned)


RUNS, WHOLE = ["job-ps-0", "job-worker-1"], ["job-ps-0", "job-worker-0", "job-worker-1"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        pytest.param("", RUNS, id="unset: what still runs"),
        pytest.param("OnCompletion", RUNS, id="OnCompletion: what still runs"),
        pytest.param("Always", WHOLE, id="Always"),
        pytest.param("OnFailure", WHOLE, id="OnFailure"),
        pytest.param("Never", [], id="Never"),
    ],
)
def test_a_job_past_its_deadline_lets_go_of_what_it_holds_unless_told_never_to(policy, gone):
    scene = a_paddle(ps=1, worker=2, cleanPodPolicy=policy).policy(activeDeadlineSeconds=60).all("Running")
    scene = scene.pod("worker", 0, "Succeeded").after()

    plan = scene.at(60).plan()

    assert plan.status.is_true("Failed")
    assert sorted(deleted(plan)) == gone


def test_a_failed_pod_fails_the_job_for_good():
    scene = a_paddle(worker=2).all("Running").after().pod("worker", 1, "Failed", exit_code=1)

    ended = scene.after()

    assert phase_of(ended) == "Failed"
    assert created(ended.gone("worker", 1).plan()) == []


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_an_evicted_pod_fails_a_job_that_is_not_elastic(policy):
    scene = a_paddle().role("worker", 2, restartPolicy=policy).all("Running").pod("worker", 1, "Failed")

    assert phase_of(scene) == "Failed"


def test_an_elastic_job_takes_an_evicted_worker_back():
    scene = a_paddle(worker=2, elastic=1).all("Running").pod("worker", 1, "Failed")

    made = scene.plan()

    assert deleted(made) == ["job-worker-1"]
    assert created(scene.after(made).plan()) == ["job-worker-1"]
    assert not made.status.is_finished


def test_a_container_that_is_restarted_in_place_does_not_fail_the_job():
    scene = a_paddle(worker=1, intranet="Service").all("Running").after()

    crashing = standing(scene, "worker", 0, container_statuses=(container(state=WAITING, ready=False),))

    assert phase_of(crashing) == "Starting"
    assert crashing.plan().actions == ()


@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
@pytest.mark.parametrize("role", ["ps", "worker"])
@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded", "Pending"])
def test_a_pod_deleted_by_hand_is_made_again_however_it_ends(intranet, role, phase):
    scene = addressed(a_paddle(ps=1, worker=1, intranet=intranet), "Running").after()

    leaving = scene.pod(role, 0, phase, terminating=True, ip="10.0.0.1").after()
    gone = leaving.gone(role, 0)

    assert not leaving.job.status.is_finished
    assert f"job-{role}-0" in created(gone.plan())


def test_a_worker_that_was_done_before_it_was_deleted_stays_done():
    scene = a_paddle(worker=2).all("Running").pod("worker", 0, "Succeeded").after()

    leaving = scene.pod("worker", 0, "Succeeded", terminating=True)

    assert created(leaving.after().gone("worker", 0).plan()) == []
    assert phase_of(leaving.pod("worker", 1, "Succeeded")) == "Completed"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_pod_deleted_by_hand_is_not_made_again_in_a_job_that_has_ended(phase, role):
    scene = addressed(a_paddle(ps=1, worker=1, cleanPodPolicy="Never"), "Running").pod("worker", 0, phase)

    ended = scene.settled().gone(role, 0)

    assert ended.plan().actions == ()


def test_pods_of_a_deleted_job_of_the_same_name_do_not_count():
    scene = a_paddle(worker=1).pod("worker", 0, "Failed", owner="an-earlier-one")

    assert phase_of(scene) == "Pending"
    assert status_of(scene)["worker"] == {"ready": "0/1"}


def test_replicas_taken_away_go_and_replicas_added_come():
    scene = addressed(a_paddle(worker=2), "Running").after()

    assert deleted(scene.scaled("worker", 1).plan()) == ["job-worker-1"]
    assert deleted(scene.scaled("worker", 1).plan(), SERVICES) == ["job-worker-1"]
    assert created(scene.scaled("worker", 3).plan()) == ["job-worker-2"]


def test_a_job_that_has_ended_keeps_its_pods_whatever_its_replicas_are_set_to():
    ended = addressed(a_paddle(worker=2, cleanPodPolicy="Never"), "Succeeded").settled()

    assert ended.scaled("worker", 1).plan().actions == ()
    assert ended.scaled("worker", 3).plan().actions == ()


def test_a_suspended_job_is_pending_and_has_no_pods():
    scene = addressed(a_paddle(worker=1), "Running").after().policy(suspend=True).settled()

    assert phase_of(scene) == "Pending"
    assert scene.pods == {}
