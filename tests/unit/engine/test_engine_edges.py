"""Where two rules meet."""

from trainmaster.testing.scene import a_job


def test_a_job_scaled_to_nothing_waits_and_has_not_succeeded():
    scene = a_job("JAXJob").role("Worker", 0)

    status = scene.settled().job.status

    assert not status.is_finished


def test_a_chief_without_replicas_leaves_the_decision_to_the_workers():
    scene = a_job("TFJob").role("Chief", 0).role("Worker", 2)

    running = scene.all("Running").plan().status
    done = scene.all("Succeeded", exit_code=0).plan().status

    assert running.is_true("Running")
    assert done.is_true("Succeeded")


def test_a_pod_that_fails_while_others_delete_it_costs_no_attempt():
    scene = a_job("JAXJob").role("Worker", 2, "ExitCode").policy(backoffLimit=0).all("Running")

    made = scene.pod("Worker", 1, "Failed", exit_code=1, terminating=True).plan()

    assert made.status.attempts == {}
    assert not made.status.is_finished


def test_the_deadline_of_a_resumed_job_does_not_run_while_its_group_waits_for_admission():
    scene = (
        a_job("TFJob").role("Worker", 2).policy(activeDeadlineSeconds=60, suspend=True).having(gang_scheduler="volcano")
    )
    resumed = scene.settled().policy(suspend=False).settled()

    admitted = resumed.at(3600).group("Inqueue").plan()

    assert resumed.job.status.start_time is None
    assert not admitted.status.is_finished
