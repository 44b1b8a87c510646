"""What the documentation promises is there, and what is there is documented."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.unit.docs.pages import DOCS, READMES, ROOT, title
from tools import reference_metrics

from trainmaster import frameworks

OPERATOR = (DOCS / "operator.md").read_text()
EVENTS = OPERATOR.partition("## Events")[2].partition("\n## ")[0]
METRICS = (DOCS / "reference" / "metrics.md").read_text()
SRC = ROOT / "src" / "trainmaster"


@pytest.mark.parametrize("name", [row[0] for row in reference_metrics.rows()])
def test_every_metric_is_documented(name):
    assert name in METRICS


@pytest.mark.parametrize("path", READMES, ids=title)
@pytest.mark.parametrize("framework", frameworks.BUILT_IN, ids=lambda framework: framework.name)
def test_every_kind_and_api_version_is_in_both_readmes(framework, path):
    text = path.read_text()

    assert f"[{framework.kind}](docs/kinds/" in text
    for resource in framework.served:
        assert resource.kind in text
        assert resource.group in text
    for version in set(framework.older_versions) - set(framework.deprecated):
        assert f"`{version}`" in text or f"/{version}`" in text


def reasons():
    """Reasons of events as the code writes them: first words of Advice, second words of Event."""
    found = set()
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"Advice": 0, "Event": 1}.get(node.func.id)
                value = node.args[place] if place is not None and len(node.args) > place else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.add(value.value)
    return sorted(found)


@pytest.mark.parametrize("reason", reasons())
def test_every_reason_of_an_event_is_documented(reason):
    assert f"`{reason}`" in EVENTS


def test_the_readmes_have_the_same_tables_in_both_languages():
    english, chinese = ([*tables(path.read_text())] for path in READMES)

    assert english == chinese


def tables(text):
    """How many rows and columns each has."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        yield [row.count("|") for row in table.splitlines()]


@pytest.mark.parametrize("path", READMES, ids=title)
def test_every_make_target_of_a_readme_exists(path):
    makefile = (ROOT / "Makefile").read_text()

    for target in re.findall(r"^make ([a-z-]+)", path.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/[0-9]*")), ids=lambda path: path.name)
def test_every_example_is_complete_and_of_a_known_kind(example):
    bodies = list(yaml.safe_load_all((example / "job.yaml").read_text()))

    assert any(frameworks.serving(body["apiVersion"], body["kind"]) for body in bodies)
    for name in ("train.py", "trainmaster.yaml", "README.md"):
        assert (example / name).exists(), name


@pytest.mark.parametrize("path", sorted((DOCS / "guide").glob("ml-engineer*")), ids=title)
def test_the_ml_engineers_guide_names_every_example(path):
    text = path.read_text()

    missing = [named for one in sorted(ROOT.glob("examples/[0-9]*")) if (named := _runnable(one)) not in text]
    assert missing == []


def _runnable(example):
    """The directory where it has one job; otherwise the file, since a directory would start them all."""
    several = len(list(example.glob("job*.yaml"))) > 1
    return f"`examples/{example.name}/job.yaml`" if several else f"`examples/{example.name}`"


@pytest.mark.parametrize("decision", sorted((DOCS / "adr").glob("*.md")), ids=lambda path: path.stem)
def test_every_decision_is_listed_with_the_architecture(decision):
    assert f"(adr/{decision.name})" in (DOCS / "architecture.md").read_text()


def test_every_example_is_listed_with_the_environment_that_it_needs():
    page = (ROOT / "examples" / "README.md").read_text()

    for example in sorted(ROOT.glob("examples/[0-9]*")):
        assert f"| [{example.name}]({example.name}) |" in page


def test_the_guide_shows_the_third_party_framework_as_it_is():
    guide = (DOCS / "guide" / "framework-author.md").read_text()
    source = (ROOT / "tests" / "integration" / "thirdparty" / "ringjob.py").read_text()

    shown = source[source.index("from trainmaster") :]

    assert f"```python\n{shown}```" in guide


def test_the_picture_is_as_its_tool_draws_it():
    from tools import picture

    assert Path(picture.TARGET).read_text() == picture.picture()


def test_help_is_quick():
    """What takes time is importing. A budget of half as many modules again: the wrong one brings hundreds."""
    program = """
import sys, trainmaster.cli
sys.argv = ["trainmaster", "--help"]
try:
    trainmaster.cli.main()
except SystemExit:
    pass
heavy = {"aiohttp", "rich.console", "jsonschema_rs", "prometheus_client"} & set(sys.modules)
print(len(sys.modules), *heavy, file=sys.stderr)
"""

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    modules, *heavy = result.stderr.split()
    assert not heavy
    assert int(modules) < 240
