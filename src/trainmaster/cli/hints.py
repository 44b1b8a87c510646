"""What first jobs die of most, recognised in what they print and what the cluster warns of, and what to do about it.

`of_line` and `of_warning` speak to someone who sees the job run on this machine; `of_log` to someone who looks at a job
on any cluster, later.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster import frameworks

_MODULE = re.compile(
    r"(?:^|\(|\]: |>: ?)ModuleNotFoundError: No module named '([\w.]+)'|^\S*python[\d.]*: No module named ([\w.]+)$"
)
"""An exception stands alone, in brackets after the words of `python -m`, or behind what launchers put before lines."""
_FILE = re.compile(r"can't open file '([^']+)': .{0,20}No such file")
_COMMAND = re.compile(r"^\S*sh: (?:\d+: |line \d+: )?([^\s:]+): (?:command )?not found$")
_PORT = re.compile(r"Address already in use|EADDRINUSE", re.IGNORECASE)
_AMOUNT = re.compile(r"needs \S+ (\S+), ")
_ROOM = re.compile(r"\b(?:free|in all|not fit|left|no room)\b")
_LABEL = re.compile(r"no label ([^\s=]+)=(\S*)")
_CLAIM = re.compile(r"PersistentVolumeClaim (\S+) does not exist")
_PROGRAM = re.compile(r'exec: "([^"]+)": executable file not found')
_WORDS = re.compile(r'exec: "(\S+\s[^"]*)": (?:executable file not found|[^"]*no such file)', re.IGNORECASE)
"""A command whose words were not taken apart, since they are one item of the list."""

PORT = (
    "another process has that port already. Pods have networks of their own, so look for a second one in the same pod; "
    "with hostNetwork or --sandbox ports they share one, so declare the port under ports: of the container, "
    "or choose another"
)


@dataclass(frozen=True, slots=True)
class Hint:
    text: str
    is_final: bool = False
    """The next attempt will end in the same way."""


RESTARTED = Hint(
    "a container that fails is started again as often as restartPolicy says (OnFailure: always). To end such a job, "
    "set runPolicy: {backoffLimit: 3}, or restartPolicy: Never"
)


@dataclass(frozen=True, slots=True)
class Place:
    """What a job finds where it runs."""

    image: str = "IMAGE"
    files: Mapping[str, Path] = field(default_factory=dict)
    """What stands for paths of its images on this machine."""

    is_limited: bool = False
    """Whether it is known how often it may restart."""

    is_here: bool = True
    """On another's cluster images are what they are."""


def of_line(line: str, place: Place) -> Hint | None:
    if not place.is_here:
        return None
    if found := _MODULE.search(line):
        missing = f"the Python that stands for {place.image} on this machine has no module {found[1] or found[2]}"
        return Hint(f"{missing}. Name an environment that has it: {_environment(place)}", is_final=True)
    if found := _FILE.search(line):
        return Hint(_no_file(found[1], place), is_final=True)
    if found := _COMMAND.search(line):
        return Hint(_no_program(found[1], place), is_final=True)
    return Hint(PORT) if _PORT.search(line) else None


def of_warning(reason: str, message: str, place: Place) -> Hint | None:
    if reason == "BackOff":
        return None if place.is_limited else RESTARTED
    if found := _WORDS.search(message):
        return Hint(_one_word(found[1]), is_final=True)
    if not place.is_here:
        return None
    if found := _PROGRAM.search(message):
        return Hint(_no_program(found[1], place), is_final=True)
    told = _of_waiting(message) if reason == "FailedScheduling" else ""
    return Hint(told) if told else None


def of_log(lines: Iterable[str], rank: str) -> str:
    """Of a job on any cluster; empty when there is nothing to say."""
    for line in lines:
        if found := _MODULE.search(line):
            return (
                f"The image of {rank} has no Python module {found[1] or found[2]}: install it there; on one machine, "
                "name an environment that has it, with --image 'PATTERN=VENV' or python: VENV in trainmaster.yaml."
            )
        if found := _FILE.search(line):
            return (
                f"The image of {rank} has no file {found[1]}: put it there or correct the command; on one machine, say "
                "what lies at that path, with files: in trainmaster.yaml."
            )
        if found := _COMMAND.search(line):
            return f"The image of {rank} has no program {found[1]}: install it there, or correct the command."
        if _PORT.search(line):
            return f"In {rank}, {PORT}."
    return ""


def _no_file(path: str, place: Place) -> str:
    directory, _, name = path.rpartition("/")
    for inside, outside in sorted(place.files.items(), key=lambda pair: -len(pair[0])):
        if path == inside or path.startswith(f"{inside.rstrip('/')}/"):
            here = os.path.normpath(outside / os.path.relpath(path, inside))
            return f"{here}, which is {path} in the pods, does not exist: put the program there, or correct the command"
    if Path(directory or "/").is_dir():
        return f"there is no {name} in {directory or '/'}, where the command looks for it: correct the command"
    return (
        f"{path} is not on this machine. Say in trainmaster.yaml what lies there in {place.image}: "
        f'files: {{"{directory or "/"}": DIRECTORY}}'
    )


def _no_program(name: str, place: Place) -> str:
    missing = f"there is no {name} in what stands for {place.image} on this machine"
    return f"{missing}. Name an environment that has it: {_environment(place)}"


def _one_word(command: str) -> str:
    items = ", ".join(json.dumps(word) for word in command.split())
    return (
        f'"{command}" is one item of command:, and so is looked for as one program of that name. Give every word an '
        f"item of its own, command: [{items}], or leave it to a shell, command: [sh, -c, {json.dumps(command)}]"
    )


def _of_waiting(message: str) -> str:
    """Empty where the message says it all."""
    if found := _CLAIM.search(message):
        return (
            f"the job mounts a claim that nobody has made. Press Ctrl-C, and put the PersistentVolumeClaim {found[1]} "
            "into the manifest, or correct claimName"
        )
    if found := _LABEL.search(message):
        return (
            "no node has that label. Press Ctrl-C, and give it in trainmaster.yaml: "
            f'node: {{labels: {{{found[1]}: "{found[2]}"}}}}'
        )
    if not _ROOM.search(message):
        return ""
    found = _AMOUNT.search(message)
    return (
        "it waits until there is room. If this machine never has that much, press Ctrl-C, and ask for less in the "
        "manifest, or let the machine offer more than it has, in trainmaster.yaml: "
        f"node: {{resources: {{{found[1] if found else 'NAME'}: NUMBER}}}}"
    )


def _environment(place: Place) -> str:
    return f"--image '{place.image}=VENV', or python: VENV in trainmaster.yaml"


def image_of(body: Any) -> str:
    """The one image that a manifest names; a placeholder where there are several."""
    found = set(images_of(body))
    return found.pop() if len(found) == 1 else "IMAGE"


def images_of(value: Any) -> Iterator[str]:
    yield from (text for text in _values(value, "image") if isinstance(text, str))


def limits_restarts(body: Mapping[str, Any]) -> bool:
    """In its manifest, or because a Kubernetes Job starts its launcher, and gives up after 6 attempts by itself."""
    return any(limit is not None for limit in _values(body, "backoffLimit")) or _is_delegated(body)


def _is_delegated(body: Mapping[str, Any]) -> bool:
    found = frameworks.serving(body.get("apiVersion"), body.get("kind"))
    return found is not None and found[0].dialect(body).delegates


def _values(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name and not isinstance(inner, dict | list):
                yield inner
            else:
                yield from _values(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, name)
