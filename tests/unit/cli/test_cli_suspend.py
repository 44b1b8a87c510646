"""`trainmaster suspend` and `resume`."""

import pytest

from trainmaster.cli.suspend import SuspendOptions, suspend


def run(stage, *words, wanted=True, **options):
    return stage.run("suspend", lambda session: suspend(session, SuspendOptions(words, wanted, **options)))


def policy(stage, resource, name="ddp"):
    spec = stage.api.object(resource, "default", name)["spec"]
    return spec.get("runPolicy", {}).get("suspend"), spec.get("suspend")


def test_a_job_is_suspended_and_resumed(stage, capsys):
    resource = stage.job()

    first = run(stage, "ddp"), policy(stage, resource)
    second = run(stage, "pytorchjob/ddp", wanted=False), policy(stage, resource)

    assert (first, second) == ((0, (True, None)), (0, (False, None)))
    assert capsys.readouterr().out.splitlines() == [
        "pytorchjob.kubeflow.org/ddp suspended",
        "pytorchjob.kubeflow.org/ddp resumed",
    ]


def test_what_is_so_already_is_left_alone(stage, capsys):
    stage.job()

    run(stage, "ddp", wanted=False)

    assert capsys.readouterr().out == "pytorchjob.kubeflow.org/ddp unchanged\n"
    assert not stage.api.writes()


def test_a_flat_field_of_an_old_manifest_is_changed_with_it(stage):
    resource = stage.job()
    item = stage.api.object(resource, "default", "ddp")
    stage.api.put(resource, {**item, "spec": {**item["spec"], "suspend": True}})

    run(stage, "ddp", wanted=False)

    assert policy(stage, resource) == (False, False)


def test_all_jobs_of_a_kind_are_suspended(stage):
    resource = stage.job(name="a")
    stage.job(name="b")

    run(stage, "pytorchjobs", all_of_kind=True)

    assert [policy(stage, resource, name)[0] for name in ("a", "b")] == [True, True]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["done"], 1, "has ended and cannot be suspended", id="ended"),
        pytest.param(["pod/ddp-worker-0"], 2, "is not a job", id="a pod"),
        pytest.param(["none"], 1, "neither a training job", id="nobody"),
        pytest.param(["pytorchjobs"], 2, "which of them?", id="all without saying so"),
    ],
)
def test_what_cannot_be_suspended_is_told(stage, capsys, words, code, said):
    stage.job(name="done", conditions=stage.conditions(("Succeeded", "")))
    stage.pod("worker-0")

    assert run(stage, *words) == code
    assert said in capsys.readouterr().err
    assert not stage.api.writes()
