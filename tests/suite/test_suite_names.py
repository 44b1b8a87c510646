"""Names and addresses by which pods start: nobody else's, and the same again when they were lost."""

from tests.suite.cluster import resource_of
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.objects.resource import CONFIG_MAPS, SERVICES
from trainmaster.testing.jobs import a_small


async def test_no_pod_is_made_while_the_name_of_its_configmap_is_a_users(cluster):
    job = a_paddle(worker=2).meta(name="taken").manifest
    mine = {"metadata": {"name": "taken", "namespace": cluster.namespace}, "data": {"PADDLE_PORT": "1"}}
    await cluster.client.create(CONFIG_MAPS, mine)

    await cluster.submit(job)
    event = await cluster.event(job, "FailedCreateConfigMap")
    made = await cluster.standing(job)
    await cluster.remove(CONFIG_MAPS, "taken")

    assert await cluster.pods(job, 2)
    assert made == {}
    assert "rename the job, or remove that object" in event["message"]


async def test_the_scheduler_of_an_msjob_is_found_where_it_was_when_its_service_is_made_again(cluster):
    job = a_small("MSJob", "moved").manifest
    await cluster.submit(job)
    await cluster.pods(job, 3)
    before = await cluster.get(SERVICES, "moved-scheduler-0")

    await cluster.remove(SERVICES, "moved-scheduler-0")
    uid = before["metadata"]["uid"]
    after = await cluster.object(SERVICES, "moved-scheduler-0", lambda found: found["metadata"]["uid"] != uid)

    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]


async def test_a_job_that_had_completed_under_paddle_operator_is_not_run_again(cluster):
    job = a_paddle(worker=2).meta(name="past").policy(suspend=True).manifest
    await cluster.submit(job)
    await cluster.status(job, lambda status: status.get("phase") == "Pending")
    stored = await cluster.job(job)
    ended = {"phase": "Completed", "conditions": [], "completionTime": "2023-01-01T00:00:00Z"}

    await cluster.client.update(resource_of(job), {**stored, "status": ended}, cluster.namespace, "status")
    await cluster.policy(job, suspend=False)
    status = await cluster.status(job, lambda status: status.get("conditions"))

    assert [condition["type"] for condition in status["conditions"]] == ["Succeeded"]
    assert await cluster.standing(job) == {}
