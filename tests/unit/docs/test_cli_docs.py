"""docs/cli.md has every verb with every flag, and none that does not exist."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from trainmaster.cli.app import app

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]  # the group's own attribute
VERBS = sorted(set(COMMANDS) - {"operator"})  # has a page of its own


def section(verb):
    found = re.search(rf"^## {verb}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def documented(verb):
    """Flags in the first column of the section's table."""
    rows = re.findall(r"^\| (`-.*?) \|", section(verb), re.MULTILINE)
    return {flag for row in rows for flag in re.findall(r"`(--?[a-z-]+)`", row, re.IGNORECASE)}


def declared(verb):
    names = {name for parameter in COMMANDS[verb].params for name in parameter.opts if name.startswith("-")}
    return names - {"-h", "--help"}


@pytest.mark.parametrize("verb", VERBS)
def test_flags_and_their_documentation_are_the_same(verb):
    assert documented(verb) == declared(verb)


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_verb_is_in_the_table_at_the_top(verb):
    assert f"[`{verb}`]" in TEXT.partition("## Which cluster")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches_itself(verb):
    command = COMMANDS[verb]

    assert command.help
    for parameter in command.params:
        assert parameter.help or "--help" in parameter.opts, parameter.name


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#]+)\)", TEXT))
def test_links_lead_somewhere(path):
    assert (Path(__file__).parents[3] / "docs" / path).exists()


@pytest.mark.parametrize("line", re.findall(r"^    trainmaster (.+?)(?: \||$)", TEXT, re.MULTILINE))
def test_examples_use_verbs_and_flags_that_exist(line):
    verb, *words = line.split()

    given = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}

    assert given <= declared(verb)
