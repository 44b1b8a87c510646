"""Regular expressions of ours take time in proportion to the text, whatever it says."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import backtracking

import trainmaster

ROOT = Path(trainmaster.__file__).parent
FEW, MANY = 8, 32
MADE_LATER = {"cluster/kubelet/rewriting.py": 1}
"""A choice of literal paths, without any repetition. All others are made with their module, where we see them."""


def _modules() -> Iterator[str]:
    return (found.name for found in pkgutil.walk_packages([str(ROOT)], "trainmaster.") if "__main__" not in found.name)


def _expressions() -> list[re.Pattern[str]]:
    held = [value for name in _modules() for value in vars(importlib.import_module(name)).values()]
    return list(dict.fromkeys(value for value in held if isinstance(value, re.Pattern)))


def _growth(expression: re.Pattern[str]) -> Iterator[tuple[float, str]]:
    texts = backtracking.hard_texts
    for short, long in zip(texts(expression, FEW), texts(expression, MANY), strict=True):
        yield backtracking.steps(expression, long) / backtracking.steps(expression, short), short


@pytest.fixture
def _deep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The counter recurses for every repetition."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize("expression", _expressions(), ids=lambda each: each.pattern[:40])
def test_every_expression_takes_time_in_proportion_to_the_text(expression: re.Pattern[str]) -> None:
    growth, text = max(_growth(expression))

    assert growth <= 1.3 * MANY / FEW, text


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"^(a+)+$", id="exponential"),
        pytest.param(r"\d+\.?\d*x", id="two ways to share digits"),
        pytest.param(r"\s*:", id="begins again at every space"),
        pytest.param(r"\$\(([^)]*)\)", id="looks for an end that is not there"),
        pytest.param(r",(?![^(]*\))", id="looks ahead"),
    ],
)
def test_the_count_finds_expressions_that_take_longer(pattern: str) -> None:
    growth, _ = max(_growth(re.compile(pattern)))

    assert growth > 1.3 * MANY / FEW


def test_every_expression_stands_where_it_is_counted() -> None:
    later = {}
    for file in ROOT.rglob("*.py"):
        tree = ast.parse(file.read_text())
        at_the_top = {
            id(node) for statement in tree.body if isinstance(statement, ast.Assign) for node in ast.walk(statement)
        }
        found = [node for node in ast.walk(tree) if _makes_an_expression(node) and id(node) not in at_the_top]
        if found:
            later[str(file.relative_to(ROOT))] = len(found)

    assert later == MADE_LATER


def _makes_an_expression(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)):
            return name not in ("escape", "purge")
    return False
