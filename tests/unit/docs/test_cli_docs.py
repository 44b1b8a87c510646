"""The page about the command line has every verb and every flag, and each explains itself."""

import re

import pytest
from tests.unit.docs.pages import COMMANDS, DOCS, declared
from tools.reference_text import sections

PAGE = (DOCS / "reference" / "cli.md").read_text()
VERBS = sections(PAGE)
OPERATOR = (DOCS / "operator.md").read_text()


def told(verb):
    """Flags in the first column of the section's table."""
    rows = re.findall(r"^\| (`-.*?) \|", VERBS[verb], re.MULTILINE)
    return {flag for row in rows for flag in re.findall(r"`(--?[a-z-]+)", row, re.IGNORECASE)}


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_flags_and_their_documentation_are_the_same(verb):
    assert told(verb) == declared(verb) - {"-h", "--help"}


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_verb_is_in_the_table_at_the_top(verb):
    assert f"[`{verb}`](#{verb})" in VERBS[""]


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_verb_teaches_itself(verb):
    command = COMMANDS[verb]

    assert command.help
    for parameter in command.params:
        assert parameter.help or "--help" in parameter.opts, parameter.name


@pytest.mark.parametrize("flag", sorted(name for name in declared("operator") if name.startswith("--")))
def test_every_flag_of_the_operator_is_told_with_the_operator(flag):
    is_negative = flag.startswith("--no-") and f"--{flag.removeprefix('--no-')}" in declared("operator")

    assert is_negative or flag == "--help" or f"`{flag}" in OPERATOR


@pytest.mark.parametrize("line", re.findall(r"^    trainmaster (.+?)(?: \||$)", PAGE, re.MULTILINE))
def test_examples_use_verbs_and_flags_that_exist(line):
    verb, *words = line.split()

    given = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}

    assert given <= declared(verb)
