"""`trainmaster scale`."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.cli.scale import ScaleOptions, scale
from trainmaster.testing.fakediscovery import DEPLOYMENTS


def run(stage, *words, replicas=5, **options):
    return stage.run("scale", lambda session: scale(session, ScaleOptions(words, replicas, **options)))


def counts(stage, resource, field="pytorchReplicaSpecs"):
    roles = stage.api.object(resource, "default", "ddp")["spec"][field]
    return {name: role["replicas"] for name, role in roles.items()}


def test_the_elastic_role_goes_through_the_subresource(stage, capsys):
    resource = stage.job()

    code = run(stage, "ddp")

    assert (code, capsys.readouterr().out) == (0, "pytorchjob.kubeflow.org/ddp scaled\n")
    assert counts(stage, resource) == {"Master": 1, "Worker": 5}


def test_another_role_is_patched_whatever_its_case(stage):
    resource = stage.job("XGBoostJob")

    run(stage, "xgboostjob/ddp", role="worker", replicas=3)

    assert counts(stage, resource, "xgbReplicaSpecs") == {"Master": 1, "Worker": 3}


def test_workers_are_meant_where_no_role_is_named(stage):
    resource = stage.job("XGBoostJob")

    run(stage, "ddp", replicas=4)

    assert counts(stage, resource, "xgbReplicaSpecs")["Worker"] == 4


def submitted(stage, scene):
    framework = scene.framework
    return stage.api.put(framework.resource, {**scene.manifest, "metadata": {"name": "ddp", "namespace": "default"}})


def test_roles_that_stand_in_the_spec_itself_are_patched_there(stage):
    scene = a_paddle(ps=1, worker=2)
    submitted(stage, scene)

    run(stage, "paddlejob.batch.paddlepaddle.org/ddp", replicas=4)

    spec = stage.api.object(scene.framework.resource, "default", "ddp")["spec"]
    assert {role: spec[role]["replicas"] for role in ("ps", "worker")} == {"ps": 1, "worker": 4}


def test_a_task_is_patched_in_its_list(stage):
    tasks = [{"name": "ps", "replicas": 1}, {"name": "trainer", "replicas": 2}]
    scene = a_paddle(mode="PS", tasks=tasks)
    submitted(stage, scene)

    run(stage, "paddlejob.batch.paddlepaddle.org/ddp", role="trainer", replicas=4)

    spec = stage.api.object(scene.framework.resource, "default", "ddp")["spec"]
    assert spec["tasks"] == [{"name": "ps", "replicas": 1}, {"name": "trainer", "replicas": 4}]


def test_other_kinds_scale_too(stage):
    stage.api.put(DEPLOYMENTS, {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}})

    code = run(stage, "deploy/d", current_replicas=1)

    assert code == 0
    assert stage.api.object(DEPLOYMENTS, "default", "d")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("words", "options", "code", "said"),
    [
        pytest.param(["ddp"], {"role": "PS"}, 2, "has Master, Worker", id="role of another kind"),
        pytest.param(["ddp"], {"current_replicas": 9}, 1, "has 2 replicas, not the 9", id="not what one thought"),
        pytest.param(["done"], {}, 1, "has ended", id="ended"),
        pytest.param(["pod/ddp-worker-0"], {}, 2, "cannot be scaled", id="a pod"),
        pytest.param(["deploy/d"], {"role": "Worker"}, 2, "has no roles", id="role of no job"),
    ],
)
def test_what_cannot_be_scaled_is_told(stage, capsys, words, options, code, said):
    stage.job()
    stage.job(name="done", conditions=stage.conditions(("Failed", "")))
    stage.pod("worker-0")
    stage.api.put(DEPLOYMENTS, {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}})

    assert run(stage, *words, **options) == code
    assert said in capsys.readouterr().err
    assert not stage.api.writes()


def test_a_role_that_the_job_could_have_is_told_how_to_get(stage, capsys):
    stage.job(master=False)

    assert run(stage, "ddp", role="Master") == 1
    assert "add spec.pytorchReplicaSpecs[Master]" in capsys.readouterr().err
