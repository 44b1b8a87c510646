"""What first jobs on one machine die of most, recognised in what they print, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'")
_FILE = re.compile(r"can't open file '([^']+)'.*No such file")
_AMOUNT = re.compile(r"needs \S+ (\S+), ")
_LABEL = re.compile(r"no label ([^\s=]+)=(\S+)")
_PROGRAM = re.compile(r'exec: "([^"]+)": executable file not found')


def of_line(line: str, image: str) -> str:
    """Empty when there is nothing to say."""
    if found := _MODULE.search(line):
        missing = f"the Python that stands for {image} on this machine has no module {found[1]}"
        return f"{missing}. Name an environment that has it: {_environment(image)}"
    if found := _FILE.search(line):
        return (
            f"{found[1]} is not on this machine. Say in trainmaster.yaml what lies there in {image}: "
            f'files: {{"{found[1].rpartition("/")[0] or "/"}": DIRECTORY}}'
        )
    return ""


def of_warning(reason: str, message: str, image: str) -> str:
    if found := _PROGRAM.search(message):
        return f"no {found[1]} in what stands for {image} on this machine. Name an environment: {_environment(image)}"
    return _of_waiting(message) if reason == "FailedScheduling" else ""


def _of_waiting(message: str) -> str:
    if found := _LABEL.search(message):
        return (
            "no node has that label. Press Ctrl-C, and give it in trainmaster.yaml: "
            f"node: {{labels: {{{found[1]}: {found[2]}}}}}"
        )
    found = _AMOUNT.search(message)
    return (
        "it waits until there is room. If this machine never has that much, press Ctrl-C, and ask for less in the "
        "manifest, or let the machine offer more than it has, in trainmaster.yaml: "
        f"node: {{resources: {{{found[1] if found else 'NAME'}: NUMBER}}}}"
    )


def _environment(image: str) -> str:
    return f"--image '{image}=VENV', or python: VENV in trainmaster.yaml"


def image_of(body: Any) -> str:
    """The one image that a manifest names; a placeholder where there are several."""
    found = set(_images(body))
    return found.pop() if len(found) == 1 else "IMAGE"


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "image" and isinstance(inner, str):
                yield inner
            else:
                yield from _images(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _images(inner)
