"""Jobs of every kind from submission to their end; the kubelet's part is played by the tests."""

import pytest
from tests.suite.cluster import active, condition, conditions

from trainmaster.kube.errors import Invalid
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, SERVED, a_small, replicas_of
from trainmaster.testing.scene import a_job

every_kind = pytest.mark.parametrize("kind", KINDS)


def pods_of(kind, name):
    return replicas_of(kind, ROLES[kind], name)


def served_of(kind, name):
    return replicas_of(kind, SERVED.get(kind, ROLES[kind]), name)


@every_kind
async def test_a_job_lives_from_submission_to_success(cluster, kind):
    name = f"life-{kind.lower()}"
    job = a_small(kind, name).manifest

    await cluster.submit(job)
    await cluster.pods(job, pods_of(kind, name))
    await cluster.services(job, served_of(kind, name))
    begun = await cluster.status(job)
    await cluster.play(job, "Running")
    running = await cluster.status(job, lambda status: active(status) == ROLES[kind])
    await cluster.play(job, "Succeeded", 0, only=LEADER.get(kind, ""))
    ended = await cluster.last(job, "Succeeded")

    assert conditions(begun) == [("Created", "True")]
    assert conditions(running) == [("Created", "True"), ("Running", "True")]
    assert conditions(ended) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert active(ended) == {}
    assert begun["startTime"] == ended["startTime"] <= ended["completionTime"]


@every_kind
async def test_what_happens_to_a_job_is_told_in_events(cluster, kind):
    name = f"told-{kind.lower()}"
    scene = a_small(kind, name)
    job = scene.policy(cleanPodPolicy="All").manifest

    stored = await cluster.submit(job)
    await cluster.pods(job, pods_of(kind, name))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")
    await cluster.play(job, "Succeeded", 0, only=LEADER.get(kind, ""))
    ended = await cluster.last(job, "Succeeded")
    made = await cluster.event(job, "SuccessfulCreatePod", pods_of(kind, name)[-1])
    # An MSJob's Service is there before its first pod, and told of by itself.
    served = await cluster.event(job, "SuccessfulCreateService") if kind == "MSJob" else made
    over = await cluster.event(job, f"{kind}Succeeded")
    cleared = await cluster.event(job, "SuccessfulDeletePod")

    assert made["message"].startswith(("Created pod: ", "Created pods: "))
    assert served_of(kind, name)[-1] in served["message"].partition("service")[2]
    assert cleared["message"] == "Deleted pods: " + ", ".join(pods_of(kind, name))
    assert over["message"] == condition(ended, "Succeeded")["message"]
    for event in (made, served, over, cleared):
        about = event["involvedObject"]
        assert (about["kind"], about["name"], about["uid"]) == (kind, name, stored["metadata"]["uid"])
        assert (event["type"], event["source"]["component"]) == ("Normal", scene.framework.controller_name)
        assert event["count"] == 1


@every_kind
async def test_a_failure_is_told_in_a_warning(cluster, kind):
    name = f"fails-{kind.lower()}"
    job = a_small(kind, name, "Never").manifest
    leader = LEADER.get(kind, "worker")

    await cluster.submit(job)
    await cluster.pods(job, pods_of(kind, name))
    await cluster.set_phase(f"{name}-{leader}-0", "Failed", 1)
    ended = await cluster.last(job, "Failed")
    event = await cluster.event(job, f"{kind}Failed")

    assert condition(ended, "Failed")["reason"] == f"{kind}Failed"
    assert leader in condition(ended, "Failed")["message"].lower()
    assert (event["type"], event["message"]) == ("Warning", condition(ended, "Failed")["message"])
    assert ended["completionTime"]


async def test_the_scheduler_of_an_msjob_is_met_at_the_address_that_the_server_gave(cluster):
    job = a_small("MSJob", "meeting").manifest

    await cluster.submit(job)
    pods = await cluster.pods(job, 3)
    address = (await cluster.get(SERVICES, "meeting-scheduler-0"))["spec"]["clusterIP"]

    hosts = {name: pod["spec"]["containers"][0]["env"][0].get("value") for name, pod in pods.items()}
    assert address not in ("", "None")
    assert hosts == {"meeting-scheduler-0": None, "meeting-worker-0": address, "meeting-worker-1": address}


@pytest.mark.parametrize(
    "changes",
    [{"apiVersion": "xgboostjob.kubeflow.org/v1", "kind": "XGBoostJob"}, {"kind": "MXNetJob"}],
    ids=["group", "kind"],
)
async def test_old_names_of_kinds_are_served(cluster, changes):
    name = f"old-{changes['kind'].lower()}"
    job = {**a_small("XGBoostJob" if "apiVersion" in changes else "MXJob", name).manifest, **changes}

    await cluster.submit(job)

    await cluster.pods(job, 3 if "apiVersion" in changes else 4)


async def test_the_api_server_refuses_wrong_types_and_keeps_flat_fields(cluster):
    good = a_small("TFJob", "flat").spec(cleanPodPolicy="All", cleanPolicy="typo").manifest
    bad = a_small("TFJob", "bad-type").scaled("Worker", "two").manifest  # type: ignore[arg-type]  # on purpose

    stored = await cluster.submit(good)
    with pytest.raises(Invalid, match=r"spec\.tfReplicaSpecs\.Worker\.replicas"):
        await cluster.submit(bad)

    assert stored["spec"]["cleanPodPolicy"] == "All"
    assert stored["spec"]["cleanPolicy"] == "typo"


async def test_an_invalid_job_makes_nothing(cluster):
    job = a_job("PyTorchJob", "invalid").role("Master", 2).manifest

    await cluster.submit(job)
    await cluster.last(job, "Failed")

    await cluster.event(job, "PyTorchJobFailedValidation", "must be 1")
    assert not await cluster.standing(job)


@every_kind
async def test_an_invalid_job_is_told_all_its_problems(cluster, kind):
    scene = a_small(kind, f"invalid-{kind.lower()}", "Sometimes")
    role = next(iter(ROLES[kind]))
    field = scene.framework.replicas_field
    roles = {**scene.manifest["spec"][field], "Juggler": {"replicas": 1}}
    job = scene.spec(**{field: roles}).policy(cleanPodPolicy="Often").manifest

    await cluster.submit(job)
    failed = condition(await cluster.last(job, "Failed"), "Failed")
    event = await cluster.event(job, failed["reason"])

    assert failed["reason"] == f"{kind}{scene.framework.rejected}"
    assert (event["type"], event["message"]) == ("Warning", failed["message"])
    for problem in (
        f"spec.{field}[{role}].restartPolicy: Unsupported value",
        f"spec.{field}[Juggler]: Unsupported value",
        f"spec.{field}[Juggler].template.spec.containers: Required value",
        "spec.runPolicy.cleanPodPolicy: Unsupported value",
    ):
        assert problem in failed["message"]
    assert not await cluster.standing(job)
    assert not await cluster.standing(job, SERVICES)


@every_kind
async def test_a_misspelt_field_is_named_in_a_warning_and_the_job_runs(cluster, kind):
    job = a_small(kind, f"typo-{kind.lower()}").spec(cleanPolicy="All").manifest

    await cluster.submit(job)
    await cluster.pods(job, sum(ROLES[kind].values()))
    event = await cluster.event(job, "UnknownField")

    assert event["type"] == "Warning"
    assert event["message"] == "spec.cleanPolicy is not a known field and is ignored; did you mean cleanPodPolicy?"


@every_kind
async def test_a_pod_that_somebody_deletes_comes_back(cluster, kind):
    name = f"back-{kind.lower()}"
    job = a_small(kind, name, "OnFailure").manifest
    lost = f"{name}-worker-1"

    await cluster.submit(job)
    before = await cluster.pods(job, pods_of(kind, name))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")
    await cluster.remove(PODS, lost)
    after = await cluster.pods(
        job,
        pods_of(kind, name),
        lambda pod: pod["metadata"]["name"] != lost or pod["metadata"]["uid"] != before[lost]["metadata"]["uid"],
    )

    assert {p: after[p]["metadata"]["uid"] == before[p]["metadata"]["uid"] for p in after} == {
        p: p != lost for p in after
    }
    assert not (await cluster.status(job)).get("attempts")


@every_kind
async def test_a_pod_of_a_finished_job_that_somebody_deletes_stays_gone(cluster, kind):
    name = f"over-{kind.lower()}"
    job = a_small(kind, name).policy(cleanPodPolicy="None").manifest
    lost = f"{name}-worker-1"

    await cluster.submit(job)
    await cluster.pods(job, pods_of(kind, name))
    await cluster.play(job, "Succeeded", 0)
    ended = await cluster.last(job, "Succeeded")
    await cluster.remove(PODS, lost)
    await cluster.witnessed(job)

    assert sorted(await cluster.standing(job)) == [pod for pod in pods_of(kind, name) if pod != lost]
    assert await cluster.status(job) == ended


def test_the_rights_that_were_granted_sufficed(operators):
    """Runs last: of all that the operator asked in the lives above, nothing was forbidden."""
    assert operators[0].refused == []
    assert len(operators[0].answers) > 100
