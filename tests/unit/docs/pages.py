"""The documentation as tests see it: pages, their commands, links, headings."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.main import get_command

from trainmaster.cli.app import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
GUIDES = tuple(sorted((DOCS / "guide").glob("*.md")))
EXAMPLES = (ROOT / "examples" / "README.md", *sorted(ROOT.glob("examples/*/README.md")))
CHART = ROOT / "deploy" / "helm" / "trainmaster" / "README.md"
PAGES = (*READMES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")), *EXAMPLES, CHART)
_COMMAND = re.compile(r"(\.venv/bin/)?(trainmaster|kubectl|helm) [\w.-]+ [^\[…]+$")
SUBSTITUTION = re.compile(r"\$\(([^)]*)\)")
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # the group's own attribute


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """All fences are walked through in turn: those that close look like those that open a block of no language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def lines(text: str) -> list[str]:
    """Commands of `sh` blocks, without comments, with continued lines joined."""
    joined = "".join(blocks(text, "sh")).replace("\\\n", " ")
    found = [re.sub(r"\s+# .*", "", line).strip() for line in joined.splitlines()]
    return [line for line in found if line and not line.startswith("#")]


def spoken(text: str) -> list[str]:
    """Whole commands in prose, tables and indented blocks: a program of ours or kubectl, a verb, and more.

    How a verb is used in general (`[FLAGS]`), and what it says (`trainmaster run: …`), is no command.
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = [*re.findall(r"`([^`\n]+)`", prose), *re.findall(r"^ {4}(\S.*)$", prose, re.MULTILINE)]
    return [line.replace("\\|", "|") for line in found if _COMMAND.match(line)]


def programs(lines: Iterable[str]) -> list[list[str]]:
    """Every program with its arguments, on either side of a pipe; what `$(…)` stands for is one word."""
    pieces = [piece for line in lines for piece in re.split(r" \| | && ", SUBSTITUTION.sub("SUBSTITUTED", line))]
    split = [shlex.split(piece) for piece in (*pieces, *(one for line in lines for one in SUBSTITUTION.findall(line)))]
    return [[words[0].rpartition("/")[2], *words[1:]] for words in split if words]


def calls(text: str) -> list[list[str]]:
    """What `trainmaster` is called with, wherever it stands."""
    return [words[1:] for words in programs([*lines(text), *spoken(text)]) if words[0] == "trainmaster"]


def declared(verb: str) -> set[str]:
    parameters = [one for one in COMMANDS[verb].params if one.opts[0].startswith("-")]
    return {name for one in parameters for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}


def headings(text: str) -> list[str]:
    """With their depth; what stands in code is none."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+ .+)$", prose, re.MULTILINE)


def anchors(text: str) -> set[str]:
    """As GitHub makes them."""
    names = [heading.lstrip("#").strip().lower() for heading in headings(text)]
    return {re.sub(r"[^\w\- ]", "", name).replace(" ", "-") for name in names}
