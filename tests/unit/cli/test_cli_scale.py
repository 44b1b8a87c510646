"""`trainmaster scale`."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.cli.scale import ScaleOptions, scale
from trainmaster.testing.fakediscovery import DEPLOYMENTS
from trainmaster.testing.scene import a_job


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


def test_beside_a_key_of_another_spelling_the_number_that_counts_is_changed(stage):
    resource = stage.job()
    roles = stage.api.object(resource, "default", "ddp")["spec"]["pytorchReplicaSpecs"]
    stage.api.put(
        resource,
        {
            **stage.api.object(resource, "default", "ddp"),
            "spec": {"pytorchReplicaSpecs": {"worker": roles["Worker"], "Worker": {"replicas": 3}}},
        },
    )

    run(stage, "ddp", role="worker", replicas=4)

    assert counts(stage, resource) == {"worker": roles["Worker"]["replicas"], "Worker": 4}


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


@pytest.mark.parametrize(
    ("role", "replicas", "rule"),
    [
        pytest.param("", 0, "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1", id="too few"),
        pytest.param("Master", 2, "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1", id="too many"),
    ],
)
def test_a_number_that_the_rules_of_the_kind_refuse_is_not_written(stage, capsys, role, replicas, rule):
    stage.job()

    code = run(stage, "ddp", role=role, replicas=replicas)

    said = capsys.readouterr().err
    assert code == 1
    assert rule in said
    assert f"--replicas {replicas}" in said
    assert not stage.api.writes()


@pytest.mark.parametrize(
    ("version", "code"), [pytest.param("v2beta1", 1, id="at least one"), pytest.param("v1", 0, id="none will do")]
)
def test_the_rules_are_those_of_the_version_in_which_the_job_was_written(stage, version, code):
    scene = a_job("MPIJob", "ddp", version=version).role("Launcher").role("Worker", 2)
    submitted(stage, scene)

    assert run(stage, "mpijob/ddp", replicas=0) == code


def test_what_was_wrong_before_does_not_keep_a_job_from_being_scaled(stage):
    resource = stage.job()
    held = stage.api.object(resource, "default", "ddp")
    stage.api.put(resource, {**held, "spec": {**held["spec"], "runPolicy": {"cleanPodPolicy": "Some"}}})

    run(stage, "ddp")

    assert counts(stage, resource) == {"Master": 1, "Worker": 5}


def test_a_role_that_the_job_could_have_is_told_how_to_get(stage, capsys):
    stage.job(master=False)

    assert run(stage, "ddp", role="Master") == 1
    assert "add spec.pytorchReplicaSpecs[Master]" in capsys.readouterr().err
