"""Which cluster a verb speaks to, and how errors are told."""

import json
import os

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli import connection, delete
from trainmaster.cli.app import app
from trainmaster.cli.connection import Choice, Failure, NoCluster, config_of, in_words, tell
from trainmaster.cli.home import start_of
from trainmaster.kube import errors


def a_kubeconfig(path, *contexts):
    names = contexts or ("only",)
    cluster = [{"name": name, "cluster": {"server": f"http://{name}:1"}} for name in names]
    context = [{"name": name, "context": {"cluster": name, "namespace": f"ns-{name}"}} for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"clusters": cluster, "contexts": context, "current-context": names[0]}))
    return str(path)


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A machine on which nothing is configured."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def a_running_cluster(home):
    place = home / "data" / "trainmaster" / "cluster"
    a_kubeconfig(place / "kubeconfig", "embedded")
    (place / "cluster.json").write_text(json.dumps({"pid": os.getpid(), "started": start_of(os.getpid())}))
    return place


def test_what_is_named_wins(home, monkeypatch):
    a_running_cluster(home)
    monkeypatch.setenv("KUBECONFIG", a_kubeconfig(home / "env", "env"))

    named = config_of(Choice(kubeconfig=a_kubeconfig(home / "named", "named", "other"), context="other"))

    assert (named.server, named.namespace) == ("http://other:1", "ns-other")


def test_the_environment_wins_over_a_cluster_of_this_machine(home, monkeypatch):
    a_running_cluster(home)
    monkeypatch.setenv("KUBECONFIG", a_kubeconfig(home / "env", "env"))

    assert config_of(Choice()).server == "http://env:1"


def test_a_cluster_of_this_machine_wins_over_the_home_directory(home):
    a_running_cluster(home)
    a_kubeconfig(home / ".kube" / "config", "far")

    assert config_of(Choice()).server == "http://embedded:1"
    assert config_of(Choice(context="far")).server == "http://far:1"


def test_a_cluster_that_is_down_is_passed_over(home):
    place = a_running_cluster(home)
    (place / "cluster.json").write_text(json.dumps({"pid": os.getpid(), "started": "long ago"}))
    a_kubeconfig(home / ".kube" / "config", "far")

    assert config_of(Choice()).server == "http://far:1"


def test_nowhere_is_told_with_what_to_do(home):
    with pytest.raises(Failure, match="trainmaster up -d"):
        config_of(Choice())


@pytest.mark.parametrize("verb", ["get", "describe", "wait --for=delete", "suspend", "resume", "delete"])
def test_every_verb_ends_with_1_and_a_sentence_without_a_cluster(home, verb):
    result = CliRunner().invoke(app, [*verb.split(), "pytorchjob/ddp"])

    assert result.exit_code == 1
    assert "there is no cluster to speak to" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(errors.NotFound(404, "NotFound", 'pods "a" not found'), 'pods "a" not found (404', id="not found"),
        pytest.param(errors.Unauthorized(401, "Unauthorized"), "does not accept who you are", id="who"),
        pytest.param(errors.Forbidden(403, "Forbidden", "no"), "ask the cluster's owner", id="may not"),
        pytest.param(errors.Conflict(409, "Conflict", "changed"), "try again", id="conflict"),
        pytest.param(errors.ServerError(500, "InternalError", "oh"), "oh (500 InternalError)", id="server"),
        pytest.param(errors.Unreachable("GET /: refused"), "is the cluster up?", id="unreachable"),
        pytest.param(errors.ConfigError("bad file"), "bad file", id="kubeconfig"),
    ],
)
def test_errors_are_told_in_words(error, said):
    assert said in in_words(error)


def test_an_error_out_of_a_task_group_is_told_as_itself(capsys):
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [Failure("it broke")])])

    assert tell("get", group) == 1
    assert capsys.readouterr().err == "trainmaster get: it broke\n"


def test_a_mistake_of_ours_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        tell("get", ExceptionGroup("tasks", [ZeroDivisionError()]))


def test_switches_are_taken_as_go_programs_take_them(home, monkeypatch):
    chosen = []

    def run(choice, options):
        chosen.append(options)
        return 0

    monkeypatch.setattr(delete, "run", run)
    for flags in (["--wait=false"], ["--no-wait"], ["--wait=true", "--now=false"], ["--now=true"], []):
        assert CliRunner().invoke(app, ["delete", "pod/a", *flags]).exit_code == 0

    assert [(options.wait, options.now) for options in chosen] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
        (True, False),
    ]


def test_a_flag_that_does_not_exist_ends_with_2():
    assert CliRunner().invoke(app, ["get", "--nope"]).exit_code == 2


def test_a_session_knows_where_it_is(stage):
    seen = []

    async def work(session: connection.Session):
        pods, nodes = await session.catalog.find("pods"), await session.catalog.find("nodes")
        assert pods is not None
        assert nodes is not None
        seen.extend([session.place(pods.resource), session.place(nodes.resource)])
        return 0

    stage.run("get", work, namespace="team")

    assert seen == [" in namespace team", ""]


def test_a_context_without_any_kubeconfig_is_told_by_its_name(tmp_path):
    with pytest.raises(NoCluster) as caught:
        config_of(Choice(context="prod"), {"HOME": str(tmp_path)})

    assert str(caught.value).startswith("--context prod: there is no kubeconfig that could have it")
    assert "--kubeconfig FILE" in str(caught.value)
