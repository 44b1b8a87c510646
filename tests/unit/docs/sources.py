"""The texts that the code has, to tell whether a message in the documentation can still be printed."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.unit.docs.pages import ROOT

SHORTEST = 6
"""Shorter pieces of text are everywhere, and so prove nothing."""


@cache
def texts() -> tuple[str, ...]:
    """All constants of the source and of the demo, the longest first; of formatted ones what is fixed."""
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("demo*.py")]
    found = {
        text
        for line in (ROOT / "Makefile").read_text().splitlines()
        for text in re.findall(r'"(?:\$\(PYTHON\) )?([^"]+)"', line)
    }
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(part.strip() for part in re.split(r"\n|\{\w+\}|%s", node.value))
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True))


def share_of(line: str) -> float:
    """How much of the line stands in the source, word for word."""
    rest = line
    for text in texts():
        rest = rest.replace(text, "\0")
    left = len(rest.replace("\0", "").replace(" ", ""))
    return 1 - left / len(line.replace(" ", ""))
