"""Commands in READMEs and guides: all of them parse, and those that need no cluster are run."""

import re
import subprocess
import sys

import pytest
import yaml
from tests.unit.docs.pages import COMMANDS, DOCS, GUIDES, PAGES, READMES, ROOT, blocks, calls, declared, lines, title
from typer.main import get_command

from trainmaster import frameworks
from trainmaster.cli.app import app

TAUGHT = (*READMES, *GUIDES, *sorted(DOCS.glob("*.md")))
"""Pages whose commands are there to be typed."""

ALONE = ("plan", "explain", "manifests")
"""Verbs that need nothing but this machine, and no time."""

IMAGINED = ("ring.yaml", "job.yaml")
"""Files that a reader is to have."""

EVERY_CALL = sorted({tuple(words) for page in PAGES for words in calls(page.read_text())})
QUICK = [words for words in EVERY_CALL if words[0] in ALONE and not {*words} & {*IMAGINED} and "ringjob" not in words]


@pytest.mark.parametrize("words", EVERY_CALL, ids=" ".join)
def test_a_command_uses_a_verb_and_flags_that_exist_and_parses(words):
    verb, *arguments = words
    given = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)}

    with get_command(app).make_context("trainmaster", list(words)) as context:
        sub = COMMANDS[verb].make_context(verb, arguments, parent=context, resilient_parsing=True)
        sub.close()

    assert given <= declared(verb)


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_a_command_that_needs_no_cluster_works(words):
    result = subprocess.run(
        [sys.executable, "-m", "trainmaster", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("page", TAUGHT, ids=title)
def test_files_that_commands_name_exist(page):
    for line in lines(page.read_text()):
        for path in re.findall(r"\b((?:examples|deploy|tools|docs)/[\w./-]+)", line):
            assert (ROOT / path).exists(), line


@pytest.mark.parametrize("page", TAUGHT, ids=title)
def test_schemes_that_commands_name_exist(page):
    for words in calls(page.read_text()):
        named = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "--enable-scheme"]
        frameworks.enabled(tuple(name for name in named if name != "ringjob"))


@pytest.mark.parametrize("page", TAUGHT, ids=title)
def test_python_modules_that_commands_run_exist(page):
    for line in lines(page.read_text()):
        for module in re.findall(r"python -m (tools[\w.]*|benchmarks[\w.]*)", line):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or path.is_dir(), line


@pytest.mark.parametrize("page", TAUGHT, ids=title)
def test_yaml_that_is_shown_is_yaml(page):
    for block in blocks(page.read_text(), "yaml"):
        assert list(yaml.safe_load_all(block))


def test_the_job_that_the_guide_writes_is_valid_in_both_languages(tmp_path):
    for guide in GUIDES:
        for number, block in enumerate(blocks(guide.read_text(), "yaml")):
            if "kind:" in block:
                file = tmp_path / f"{guide.stem}-{number}.yaml"
                file.write_text(block)
                result = subprocess.run(
                    [sys.executable, "-m", "trainmaster", "plan", str(file)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert result.returncode == 0, result.stderr
