"""What a machine lacks leaves tests out, and is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tools.left_out import LeftOut

NEEDS = {"boat": lambda: "there is no boat; build one", "car": lambda: "", "bike": lambda: "there is no bike; buy one"}
TESTS = {"sea[1]": "boat", "sea[2]": "boat", "road": "car", "foot": ""}


class Screen:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


class Item:
    def __init__(self, name: str, marker: str) -> None:
        self.name, self.marker = name, marker

    def get_closest_marker(self, name: str) -> str | None:
        return name if name == self.marker else None


def collected(plugin: LeftOut) -> list[str]:
    items: list[Any] = [Item(name, marker) for name, marker in TESTS.items()]
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    plugin.pytest_collection_modifyitems(config, items)
    return [item.name for item in items]


def told(plugin: LeftOut) -> list[str]:
    screen: Any = Screen()
    plugin.pytest_terminal_summary(screen)
    lines: list[str] = screen.lines
    return lines


def test_tests_whose_need_is_missing_are_left_out_and_the_last_lines_say_so() -> None:
    plugin = LeftOut(NEEDS, {})

    assert collected(plugin) == ["road", "foot"]
    assert told(plugin) == ["2 tests were left out: there is no boat; build one"]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_every_worker_leaves_out_is_told_once(workers: int) -> None:
    controller = LeftOut(NEEDS, {})

    for _ in range(workers):
        worker, output = LeftOut(NEEDS, {}), dict[str, object]()
        collected(worker)
        worker.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(workeroutput=output)))  # type: ignore[arg-type]  # as xdist has it
        controller.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    controller.pytest_testnodedown(SimpleNamespace())  # a worker that crashed

    assert told(controller) == ["2 tests were left out: there is no boat; build one"]


def test_nothing_is_left_out_in_ci() -> None:
    plugin = LeftOut(NEEDS, {"CI": "true"})

    assert collected(plugin) == ["sea[1]", "sea[2]", "road", "foot"]
    assert told(plugin) == []


def test_in_ci_only_that_is_left_out_which_is_meant_to_be_missing() -> None:
    plugin = LeftOut(NEEDS, {"CI": "true"}, meant={"boat"})

    assert collected(plugin) == ["road", "foot"]
    assert told(plugin) == ["2 tests were left out: there is no boat; build one"]
