"""`trainmaster wait`."""

import pytest

from trainmaster.cli.wait import WaitOptions, wait
from trainmaster.objects.resource import PODS
from trainmaster.testing.operation import passing


def run(stage, *words, goal="condition=Succeeded", beside=None, **options):
    return stage.run("wait", lambda session: wait(session, WaitOptions(words, goal, **options)), beside=beside)


def after(seconds, change):
    async def later():
        await passing(seconds)
        change()

    return later


def test_it_returns_when_the_condition_holds(stage, capsys):
    stage.job()

    ends = after(10, lambda: stage.job(conditions=stage.conditions(("Succeeded", ""))))
    code = run(stage, "ddp", beside=ends)

    assert (code, capsys.readouterr().out) == (0, "pytorchjob.kubeflow.org/ddp condition met\n")


def test_what_holds_already_is_not_waited_for(stage):
    stage.job(conditions=stage.conditions(("Succeeded", "")))

    assert run(stage, "ddp", timeout="0s") == 0


@pytest.mark.parametrize("timeout", ["0s", "5s"])
def test_it_ends_with_1_when_time_runs_out(stage, capsys, timeout):
    stage.job()

    assert run(stage, "ddp", timeout=timeout) == 1
    assert "timed out waiting for condition=Succeeded on pytorchjob.kubeflow.org/ddp" in capsys.readouterr().err


def test_it_ends_at_once_when_the_job_fails(stage, capsys):
    stage.job()

    ends = after(10, lambda: stage.job(conditions=stage.conditions(("Failed", "a rank failed"))))
    code = run(stage, "ddp", timeout="-1s", beside=ends)

    told = capsys.readouterr().err
    assert code == 1
    assert "failed: a rank failed" in told
    assert "trainmaster describe" in told


def test_a_failure_can_be_waited_for(stage):
    stage.job(conditions=stage.conditions(("Failed", "")))

    assert run(stage, "ddp", goal="condition=failed") == 0


def test_a_condition_can_be_waited_for_to_be_false(stage):
    stage.job(conditions=[{"type": "Running", "status": "False"}])

    assert run(stage, "ddp", goal="condition=Running=false") == 0


def test_deletion_can_be_waited_for(stage, capsys):
    stage.pod("worker-0")

    code = run(
        stage,
        "pod/ddp-worker-0",
        goal="delete",
        beside=after(10, lambda: stage.api.remove(PODS, "default", "ddp-worker-0")),
    )

    assert (code, capsys.readouterr().out) == (0, "pod/ddp-worker-0 condition met\n")
    assert run(stage, "pod/ddp-worker-0", goal="delete") == 0


def test_creation_can_be_waited_for(stage):
    assert run(stage, "pod/ddp-worker-0", goal="create", beside=after(10, lambda: stage.pod("worker-0"))) == 0
    assert run(stage, "pod/none", goal="create", timeout="5s") == 1


def test_a_value_can_be_waited_for(stage):
    stage.pod("worker-0")

    ends = after(10, lambda: stage.api.set_pod_phase("default", "ddp-worker-0", "Succeeded"))
    code = run(stage, "pod/ddp-worker-0", goal="jsonpath={.status.phase}=Succeeded", beside=ends)

    assert code == 0
    assert run(stage, "pod/ddp-worker-0", goal="jsonpath={.status.nothing}", timeout="0s") == 1


def test_an_object_that_vanishes_is_not_waited_for(stage, capsys):
    resource = stage.job()

    code = run(stage, "ddp", timeout="-1s", beside=after(10, lambda: stage.api.remove(resource, "default", "ddp")))

    assert code == 1
    assert "was deleted before" in capsys.readouterr().err


def test_each_of_several_is_told(stage, capsys):
    stage.job(name="a", conditions=stage.conditions(("Succeeded", "")))
    stage.job(name="b", conditions=stage.conditions(("Failed", "no luck")))

    code = run(stage, "pytorchjobs", all_of_kind=True)

    told = capsys.readouterr()
    assert code == 1
    assert told.out == "pytorchjob.kubeflow.org/a condition met\n"
    assert "pytorchjob.kubeflow.org/b failed: no luck" in told.err


@pytest.mark.parametrize("goal", ["", "Succeeded", "condition=", "jsonpath=x"])
def test_a_goal_that_is_none_is_told_what_there_is(stage, capsys, goal):
    stage.job()

    assert run(stage, "ddp", goal=goal) == 2
    assert "condition=Succeeded" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["x", "5 minutes", "1d", "nan"])
def test_a_timeout_that_is_none_is_told(stage, capsys, timeout):
    assert run(stage, "ddp", timeout=timeout) == 2
    assert "1h30m" in capsys.readouterr().err
