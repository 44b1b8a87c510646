from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.jobs import JobKeeper, pod_for
from trainmaster.cluster.controllers.jobs_plan import INDEX, TRACKING, index_of, parse_indexes, plan, render_indexes
from trainmaster.objects import timestamp
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

JOBS, PODS, EVENTS = "batch/v1/jobs", "v1/pods", "v1/events"


def play(scene: Any) -> None:
    stage.play(scene, lambda registry, now: [JobKeeper(registry, now=now), GarbageCollector(registry)])


def a_job(*, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "launcher"}, "annotations": {"note": "x"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "i", "command": ["true"]}]},
    }
    metadata = {"name": "train", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def job_of(stage: Stage) -> dict[str, Any]:
    job = stage.get(JOBS, "default/train")
    assert job is not None
    return job


def status_of(stage: Stage) -> dict[str, Any]:
    return dict(job_of(stage).get("status") or {})


def condition(stage: Stage, type_: str) -> dict[str, Any] | None:
    conditions = status_of(stage).get("conditions", [])
    return next((each for each in conditions if each["type"] == type_), None)


def active(stage: Stage) -> list[str]:
    """Names of pods that are neither over nor being deleted."""
    return [
        pod["metadata"]["name"]
        for pod in stage.all(PODS)
        if pod["status"].get("phase") in (None, "Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
    ]


async def end(stage: Stage, name: str, phase: str = "Succeeded") -> None:
    code = 0 if phase == "Succeeded" else 1
    terminated = {"exitCode": code, "finishedAt": timestamp.render(stage.now())}
    statuses = [{"name": "main", "state": {"terminated": terminated}}]
    await stage.change(PODS, f"default/{name}", "status", status={"phase": phase, "containerStatuses": statuses})


async def next_pod(stage: Stage) -> str:
    return (await stage.until(lambda: active(stage)))[0]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        pytest.param("7", 7, id="number"),
        pytest.param("x", None, id="text"),
        pytest.param("9" * 5000, None, id="more digits than Python reads"),
    ],
)
def test_an_index_is_a_number_that_can_be_one(text: str, index: int | None) -> None:
    assert index_of({"metadata": {"annotations": {INDEX: text}}}) == index


def test_a_job_runs_one_pod_and_completes_with_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job())
        name = await next_pod(stage)
        pod = stage.get(PODS, f"default/{name}")
        assert pod is not None
        assert name.startswith("train-")
        assert len(name) == len("train-") + 5
        uid = job_of(stage)["metadata"]["uid"]
        assert pod["metadata"]["labels"] == {
            "app": "launcher",
            "controller-uid": uid,
            "job-name": "train",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "train",
        }
        assert pod["metadata"]["annotations"] == {"note": "x"}
        await stage.until(lambda: status_of(stage).get("active") == 1)

        await end(stage, name)

        told = await stage.until(lambda: condition(stage, "Complete"))
        status = status_of(stage)
        assert told["status"] == "True"
        assert (status["succeeded"], status["failed"], status["active"]) == (1, 0, 0)
        assert status["uncountedTerminatedPods"] == {}
        assert status["startTime"] <= status["completionTime"]
        assert "finalizers" not in (stage.get(PODS, f"default/{name}") or {})["metadata"]
        reasons = {event["reason"] for event in stage.all(EVENTS)}
        assert {"SuccessfulCreate", "Completed"} <= reasons

    play(scene)


def test_a_failed_pod_is_replaced_after_a_growing_pause() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(backoffLimit=3))
        pauses = []
        for _ in range(3):
            name = await next_pod(stage)
            failed = stage.now()
            await end(stage, name, "Failed")
            await next_pod(stage)
            pauses.append(round(stage.now() - failed))

        assert pauses == [10, 20, 40]
        await stage.until(lambda: status_of(stage).get("failed") == 3)

    play(scene)


def test_more_failures_than_the_limit_fail_the_job() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(backoffLimit=1))
        for _ in range(2):
            await end(stage, await next_pod(stage), "Failed")

        told = await stage.until(lambda: condition(stage, "Failed"))

        assert (told["reason"], told["message"]) == (
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
        assert status_of(stage)["failed"] == 2
        await stage.passes(3600)
        assert active(stage) == []

    play(scene)


def test_restarts_in_place_count_against_the_limit() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(policy="OnFailure", backoffLimit=2))
        name = await next_pod(stage)

        async def restarted(count: int) -> None:
            statuses = [{"name": "main", "restartCount": count, "ready": True, "image": "i", "imageID": ""}]
            await stage.change(
                PODS, f"default/{name}", "status", status={"phase": "Running", "containerStatuses": statuses}
            )

        await restarted(1)
        await stage.passes(60)
        assert condition(stage, "Failed") is None

        await restarted(2)

        await stage.until(lambda: condition(stage, "Failed"))
        await stage.until(lambda: active(stage) == [])

    play(scene)


@pytest.mark.parametrize("type_", ["Failed", "Complete"])
def test_a_pod_that_outlived_the_end_of_its_job_is_stopped(type_: str) -> None:
    ended = {"type": type_, "status": "True", "lastTransitionTime": timestamp.render(1)}
    pods = [
        {"metadata": {"name": "running"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "leaving", "deletionTimestamp": timestamp.render(1)}, "status": {"phase": "Running"}},
        {"metadata": {"name": "over"}, "status": {"phase": "Failed"}},
    ]

    made = plan({**a_job(), "status": {"conditions": [ended]}}, pods, now=2)

    assert [pod["metadata"]["name"] for pod in made.delete] == ["running"]
    assert (made.create, made.expire) == ((), False)


def test_completions_are_reached_with_no_more_pods_at_once_than_allowed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(completions=5, parallelism=2))
        seen: set[str] = set()
        for _ in range(5):
            await stage.until(lambda: len(active(stage)) == min(2, 5 - status_of(stage).get("succeeded", 0)))
            name = active(stage)[0]
            seen.add(name)
            await end(stage, name)
            await stage.until(lambda: status_of(stage).get("succeeded") == len(seen))

        await stage.until(lambda: condition(stage, "Complete"))
        assert len(stage.names(PODS)) == len(seen) == 5

    play(scene)


def test_a_job_without_completions_is_over_when_one_succeeded_and_all_ended() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(parallelism=3))
        names = await stage.until(lambda: active(stage) if len(active(stage)) == 3 else [])

        await end(stage, names[0])
        await stage.passes(60)
        assert active(stage) == names[1:]
        await end(stage, names[1])
        await end(stage, names[2])

        await stage.until(lambda: condition(stage, "Complete"))
        assert len(stage.names(PODS)) == 3

    play(scene)


def test_each_index_of_an_indexed_job_must_succeed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(completions=3, parallelism=3, completionMode="Indexed"))
        await stage.until(lambda: len(active(stage)) == 3)
        pods = {pod["metadata"]["annotations"][INDEX]: pod for pod in stage.all(PODS)}
        assert sorted(pods) == ["0", "1", "2"]
        assert pods["1"]["metadata"]["name"].startswith("train-1-")
        assert pods["1"]["spec"]["hostname"] == "train-1"
        assert pods["1"]["spec"]["containers"][0]["env"][-1]["name"] == "JOB_COMPLETION_INDEX"

        await end(stage, pods["0"]["metadata"]["name"])
        await end(stage, pods["2"]["metadata"]["name"])
        await end(stage, pods["1"]["metadata"]["name"], "Failed")
        await stage.until(lambda: status_of(stage).get("completedIndexes") == "0,2")
        again = await next_pod(stage)
        assert again.startswith("train-1-")
        await end(stage, again)

        await stage.until(lambda: condition(stage, "Complete"))
        assert status_of(stage)["completedIndexes"] == "0-2"
        assert status_of(stage)["succeeded"] == 3

    play(scene)


def test_a_job_past_its_deadline_fails_and_its_pods_are_stopped() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(activeDeadlineSeconds=90))
        await next_pod(stage)
        begin = stage.now()

        told = await stage.until(lambda: condition(stage, "Failed"))

        assert told["reason"] == "DeadlineExceeded"
        assert 89 <= stage.now() - begin <= 91
        await stage.until(lambda: active(stage) == [])

    play(scene)


def test_a_suspended_job_has_no_pods_and_starts_anew_when_resumed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(suspend=True))
        told = await stage.until(lambda: condition(stage, "Suspended"))
        assert told["status"] == "True"
        assert (stage.names(PODS), "startTime" in status_of(stage)) == ([], False)

        await stage.change(JOBS, "default/train", spec={"suspend": False})
        await next_pod(stage)
        assert (condition(stage, "Suspended") or {})["status"] == "False"
        assert status_of(stage)["startTime"]

        await stage.change(JOBS, "default/train", spec={"suspend": True})
        await stage.until(lambda: active(stage) == [])
        await stage.until(lambda: status_of(stage).get("active") == 0)
        await stage.passes(60)
        assert status_of(stage)["failed"] == 0
        assert "startTime" not in status_of(stage)

    play(scene)


def test_a_finished_job_goes_after_its_time_with_its_pods() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(ttlSecondsAfterFinished=100))
        await end(stage, await next_pod(stage))
        await stage.until(lambda: condition(stage, "Complete"))
        finished = stage.now()

        await stage.until(lambda: not stage.names(JOBS) and not stage.names(PODS))

        assert 99 <= stage.now() - finished <= 101

    play(scene)


def test_a_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job())
        name = await next_pod(stage)

        await stage.delete(PODS, f"default/{name}", gracePeriodSeconds=0)

        await stage.until(lambda: status_of(stage).get("failed") == 1)
        await stage.until(lambda: name not in stage.names(PODS))
        assert await next_pod(stage) != name

    play(scene)


def test_a_job_may_wait_for_the_end_of_a_deleted_pod_before_replacing_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(podReplacementPolicy="Failed"))
        name = await next_pod(stage)
        await stage.change(PODS, f"default/{name}", "status", status={"phase": "Running"})
        await stage.registry.bind("default", name, {"target": {"name": "box"}})

        await stage.delete(PODS, f"default/{name}")
        await stage.passes(25)
        assert active(stage) == []
        await end(stage, name, "Failed")

        assert await next_pod(stage) != name

    play(scene)


def test_fewer_wanted_pods_stop_the_least_useful_ones() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(completions=4, parallelism=3))
        names = await stage.until(lambda: active(stage) if len(active(stage)) == 3 else [])
        await stage.change(PODS, f"default/{names[1]}", "status", status={"phase": "Running"})

        await stage.change(JOBS, "default/train", spec={"parallelism": 1})

        await stage.until(lambda: active(stage) == [names[1]])
        await stage.passes(60)
        assert status_of(stage)["failed"] == 0

    play(scene)


def test_pods_of_a_deleted_job_are_let_go() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job())
        await next_pod(stage)

        await stage.delete(JOBS, "default/train", propagationPolicy="Background")

        await stage.until(lambda: not stage.names(JOBS) and not stage.names(PODS))

    play(scene)


def test_in_the_foreground_a_job_goes_after_its_pods() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job())
        await next_pod(stage)

        await stage.delete(JOBS, "default/train", propagationPolicy="Foreground")

        await stage.until(lambda: not stage.names(JOBS))
        assert stage.names(PODS) == []

    play(scene)


def test_a_job_managed_by_somebody_else_is_left_alone() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(JOBS, a_job(managedBy="kueue.x-k8s.io/multikueue"))

        await stage.passes(60)

        assert stage.names(PODS) == []

    play(scene)


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_restarted_controller_counts_nothing_twice(end: str) -> None:
    number = end.lower()
    job = a_job(completions=2)
    job["metadata"]["uid"] = "job"
    pod: dict[str, Any] = {**pod_for(job, None), "status": {"phase": end}}
    pod["metadata"] |= {"uid": "one", "name": "train-1"}

    noted = plan(job, [pod], now=100.0)
    assert noted.status["uncountedTerminatedPods"] == {number: ["one"]}
    assert noted.status[number] == 0
    assert noted.release == (pod,)
    job["status"] = dict(noted.status)
    again = plan(job, [pod], now=101.0)
    assert (again.status[number], again.status["uncountedTerminatedPods"]) == (0, {number: ["one"]})

    pod["metadata"]["finalizers"].remove(TRACKING)
    counted = plan(job, [pod], now=102.0)
    assert (counted.status[number], counted.status["uncountedTerminatedPods"]) == (1, {})
    job["status"] = dict(counted.status)
    assert plan(job, [], now=103.0).status[number] == 1


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("", set()), ("3", {3}), ("0,1", {0, 1}), ("0-2,5", {0, 1, 2, 5}), ("0,2,4-9", {0, 2, *range(4, 10)})],
)
def test_sets_of_indexes_are_written_as_kubernetes_does(text: str, indexes: set[int]) -> None:
    assert parse_indexes(text) == indexes
    assert render_indexes(indexes) == text
