"""`trainmaster explain`."""

import pytest
from typer.testing import CliRunner

from trainmaster.cli.app import app
from trainmaster.cli.explain import ExplainOptions, explain, installed, published

POD = {
    "type": "object",
    "description": "A pod.",
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
    "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/v1.PodSpec"}], "description": "What it runs."}},
}
POD_SPEC = {
    "type": "object",
    "required": ["containers"],
    "properties": {
        "containers": {"type": "array", "items": {"$ref": "#/components/schemas/v1.Container"}},
        "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
CONTAINER = {"type": "object", "properties": {"name": {"type": "string", "description": "Of the container."}}}
CORE = {"components": {"schemas": {"v1.Pod": POD, "v1.PodSpec": POD_SPEC, "v1.Container": CONTAINER}}}


def run(stage, path, **options):
    chosen = ExplainOptions(path, **options)
    stage.openapi.setdefault("v3/api/v1", CORE)

    async def work(session):
        return explain(await published(session.client, chosen), chosen)

    return stage.run("explain", work)


def test_a_kind_is_explained_from_the_servers_schema(stage, capsys):
    code = run(stage, "pods")

    out = capsys.readouterr().out
    assert code == 0
    assert "KIND:       Pod\nVERSION:    v1\n" in out
    assert "A pod." in out
    assert "  spec\t<PodSpec>\n    What it runs." in out


def test_a_path_leads_through_references_lists_and_maps(stage, capsys):
    run(stage, "pod.spec.containers.name")

    out = capsys.readouterr().out
    assert "FIELD: name <string>" in out
    assert "Of the container." in out


def test_types_and_duties_are_told(stage, capsys):
    run(stage, "po.spec")

    out = capsys.readouterr().out
    assert "containers\t<[]Container> -required-" in out
    assert "nodeSelector\t<map[string]string>" in out


def test_recursive_shows_all_below(stage, capsys):
    run(stage, "pod", recursive=True)

    assert "      name\t<string>" in capsys.readouterr().out


def test_a_misspelt_field_is_guessed(stage, capsys):
    assert run(stage, "pod.spec.container") == 2
    assert "pod.spec has no field container; did you mean containers?" in capsys.readouterr().err


def test_an_unknown_field_is_told_with_the_known_ones(stage, capsys):
    assert run(stage, "pod.spec.xyzzy") == 2
    assert "it has containers, nodeSelector" in capsys.readouterr().err


def test_an_unknown_kind_is_told(stage, capsys):
    assert run(stage, "nope.spec") == 2
    assert "serves no such kind" in capsys.readouterr().err


def test_a_job_is_explained_where_the_server_publishes_nothing(stage, capsys):
    code = run(stage, "pytorchjob.spec.runPolicy")

    assert code == 0
    assert "backoffLimit\t<integer>" in capsys.readouterr().out


def test_an_old_server_is_asked_for_its_swagger(stage, capsys):
    stage.openapi |= {"v3/api/v1": {}, "v2": {"definitions": CORE["components"]["schemas"]}}

    assert run(stage, "pod.spec.nodeSelector") == 0
    assert "FIELD: nodeSelector <map[string]string>" in capsys.readouterr().out


def test_a_kind_without_a_schema_is_told(stage, capsys):
    assert run(stage, "deployment") == 1
    assert "publishes no schema of apps/v1 Deployment" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", ["pytorchjob.spec.pytorchReplicaSpecs.replicas", "pytorchjob.spec.pytorchReplicaSpecs.Worker.replicas"]
)
def test_roles_may_be_named_or_left_out(path, capsys):
    subject = installed(ExplainOptions(path))
    assert subject is not None

    explain(subject, ExplainOptions(path))

    assert "FIELD: replicas <integer>" in capsys.readouterr().out


def test_the_version_can_be_chosen(stage):
    assert run(stage, "pytorchjob", api_version="kubeflow.org/v1") == 0
    assert run(stage, "pytorchjob", api_version="kubeflow.org/v9") == 2


def test_jobs_are_explained_without_a_cluster(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    known = CliRunner().invoke(app, ["explain", "tfjob.spec"])
    unknown = CliRunner().invoke(app, ["explain", "pod.spec"])

    assert known.exit_code == 0
    assert "tfReplicaSpecs" in known.stdout
    assert known.stderr == "what follows is what trainmaster installs\n"
    assert unknown.exit_code == 1
    assert "trainmaster up -d" in unknown.stderr
