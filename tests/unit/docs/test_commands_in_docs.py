"""Commands in READMEs, guides and examples: all of them parse, and those that need no cluster are run."""

import re
import subprocess
import sys
import tomllib

import pytest
import typer
import yaml
from tests.unit.docs.pages import (
    CHART,
    COMMANDS,
    DOCS,
    EXAMPLES,
    GUIDES,
    PAGES,
    READMES,
    ROOT,
    blocks,
    calls,
    declared,
    lines,
    programs,
    spoken,
    title,
)
from typer.main import get_command

from trainmaster import frameworks
from trainmaster.cli.app import app
from trainmaster.cluster.kubelet.images_config import ImageMapping

TAUGHT = (*READMES, *GUIDES, *sorted(DOCS.glob("*.md")), *EXAMPLES, CHART)
"""Pages whose commands are there to be typed."""

ALONE = ("plan", "explain", "manifests")
"""Verbs that need nothing but this machine, and no time."""

IMAGINED = ("ring.yaml", "job.yaml", "FILE", "KIND.FIELD")
"""What a reader is to have, or to choose."""

EVERY_CALL = sorted({tuple(words) for page in PAGES for words in calls(page.read_text()) if "--help" not in words})
QUICK = [words for words in EVERY_CALL if words[0] in ALONE and not {*words} & {*IMAGINED} and "ringjob" not in words]
EVERY_PROGRAM = sorted({tuple(words) for page in TAUGHT for words in programs(lines(page.read_text()))})
TOLD = sorted(
    {tuple(words) for page in TAUGHT for words in programs(spoken(page.read_text())) if words[0] != "trainmaster"}
)

OTHERS = {
    "kubectl": {"apply", "get", "describe", "logs", "delete", "scale", "rollout", "exec", "cordon", "label", "patch"},
    "helm": {"install", "upgrade", "uninstall", "template"},
    "docker": {"build", "buildx", "load"},
    "podman": {"build"},
    "buildah": {"bud"},
    "ctr": {"-n"},
    "export": {"KUBECONFIG=~/.local/share/trainmaster/cluster/kubeconfig"},
}
"""Programs of others that the pages use, and what they are told to do."""

KUBERNETES = {
    "pods",
    "crd",
    "deployment",
    "deployments",
    "podgroup",
    "secret",
    "events",
    "service",
    *("role", "rolebinding", "clusterrole", "clusterrolebinding"),
    *("validatingwebhookconfiguration", "mutatingwebhookconfiguration"),
}
JOBS = {
    name
    for framework in frameworks.BUILT_IN
    for resource in framework.served
    for name in (resource.plural, resource.kind.lower(), *framework.short_names)
}


def parsed(words):
    """Strictly, as the command line does: a missing argument or a value of the wrong kind is an error."""
    verb, *arguments = words
    with get_command(app).make_context("trainmaster", list(words)) as context:
        COMMANDS[verb].make_context(verb, arguments, parent=context).close()


@pytest.mark.parametrize("words", EVERY_CALL, ids=" ".join)
def test_a_command_uses_a_verb_and_flags_that_exist_and_parses(words):
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)}

    parsed(words)

    assert given <= declared(words[0])


@pytest.mark.parametrize(
    "words",
    [
        ("scale", "ddp"),
        ("run",),
        ("run", "x", "--sandbox", "cardboard"),
        ("run", "x", "--timeout", "soon"),
        ("wait", "x"),
    ],
    ids=" ".join,
)
def test_a_command_that_would_be_refused_does_not_parse(words):
    with pytest.raises(typer.BadParameter):
        parsed(words)


@pytest.mark.parametrize("words", [*EVERY_PROGRAM, *TOLD], ids=" ".join)
def test_a_program_of_others_is_told_to_do_what_it_can(words):
    program, *arguments = words
    match program:
        case "trainmaster":
            assert arguments
        case "make":
            assert re.search(rf"^{arguments[-1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case "python":
            assert arguments[0] == "-m"
        case _:
            verbs = [word for word in arguments if word in OTHERS[program]]
            assert verbs, words


@pytest.mark.parametrize("words", [words for words in (*EVERY_PROGRAM, *TOLD) if words[0] == "kubectl"], ids=" ".join)
def test_kubectl_is_asked_for_kinds_that_there_are(words):
    bare = [word for word in without_values(words[1:]) if not word.startswith("-")]
    named = bare[1:] if bare[0] in ("get", "describe", "delete", "scale") else []

    for kind in named[0].split(",") if named else ():
        assert kind.partition("/")[0] in JOBS | KUBERNETES | {"KIND"}


def without_values(words):
    """Flags that take a value go with it."""
    taking = ("-n", "-f", "-k", "-o", "-l", "--context")
    return [
        word for place, word in enumerate(words) if word not in taking and (not place or words[place - 1] not in taking)
    ]


@pytest.mark.parametrize("page", TAUGHT, ids=title)
def test_environments_that_commands_make_are_known(page):
    known = tomllib.loads((ROOT / "tools" / "environments.toml").read_text())
    for program, *arguments in programs(lines(page.read_text())):
        if program == "python" and arguments[:2] == ["-m", "tools.environments"]:
            assert {*arguments[2:]} <= known.keys()


@pytest.mark.parametrize("page", [page for page in EXAMPLES if page.parent.name[:2].isdigit()], ids=title)
def test_an_example_is_run_with_images_that_it_names_and_an_environment_that_is_made(page):
    """Whoever types the line has what it needs: the pattern matches, and nothing but Python is taken for granted."""
    row = re.search(rf"^\| \[{page.parent.name}\].* \| (.+) \|$", EXAMPLES[0].read_text(), re.MULTILINE)
    assert row is not None
    manifests = "".join(path.read_text() for path in sorted(page.parent.glob("job*.yaml")))
    named = re.findall(r"image: (\S+)", manifests)
    for line in lines(page.read_text()):
        given = re.findall(r"--image (\S+?)=\$\(.venv/bin/python -m tools.environments (\w+)\)", line)
        assert f"examples/{page.parent.name}" in line
        assert [f"`{environment}`" for _, environment in given] == ([] if row[1] == "none" else [row[1]])
        assert all(any(ImageMapping(pattern).matches(image) for image in named) for pattern, _ in given)


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
    """That of a framework of one's own is planned where that framework is installed, by another test."""
    for guide in GUIDES:
        for number, block in enumerate(blocks(guide.read_text(), "yaml")):
            if "kind:" in block and "ring.example" not in block:
                file = tmp_path / f"{guide.stem}-{number}.yaml"
                file.write_text(block)
                result = subprocess.run(
                    [sys.executable, "-m", "trainmaster", "plan", str(file)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert result.returncode == 0, result.stderr
