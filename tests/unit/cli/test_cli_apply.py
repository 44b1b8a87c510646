"""`trainmaster apply`."""

import json

import pytest
import yaml

from trainmaster.cli.apply import ApplyOptions, apply
from trainmaster.objects.resource import CONFIG_MAPS
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.scene import a_job


def config(name="c", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def run(stage, tmp_path):
    def run(*bodies, namespace="default", **options):
        path = tmp_path / "all.yaml"
        path.write_text(yaml.safe_dump_all(bodies))
        chosen = ApplyOptions((str(path),), **options)
        return stage.run("apply", lambda session: apply(session, chosen), namespace=namespace)

    return run


def patches(stage):
    return [request for request in stage.api.sent if request.method in ("PATCH", "POST")]


def test_it_tells_what_it_did(stage, run, capsys):
    run(config(a="1"))
    run(config(a="1"))
    run(config(a="2"))

    assert capsys.readouterr().out.splitlines() == [
        "configmap/c created",
        "configmap/c unchanged",
        "configmap/c configured",
    ]


def test_what_controllers_write_meanwhile_is_not_our_change(stage, run, capsys):
    run(config(a="1"))
    held = stage.api.object(CONFIG_MAPS, "default", "c")

    def write(method, path, body):
        if method == "PATCH":
            stage.api.put(CONFIG_MAPS, {**held, "status": {"seen": True}})

    stage.api.on_request(write)

    run(config(a="1"))

    assert capsys.readouterr().out.splitlines()[-1] == "configmap/c unchanged"


def test_it_is_a_server_side_apply_of_ours(stage, run):
    run(config(), force_conflicts=True, dry_run="server")

    assert dict(patches(stage)[0].params) == {"fieldManager": "trainmaster", "force": "true", "dryRun": "All"}


def test_what_only_the_server_may_say_is_left_out(stage, run):
    body = config()
    body["metadata"] |= {"resourceVersion": "7", "uid": "u", "managedFields": [{}]}

    run({**body, "status": {"x": 1}})

    sent = json.loads(patches(stage)[0].body)
    assert sent["metadata"] == {"name": "c", "namespace": "default"}
    assert "status" not in sent


def test_jobs_come_after_what_they_use(stage, run, capsys):
    job = a_job("PyTorchJob", "ddp").role("Master").manifest

    code = run(job, config())

    assert code == 0
    assert capsys.readouterr().out.splitlines() == ["configmap/c created", "pytorchjob.kubeflow.org/ddp created"]


def test_a_bad_job_stops_everything_before_it_begins(stage, run, capsys):
    bad = a_job("PyTorchJob", "Bad").role("Master", 2).manifest

    code = run(config(), bad)

    told = capsys.readouterr().err
    assert code == 2
    assert "[Master].replicas" in told
    assert not patches(stage)


def test_objects_go_where_they_say_or_where_one_is(stage, run):
    body = config("there")
    body["metadata"]["namespace"] = "team"

    run(body, config("here"), namespace="mine")

    places = {item["metadata"]["name"]: item["metadata"]["namespace"] for item in stage.api.objects(CONFIG_MAPS)}
    assert places == {"there": "team", "here": "mine"}


def test_the_flag_and_the_manifest_must_agree(stage, tmp_path, capsys):
    body = config()
    body["metadata"]["namespace"] = "team"
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(body))
    chosen = ApplyOptions((str(path),), namespace="mine")

    code = stage.run("apply", lambda session: apply(session, chosen), namespace="mine")

    assert code == 2
    assert "metadata.namespace is team, but -n says mine" in capsys.readouterr().err


def test_conflicts_are_told_with_the_way_out(stage, run, capsys):
    stage.api.fail_next("PATCH *", Fault(409, "Conflict", 'conflict with "kubectl": .data.a'))

    code = run(config(a="1"))

    told = capsys.readouterr().err
    assert code == 1
    assert 'conflict with "kubectl"' in told
    assert "--force-conflicts" in told


def test_what_the_server_finds_invalid_is_bad_input(stage, run, capsys):
    stage.api.fail_next("PATCH *", Fault(422, "Invalid", "data.a: Invalid value"))

    assert run(config(a="1")) == 2
    assert "ConfigMap c: data.a: Invalid value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(
            {"apiVersion": "x.org/v1", "kind": "Foo", "metadata": {"name": "a"}}, "no x.org/v1 Foo", id="kind"
        ),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "metadata.name is needed", id="name"),
    ],
)
def test_what_cannot_be_applied_is_told(run, capsys, body, said):
    assert run(body) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["PyTorchJob", "ConfigMap"])
def test_a_name_that_the_server_makes_is_refused_before_anything_is_changed(stage, run, capsys, kind):
    body = config() if kind == "ConfigMap" else a_job("PyTorchJob", "ddp").role("Master").manifest

    code = run(config("first"), {**body, "metadata": {"generateName": "ddp-"}})

    told = capsys.readouterr().err
    assert code == 2
    assert f"{kind} ddp-xxxxx: metadata.generateName makes a new object each time" in told
    assert "give it a metadata.name, or use: kubectl create -f FILE" in told
    assert not patches(stage)


def test_what_is_stored_can_be_printed(run, capsys):
    run(config("a"), config("b"), output="json")

    assert [item["metadata"]["name"] for item in json.loads(capsys.readouterr().out)["items"]] == ["a", "b"]


def test_nothing_to_apply_is_told(stage, run):
    assert run() == 2
    assert stage.run("apply", lambda session: apply(session, ApplyOptions(()))) == 2
