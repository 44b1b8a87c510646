"""Manifests from files, directories and stdin, with errors that name the place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from trainmaster.objects import names, yamldocument

CONFIG = "trainmaster.yaml"
"""Not a manifest: it says what stands for images on this machine."""

UNKNOWN = "xxxxx"
"""Stands for the end of a name that the server has yet to make."""


class BadDocument(Exception):
    """Says which file, where in it, and what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    source: str
    body: dict[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """Empty where there is none."""
        return _metadata(self.body)

    @property
    def is_generated(self) -> bool:
        """Whether the server is to make its name."""
        return bool(self.metadata.get("generateName")) and not self.metadata.get("name")

    @property
    def named(self) -> dict[str, Any]:
        """The object; where the server is to make its name, with one that stands in for it."""
        if not self.is_generated:
            return self.body
        return {**self.body, "metadata": {**self.metadata, "name": _stand_in(str(self.metadata["generateName"]))}}

    def __str__(self) -> str:
        return f"{self.source}: {self.body.get('kind', '?')} {_metadata(self.named).get('name') or '?'}"


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _stand_in(prefix: str) -> str:
    """As long as what the server makes of it, which is five characters more, and cut to fit."""
    return f"{prefix[: names.MAX_LABEL - len(UNKNOWN)]}{UNKNOWN}"


def read(sources: Iterable[str], stdin: TextIO | None = None) -> Iterator[Document]:
    for name in sources:
        if name == "-":
            yield from _parse("stdin", _said_on(stdin or sys.stdin))
            continue
        for path in _files(Path(name)):
            yield from _parse(str(path), text_of(path))


def _said_on(stdin: TextIO) -> str:
    try:
        return stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDocument(f"stdin: cannot be read: {_why(error)}") from error


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDocument(f"{path}: cannot be read: {_why(error)}") from error


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
    bodies = _bodies(source, text)
    for body in bodies:
        if not isinstance(body, dict) or not isinstance(body.get("kind"), str) or "apiVersion" not in body:
            raise BadDocument(f"{source}: a document is not a Kubernetes object: it needs apiVersion and kind")
        if body["kind"] == "List":
            yield from (Document(source, item) for item in body.get("items") or () if isinstance(item, dict))
        else:
            yield Document(source, body)


def _bodies(source: str, text: str) -> list[Any]:
    try:
        return [body for body in yamldocument.documents(text) if body is not None]
    except yamldocument.BadYaml as error:
        where = f", {error.where}" if error.where else ""
        raise BadDocument(f"{source}{where}: not valid YAML: {error.problem}") from error


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
