"""What the documentation promises is there, and what is there is documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from trainmaster import frameworks
from trainmaster.cli.app import app
from trainmaster.kube.metrics import KubeMetrics
from trainmaster.operator.metrics import JobMetrics

ROOT = Path(__file__).parents[3]
OPERATOR = (ROOT / "docs" / "operator.md").read_text()
README = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()


def flags(verb):
    command = get_command(app).commands[verb]  # type: ignore[attr-defined]  # the group's own attribute
    return sorted(name for parameter in command.params for name in parameter.opts if name.startswith("--"))


@pytest.mark.parametrize("flag", [flag for flag in flags("operator") if flag != "--help"])
def test_every_flag_of_the_operator_is_documented(flag):
    assert f"`{flag}" in OPERATOR


def metric_names():
    metrics = KubeMetrics()
    JobMetrics(metrics.registry)
    metrics.queue("q")
    metrics.controller("c")
    metrics.request("GET", "pods", 200, 0.1)
    metrics.event("created")
    families = {line.split()[2] for line in metrics.render()[0].decode().splitlines() if line.startswith("# TYPE")}
    return sorted(name for name in families if not name.startswith("process_"))


@pytest.mark.parametrize("name", metric_names())
def test_every_metric_is_documented(name):
    assert f"`{name}`" in OPERATOR


@pytest.mark.parametrize("kind", sorted({r.kind for f in frameworks.BUILT_IN for r in f.served}))
def test_every_kind_is_in_both_readmes(kind):
    assert kind in README
    assert kind in CHINESE


@pytest.mark.parametrize("text", [README, CHINESE], ids=["English", "Chinese"])
def test_every_make_target_and_file_in_a_readme_exists(text):
    makefile = (ROOT / "Makefile").read_text()

    for target in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"\b(examples/\S+\.yaml)", text):
        assert (ROOT / path).exists(), path


def commands_in(text):
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if "trainmaster " in line]


@pytest.mark.parametrize("line", sorted({*commands_in(README), *commands_in(CHINESE)}))
def test_every_trainmaster_command_of_the_readmes_works(line):
    words = line.partition("|")[0].split()
    arguments = words[next(i for i, word in enumerate(words) if word.endswith("trainmaster")) + 1 :]

    result = subprocess.run(
        [sys.executable, "-m", "trainmaster", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/[0-9]*")), ids=lambda path: path.name)
def test_every_example_is_complete_and_of_a_known_kind(example):
    bodies = list(yaml.safe_load_all((example / "job.yaml").read_text()))

    assert any(frameworks.serving(body["apiVersion"], body["kind"]) for body in bodies)
    for name in ("train.py", "trainmaster.yaml", "README.md"):
        assert (example / name).exists(), name


def test_help_is_quick():
    """A budget of CPU, not of wall time, and twice what it takes: importing the wrong thing costs far more."""
    program = """
import resource, sys, trainmaster.cli
sys.argv = ["trainmaster", "--help"]
try:
    trainmaster.cli.main()
except SystemExit:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = {"aiohttp", "rich.console", "jsonschema_rs", "prometheus_client"} & set(sys.modules)
print(used.ru_utime + used.ru_stime, *heavy, file=sys.stderr)
"""

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    seconds, *heavy = result.stderr.split()
    assert not heavy
    assert float(seconds) < 0.3
