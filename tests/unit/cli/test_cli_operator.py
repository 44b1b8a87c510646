"""`trainmaster operator`: flags of today and of the operators before."""

import logging
import sys

import pytest
from typer.testing import CliRunner

from trainmaster import cli
from trainmaster.cli.app import app
from trainmaster.operator import main
from trainmaster.operator.options import Options, go_flags


@pytest.fixture(autouse=True)
def _own_logs(monkeypatch):
    """`operator` sends logs to the stream of the test's runner, which does not outlive the test."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def started(monkeypatch):
    """The options that the operator would have been started with."""
    options: list[Options] = []

    def run(chosen):
        options.append(chosen)
        return 0

    monkeypatch.setattr(main, "run", run)
    return options


def operator(*arguments):
    return CliRunner().invoke(app, ["operator", *arguments])


def test_schemes_are_repeatable_and_of_any_case(started):
    result = operator("--enable-scheme", "TFJob", "--enable-scheme=pytorchjob")

    assert result.exit_code == 0
    assert started[0].schemes == ("TFJob", "pytorchjob")


def test_an_unknown_scheme_ends_with_2(started):
    result = operator("--enable-scheme", "dummyjob")

    assert result.exit_code == 2
    assert "unknown scheme dummyjob" in result.stderr
    assert not started


def test_an_unknown_log_level_ends_with_2_and_the_levels_that_there_are(started):
    result = operator("--log-level", "loud")

    assert result.exit_code == 2
    assert result.stderr == "trainmaster operator: log level 'loud' is not one of debug, info, warning, error\n"
    assert not started


def test_a_log_level_as_go_programs_write_it_is_taken(started):
    result = operator("--log-level", "WARN")

    assert result.exit_code == 0
    assert logging.getLogger().level == logging.WARNING


OLD_FLAGS = ["--qps=5", "--zap-devel", "--webhook-server-port=9443", "--resyc-period=12h", "--json-log-format"]
FLAGS_OF_MPI_OPERATOR = [
    "--master=https://here",
    "--monitoring-port=8080",
    "--kube-api-qps=5",
    "--kube-api-burst=10",
    "--controller-queue-rate-limit=10",
    "--controller-queue-burst=100",
    "-alsologtostderr",
    "-v=2",
]


@pytest.mark.parametrize("flag", [*OLD_FLAGS, *FLAGS_OF_MPI_OPERATOR])
def test_a_flag_of_an_older_operator_is_named_in_a_warning_and_ignored(started, flag):
    result = operator(flag)

    assert result.exit_code == 0
    assert started
    assert flag.partition("=")[0] in result.stderr


def test_flags_of_mpi_operator_that_mean_something_here_are_understood(started):
    result = operator(
        "--kubeConfig=/there", "--lock-namespace=team", "--threadiness=3", "--gang-scheduling=x", "--cluster-domain=d"
    )

    assert result.exit_code == 0
    assert (started[0].kubeconfig, started[0].leader_election_namespace) == ("/there", "team")
    assert (started[0].controller_threads, started[0].gang_scheduler_name) == (3, "x")
    assert started[0].cluster_domain == "d"


def test_the_namespace_comes_from_the_environment_too(started, monkeypatch):
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")

    operator()

    assert started[0].namespace == "team"


def test_who_names_an_init_image_gets_that_image(started):
    operator("--pytorch-init-container-image", "busybox:1", "--pytorch-init-container-max-tries", "7")

    chosen = started[0].settings.init_container
    assert (chosen.mode, chosen.image, chosen.max_tries) == ("always", "busybox:1", 7)


def test_a_template_file_is_read(started, tmp_path):
    template = tmp_path / "init.yaml"
    template.write_text("- name: mine\n")

    operator("--pytorch-init-container-template-file", str(template))

    assert started[0].settings.init_container.template == "- name: mine\n"


@pytest.mark.parametrize("text", ["a: [", "just text", "- image: x\n"], ids=["broken", "no list", "no name"])
def test_a_template_file_that_is_none_ends_with_2(started, tmp_path, text):
    template = tmp_path / "init.yaml"
    template.write_text(text)

    result = operator("--pytorch-init-container-template-file", str(template))

    assert result.exit_code == 2
    assert str(template) in result.stderr
    assert not started


@pytest.mark.parametrize(
    ("flags", "scheduler"),
    [
        pytest.param([], "", id="off by default"),
        pytest.param(["--gang-scheduler-name=none"], "", id="none is off"),
        pytest.param(["--gang-scheduler-name=volcano"], "volcano", id="by name"),
        pytest.param(["--enable-gang-scheduling"], "volcano", id="the old switch means volcano"),
        pytest.param(["--no-enable-gang-scheduling", "--gang-scheduler-name=volcano"], "", id="switched off"),
    ],
)
def test_gang_scheduling_is_chosen(started, flags, scheduler):
    operator(*flags)

    assert started[0].settings.gang_scheduler == scheduler


@pytest.mark.parametrize("spelling", ["--scheduling=volcano", "--scheduling", "-scheduling=volcano"])
def test_paddle_operators_name_for_gang_scheduling_is_understood(started, spelling):
    operator(*go_flags([spelling], []), *(["volcano"] if "=" not in spelling else []))

    assert started[0].settings.gang_scheduler == "volcano"


@pytest.mark.parametrize(
    ("flags", "image"),
    [
        pytest.param([], "docker.io/library/alpine:3.10", id="unsaid"),
        pytest.param(["--initImage=here/busybox:1"], "here/busybox:1", id="another"),
        pytest.param(["--initImage="], "", id="none"),
        pytest.param(["-initImage="], "", id="none, with one dash"),
    ],
)
def test_the_image_in_which_paddle_jobs_wait_is_chosen(started, flags, image):
    operator(*go_flags(flags, []))

    assert started[0].settings.coordinator_image == image


@pytest.mark.parametrize(
    ("flags", "strict"),
    [
        pytest.param([], False, id="unsaid"),
        pytest.param(["--strict-topology"], True, id="strict"),
        pytest.param(["-strict-topology=true"], True, id="strict, as Go programs spell it"),
        pytest.param(["--strict-topology=false"], False, id="not"),
    ],
)
def test_how_strict_it_is_about_topologies_is_chosen(started, flags, strict):
    result = operator(*go_flags(flags, cli.GO_BOOLEANS))

    assert (result.exit_code, result.stderr) == (0, "")
    assert started[0].settings.strict_topology is strict


def test_the_ports_and_the_etcd_of_paddle_jobs_are_chosen(started):
    result = operator("--port-range=40000,50000", "--etcd-server=one:2379,two:2379")

    assert result.exit_code == 0
    assert started[0].port_range == "40000,50000"
    assert started[0].settings.etcd_servers == ("one:2379", "two:2379")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(["-namespace=x"], ["--namespace=x"], id="one dash"),
        pytest.param(["--leader-elect=true"], ["--leader-elect"], id="true"),
        pytest.param(["--leader-elect=false"], ["--no-leader-elect"], id="false"),
        pytest.param(["--leader-elect=T", "--leader-elect=F"], ["--leader-elect", "--no-leader-elect"], id="letters"),
        pytest.param(["--leader-elect=1", "--leader-elect=0"], ["--leader-elect", "--no-leader-elect"], id="digits"),
        pytest.param(["-leader-elect"], ["--leader-elect"], id="one dash, no value"),
        pytest.param(["-h"], ["-h"], id="short flags stay"),
        pytest.param(["--namespace", "x=y"], ["--namespace", "x=y"], id="values stay"),
    ],
)
def test_flags_in_go_spelling_are_understood(given, wanted):
    assert list(go_flags(given, ["leader-elect"])) == wanted


@pytest.mark.parametrize("value", ["yes", "maybe", "on", ""])
def test_a_switch_that_is_neither_on_nor_off_ends_with_2(started, monkeypatch, capsys, value):
    monkeypatch.setattr(sys, "argv", ["trainmaster", "operator", f"--leader-elect={value}"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 2
    assert f"--leader-elect={value}: {value!r} is neither true nor false" in capsys.readouterr().err
    assert not started


def test_the_command_line_takes_go_spelling(started, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainmaster", "operator", "-namespace=team", "--leader-elect=true"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 0
    assert (started[0].namespace, started[0].leader_elect) == ("team", True)


def test_without_a_cluster_the_error_says_where_was_looked(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    result = operator()

    assert result.exit_code == 1
    assert ".kube/config" in result.stderr
    assert "Traceback" not in result.stderr
