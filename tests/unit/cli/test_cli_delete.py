"""`trainmaster delete`."""

import msgspec
import pytest
import yaml

from trainmaster.cli.delete import DeleteOptions, delete
from trainmaster.objects.resource import PODS
from trainmaster.testing.operation import passing


def run(stage, *words, beside=None, namespace="default", **options):
    work = DeleteOptions(words, **options)
    return stage.run("delete", lambda session: delete(session, work), beside=beside, namespace=namespace)


def sent(stage):
    return [msgspec.json.decode(request.body) for request in stage.api.sent if request.method == "DELETE"]


def test_a_job_goes_by_its_name_alone(stage, capsys):
    resource = stage.job()

    code = run(stage, "ddp")

    assert (code, capsys.readouterr().out) == (0, 'pytorchjob.kubeflow.org "ddp" deleted\n')
    assert stage.api.objects(resource) == []


def test_only_the_object_that_was_seen_is_deleted(stage):
    stage.job()

    run(stage, "pytorchjob/ddp")

    assert sent(stage)[0]["preconditions"] == {"uid": "uid-PyTorchJob-ddp"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, {"propagationPolicy": "Background"}, id="default"),
        pytest.param({"cascade": "orphan"}, {"propagationPolicy": "Orphan"}, id="orphan"),
        pytest.param({"cascade": "foreground"}, {"propagationPolicy": "Foreground"}, id="foreground"),
        pytest.param({"now": True}, {"gracePeriodSeconds": 1}, id="now"),
        pytest.param({"force": True}, {"gracePeriodSeconds": 0}, id="force"),
        pytest.param({"grace_period": 7}, {"gracePeriodSeconds": 7}, id="grace"),
    ],
)
def test_flags_reach_the_server(stage, options, wanted):
    stage.job()

    run(stage, "ddp", wait=False, **options)

    assert wanted.items() <= sent(stage)[0].items()


def held(stage):
    stage.job()
    (resource,) = [one for one in stage.api.resources if one.kind == "PyTorchJob"]
    item = stage.api.object(resource, "default", "ddp")
    stage.api.put(resource, {**item, "metadata": {**item["metadata"], "finalizers": ["x"]}})
    return resource


def test_it_returns_when_the_object_is_gone(stage):
    resource = held(stage)
    seen = []

    async def release():
        await passing(20)
        seen.append("released")
        stage.api.remove(resource, "default", "ddp")

    code = run(stage, "ddp", beside=release)

    assert (code, seen) == (0, ["released"])


def test_it_does_not_wait_if_told_so(stage):
    held(stage)

    assert run(stage, "ddp", wait=False) == 0


def test_it_gives_up_waiting_after_the_timeout(stage, capsys):
    held(stage)

    assert run(stage, "ddp", timeout="5s") == 1
    assert "metadata.finalizers" in capsys.readouterr().err


def test_labels_choose(stage, capsys):
    stage.pod("worker-0")
    stage.pod("master-0", leader=True)

    run(stage, "pods", selector="training.kubeflow.org/job-role=master")

    assert capsys.readouterr().out == 'pod "ddp-master-0" deleted\n'
    assert [pod["metadata"]["name"] for pod in stage.api.objects(PODS)] == ["ddp-worker-0"]


def test_all_of_a_kind_go_only_if_one_says_so(stage, capsys):
    stage.pod("worker-0")
    stage.pod("worker-1")

    refused = run(stage, "pods")
    done = run(stage, "pods", all_of_kind=True, output="name")

    told = capsys.readouterr()
    assert (refused, done) == (2, 0)
    assert "--all" in told.err
    assert told.out.split() == ["pod/ddp-worker-0", "pod/ddp-worker-1"]


def test_a_manifest_says_what_to_delete_and_where(stage, tmp_path, capsys):
    resource = stage.job(name="a", namespace="team")
    stage.job(name="a")
    path = tmp_path / "a.yaml"
    metadata = {"name": "a", "namespace": "team"}
    path.write_text(yaml.safe_dump({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}))

    code = run(stage, files=(str(path),))

    assert code == 0
    assert [job["metadata"]["namespace"] for job in stage.api.objects(resource)] == ["default"]


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("words", [["pytorchjob/none"], ["none"]], ids=["with its kind", "by its name alone"])
def test_what_is_not_there_is_an_error_unless_ignored(stage, ignored, words):
    assert run(stage, *words, ignore_not_found=ignored) == (0 if ignored else 1)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["none", "ddp"], id="names alone"),
        pytest.param(["pytorchjob", "none", "ddp"], id="a kind and names"),
        pytest.param(["pytorchjob/none", "pytorchjob/ddp"], id="pairs"),
    ],
)
def test_what_is_there_goes_although_another_is_not(stage, words):
    resource = stage.job()

    code = run(stage, *words, ignore_not_found=True)

    assert (code, stage.api.objects(resource)) == (0, [])


def test_an_unknown_kind_is_no_absent_job(stage, capsys):
    code = run(stage, "pytorhcjobs", all_of_kind=True, ignore_not_found=True)

    assert code == 1
    assert "pytorhcjobs is neither a training job" in capsys.readouterr().err


def test_what_the_server_named_is_not_found_by_its_manifest(stage, tmp_path, capsys):
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {generateName: ddp-}\n")

    assert run(stage, files=(str(path),)) == 2
    assert "the server made one of its metadata.generateName, so delete it by that" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "options"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["pod/a"], {"files": ("x",)}, id="names and files"),
        pytest.param(["pod/a"], {"selector": "a=b"}, id="names and labels"),
        pytest.param(["pod/a"], {"now": True, "force": True}, id="two graces"),
        pytest.param(["pod/a"], {"timeout": "soon"}, id="no duration"),
    ],
)
def test_what_makes_no_sense_deletes_nothing(stage, words, options):
    assert run(stage, *words, **options) == 2
    assert not sent(stage)
