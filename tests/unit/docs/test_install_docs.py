"""What the guides say about installing and taking over is so."""

import re
from pathlib import Path

import pytest
from tools.generate_kustomize import overlays
from typer.main import get_command

from trainmaster import frameworks
from trainmaster.cli.app import app
from trainmaster.operator.install import USER, Installation, manifests

ROOT = Path(__file__).parents[3]
INSTALL = (ROOT / "docs" / "install.md").read_text()
UPGRADE = (ROOT / "docs" / "upgrade.md").read_text()
GUIDES = {"install": INSTALL, "upgrade": UPGRADE}
JOBS = {resource.plural for framework in frameworks.BUILT_IN for resource in framework.served}


def granted():
    installation = Installation(frameworks.BUILT_IN, gang_scheduler_name="volcano")
    rules = [rule for item in manifests(installation) for rule in item.get("rules", ())]
    return {(resource, tuple(rule["verbs"])) for rule in rules for resource in rule["resources"]}


@pytest.mark.parametrize(("resource", "verbs"), sorted(granted()), ids=str)
def test_every_right_stands_in_the_table_of_rights(resource, verbs):
    rows = [line for line in INSTALL.splitlines() if line.startswith("| ")]
    job, _, subresource = resource.partition("/")
    of_jobs = "the jobs" if not subresource else f"`…/{subresource}`"

    named = [row for row in rows if f"`{resource}" in row or (job in JOBS and of_jobs in row)]

    assert any(all(verb in row for verb in verbs) for row in named), (resource, verbs)


@pytest.mark.parametrize("name", sorted(overlays(frameworks.BUILT_IN)))
def test_every_overlay_is_in_the_guide(name):
    assert f"| `{name}` |" in INSTALL


def test_the_guide_knows_who_the_operator_runs_as():
    assert f"| user | {USER}, group {USER}" in INSTALL


@pytest.mark.parametrize("text", GUIDES.values(), ids=GUIDES)
def test_every_file_that_a_guide_names_exists(text):
    paths = re.findall(r"\b((?:deploy|tools)/[\w/.-]*\w)", text)

    assert paths
    for path in paths + [f"docs/{link}" for link in re.findall(r"\]\(([^)#]+)\)", text)]:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("text", GUIDES.values(), ids=GUIDES)
def test_every_flag_that_a_guide_names_is_a_flag_of_some_program(text):
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]  # the group's own attribute
    ours = {name for command in commands for parameter in command.params for name in parameter.opts}
    others = {"--create-namespace", "--server-side", "--force-conflicts", "--replicas", "--take-ownership", "--set"}
    others |= {"--build-arg", "--output", "--timestamp", "--help"}

    named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", text))

    assert named - others <= ours
