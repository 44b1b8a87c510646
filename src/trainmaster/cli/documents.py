"""Manifests from files, directories and stdin, with errors that name the place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

CONFIG = "trainmaster.yaml"
"""Not a manifest: it says what stands for images on this machine."""


class BadDocument(Exception):
    """Says which file, where in it, and what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    source: str
    body: dict[str, Any]

    def __str__(self) -> str:
        metadata = self.body.get("metadata")
        name = metadata.get("name", "?") if isinstance(metadata, dict) else "?"
        return f"{self.source}: {self.body.get('kind', '?')} {name}"


def read(names: Iterable[str], stdin: TextIO | None = None) -> Iterator[Document]:
    for name in names:
        if name == "-":
            yield from _parse("stdin", (stdin or sys.stdin).read())
            continue
        for path in _files(Path(name)):
            try:
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise BadDocument(f"{path}: cannot be read: {_why(error)}") from error
            yield from _parse(str(path), text)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise BadDocument(f"{path}: no such file or directory")
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json") and p.name != CONFIG)
    if not found:
        raise BadDocument(f"{path}: holds no .yaml, .yml or .json file")
    return found


def _parse(source: str, text: str) -> Iterator[Document]:
    try:
        bodies = [_json(body) for body in yaml.load_all(text, Loader=_Loader) if body is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadDocument(f"{source}{where}: not valid YAML: {problem}") from error
    for body in bodies:
        if not isinstance(body, dict) or not isinstance(body.get("kind"), str) or "apiVersion" not in body:
            raise BadDocument(f"{source}: a document is not a Kubernetes object: it needs apiVersion and kind")
        if body["kind"] == "List":
            yield from (Document(source, item) for item in body.get("items") or () if isinstance(item, dict))
        else:
            yield Document(source, body)


class _Loader(yaml.SafeLoader):
    """Safe, and without dates: to Kubernetes an unquoted date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _json(value: Any) -> Any:
    """Keys are texts in JSON, whatever they look like."""
    if isinstance(value, dict):
        return {str(key): _json(inner) for key, inner in value.items()}
    return [_json(inner) for inner in value] if isinstance(value, list) else value


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
