"""YAML of many objects, quickly: ten times as fast as PyYAML, which looks at every character of every text in Python.

Only what is plain to see is written here: names, numbers, JSON, scripts. Of any other text PyYAML says how it is to be
quoted. The form is that of `yaml.dump` in block style, without anchors.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_/][\w./,:-]*", re.ASCII)
_QUOTED = re.compile(r"0|[1-9][0-9]*|[\[{][!-&(-~]*")
"""Numbers that are texts, and JSON."""

_WORDS = frozenset({"yes", "no", "true", "false", "on", "off", "null"})
"""Texts that would be read as something else."""

_SHORT = 200
"""Texts up to here come again in every pod, and are remembered."""


def item_of(value: Any) -> str:
    """The value as one item of a list at the left margin."""
    lines: list[str] = []
    _write_list(lines, [value], "")
    return "\n".join(lines) + "\n"


def _write(lines: list[str], head: str, value: Any, indent: str, deeper: str) -> None:
    """A value behind `head`; a collection on lines of its own, with that indentation."""
    if isinstance(value, dict) and value:
        lines.append(head)
        _write_mapping(lines, value, deeper)
    elif isinstance(value, list | tuple) and value:
        lines.append(head)
        _write_list(lines, value, indent)
    else:
        lines.append(f"{head} {_scalar(value, deeper)}")


def _write_mapping(lines: list[str], value: dict[str, Any], indent: str) -> None:
    deeper = indent + "  "
    for key, inner in value.items():
        _write(lines, f"{indent}{_remembered(key)}:", inner, indent, deeper)


def _write_list(lines: list[str], values: list[Any] | tuple[Any, ...], indent: str) -> None:
    """A collection in a list begins on the line of its dash."""
    deeper = indent + "  "
    for value in values:
        at = len(lines)
        if isinstance(value, dict) and value:
            _write_mapping(lines, value, deeper)
        elif isinstance(value, list | tuple) and value:
            _write_list(lines, value, deeper)
        else:
            lines.append(f"{deeper}{_scalar(value, deeper)}")
        lines[at] = f"{indent}- {lines[at][len(deeper) :]}"


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        if "\n" in value:
            return _block(value, indent)
        return _remembered(value) if len(value) <= _SHORT else _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _by_library(value)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.endswith(":") and text.lower() not in _WORDS:
        return text
    if _QUOTED.fullmatch(text):
        return f"'{text}'"
    return _by_library(text, None if text.isprintable() else '"')


_remembered = lru_cache(4096)(_quoted)


def _block(text: str, indent: str) -> str:
    """As a block where every character stands for itself; else in double quotes on one line."""
    is_plain = text.isascii() and text.replace("\n", "").isprintable()
    if not is_plain or " \n" in text or text[0] in " \n" or text.endswith((" ", "\n\n")):
        return _by_library(text, '"')
    sign, body = ("|", text[:-1]) if text.endswith("\n") else ("|-", text)
    return "\n".join([sign, *(f"{indent}{line}" if line else "" for line in body.split("\n"))])


def _by_library(value: Any, style: str | None = None) -> str:
    """On one line, however long."""
    shown = yaml.safe_dump([value], default_style=style, allow_unicode=True, width=sys.maxsize)
    return shown.removeprefix("- ").removesuffix("\n")
