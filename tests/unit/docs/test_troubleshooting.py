"""The messages that troubleshooting quotes are those that are printed."""

import socket
from pathlib import Path

import pytest
import yaml
from tests.unit.docs.pages import DOCS, ROOT, blocks
from tests.unit.docs.sources import share_of
from tools import demo

from trainmaster.api.status import JobStatus
from trainmaster.cli import hints
from trainmaster.cli.advice import Case, advise
from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.cli.hints import Place
from trainmaster.cli.ranks import RankView
from trainmaster.cli.run import RunOptions, run
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.images_config import ImageError
from trainmaster.engine import backoff, deadline

PAGE = (DOCS / "troubleshooting.md").read_text()
QUOTED = {line.strip() for block in blocks(PAGE, "") for line in block.splitlines()}
RING = (ROOT / "examples" / "01-ring" / "job.yaml").read_text()
LARGE = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: tf, namespace: default}
spec: {tfReplicaSpecs: {Worker: {replicas: 10000, template: {spec: {containers: [{name: tensorflow, image: x}]}}}}}
"""
HERE = Place("registry.example/ddp:1")


def changed(old, new):
    assert old in RING
    return RING.replace(old, new, 1)


def printed(capsys):
    return [line.strip() for line in capsys.readouterr().err.splitlines() if line.strip()]


REFUSED = {
    "kind": changed("kind: PyTorchJob", "kind: PytorchJob"),
    "field": changed("pytorchReplicaSpecs:", "pytorchReplicaSpec:"),
    "role": changed("Worker:", "Wroker:"),
    "type": changed("replicas: 3", "replicas: three"),
    "number": changed("Master:\n", "Master:\n      replicas: 2\n"),
    "container": changed("- name: pytorch", "- name: torch"),
    "size": LARGE,
    "no object": "hello: 1\n",
    "no YAML": "a: [1\nb: 2",
    "retired": "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: old}\nspec: {template: {}}\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_said_of_a_bad_manifest_is_quoted(text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(text)

    code = run(RunOptions(("job.yaml",)))

    assert code == 2
    assert {*printed(capsys)} <= QUOTED


def test_what_is_said_of_missing_files_is_quoted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()

    codes = [run(RunOptions((name,))) for name in ("nojob.yaml", "empty")]

    assert codes == [2, 2]
    assert {*printed(capsys)} <= QUOTED


@pytest.mark.sandbox
def test_what_is_warned_of_in_a_good_manifest_is_quoted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(changed("spec:\n", "spec:\n  cleanPolicy: All\n"))

    code = run(RunOptions(("job.yaml",), timeout=0))

    assert code == 124
    assert printed(capsys)[0] in QUOTED


MAPPINGS = {
    "no such field": EmbeddedOptions(images=("registry.example/*=/no/such",)),
    "no value": EmbeddedOptions(images=("registry.example",)),
}


@pytest.mark.parametrize("options", MAPPINGS.values(), ids=MAPPINGS)
def test_what_is_said_of_a_bad_mapping_is_quoted(options, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(RING)

    code = run(RunOptions((str(tmp_path / "job.yaml"),), embedded=options))

    assert code == 2
    assert {*printed(capsys)} <= QUOTED


def test_what_is_said_of_a_misspelt_configuration_is_quoted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(RING)
    (tmp_path / "trainmaster.yaml").write_text("imagess: []")

    code = run(RunOptions(("job.yaml",)))

    assert code == 2
    assert {*printed(capsys)} <= QUOTED


def test_what_is_said_of_a_misspelt_entry_is_quoted(tmp_path):
    data = yaml.safe_load("images: [{mach: x}]")

    with pytest.raises(ImageError) as caught:
        Images.from_config(data, tmp_path / "trainmaster.yaml")

    [first, _] = str(caught.value).replace(str(tmp_path), "/home/me").splitlines()
    assert first in QUOTED


def test_what_is_said_of_an_image_that_nothing_stands_for_is_quoted():
    with pytest.raises(ImageError) as caught:
        Images().resolve("registry.example/mnist:1").argv((), ())

    assert {line.strip() for line in f"noimage-master-0 cannot start: {caught.value}".splitlines()} <= QUOTED


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "ddp"),
        ("python: can't open file '/app/train.py': [Errno 2] No such file or directory", "ddp"),
        ("OSError: [Errno 98] Address already in use", "ddp"),
    ],
    ids=["module", "file", "port"],
)
def test_what_is_hinted_at_when_a_rank_says_so_is_quoted(line, name):
    assert f"▲ PyTorchJob {name}: Hint  {hinted(hints.of_line(line, HERE))}" in QUOTED


def test_what_is_hinted_at_of_a_file_that_a_mapped_directory_lacks_is_quoted():
    line = "python: can't open file '/app/train.py': [Errno 2] No such file or directory"

    hint = hints.of_line(line, Place(files={"/app": Path("/home/me")}))

    assert f"▲ PyTorchJob ddp: Hint  {hinted(hint)}" in QUOTED


def hinted(hint):
    assert hint is not None
    return hint.text


def test_what_is_hinted_at_when_the_cluster_warns_is_quoted():
    program = 'Error: cannot start the container\'s command: exec: "torchrun": executable file not found in $PATH'

    words = program.replace("torchrun", "python train.py")
    warned = {
        "ddp": [("Failed", program), ("Failed", words), ("BackOff", "Back-off restarting failed container")],
        "cpus": [("FailedScheduling", "needs 64 cpu, 2 of 2 free")],
    }

    for job, warnings in warned.items():
        for reason, message in warnings:
            assert f"▲ PyTorchJob {job}: Hint  {hinted(hints.of_warning(reason, message, HERE))}" in QUOTED


@pytest.mark.sandbox
def test_what_is_said_of_a_taken_port_is_quoted(tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(RING)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = run(RunOptions((str(tmp_path / "job.yaml"),), embedded=EmbeddedOptions(port=port)))

    assert code == 2
    assert {line.replace(str(port), "18765") for line in printed(capsys)} <= QUOTED


def test_what_the_demo_and_the_makefile_say_is_quoted():
    assert demo.INSTEAD.format(name="XGBoost") in QUOTED
    for words in (
        "Python 3.11 or later is needed; set PYTHON=…",
        "python3 cannot make virtual environments; on Debian",
        "the packages of pyproject.toml could not be installed: check the network",
    ):
        assert words in (ROOT / "Makefile").read_text().replace("$(PYTHON)", "python3")
        assert any(line.startswith(words) for line in QUOTED)


def test_reasons_of_jobs_that_failed_are_quoted():
    assert backoff.MESSAGE.format(name="ddp") in QUOTED
    assert deadline.MESSAGE.format(name="ddp") in QUOTED


def test_what_describe_says_of_memory_and_of_no_operator_is_quoted():
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    pod = {"metadata": {"name": "a-master-0"}, "status": {"containerStatuses": [{"name": "c", "state": ended}]}}

    hungry = advise(Case("pytorchjob/a", "PyTorchJob", JobStatus(), [RankView("master-0", pod)]))
    unseen = advise(Case("pytorchjob/a", "PyTorchJob", JobStatus(), []))

    assert hungry in QUOTED
    assert unseen in QUOTED


@pytest.mark.parametrize("line", sorted(QUOTED))
def test_what_is_quoted_is_made_of_words_that_the_code_has(line):
    """Names, numbers and paths are the reader's; the rest must still be what is printed."""
    assert share_of(line) >= 0.4
