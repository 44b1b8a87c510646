"""Where the embedded server may differ from a real one, each with its reason; nothing else may.

The real one is Kubernetes 1.20, the youngest that can be built from Debian's sources; the embedded one follows 1.32.
Patterns are those of fnmatch; `[` stands for itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.kubernetes.exchange import Mismatch


@dataclass(frozen=True, slots=True)
class Difference:
    """Whose `real` and `ours`, where given, are found in what the two said."""

    why: str
    scenario: str = "*"
    step: str = "*"
    field: str = "*"
    real: str = ""
    ours: str = ""

    def covers(self, mismatch: Mismatch) -> bool:
        pairs = ((self.scenario, mismatch.scenario), (self.step, mismatch.step), (self.field, mismatch.field))
        if not all(fnmatchcase(value, pattern.replace("[", "[[]")) for pattern, value in pairs):
            return False
        said = ((self.real, mismatch.real), (self.ours, mismatch.ours))
        return all(re.search(pattern, _text(value)) for pattern, value in said if pattern)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "1.20 has no dual-stack services, traffic policies, indexed or suspended Jobs, or names on namespaces",
        field="*",
        real="^.absent.$",
        ours=r'^(Cluster|\["IPv4"\]|SingleStack|NonIndexed|false|{"kubernetes.io/metadata.name": .*})$',
    ),
    Difference(
        "1.20 decodes with jsoniter, whose errors quote the text; later releases decode as we say it",
        field=".message",
        real=r"error found in #\d+ byte|json parse error",
        ours=r"cannot be handled as a|json parse error",
    ),
    Difference(
        "values of structs: 1.20 prints them in Go's syntax, with addresses; later releases as JSON",
        field=".*message",
        real=r"Invalid value: (\w*\.|\[\]|&)?[\w.]*\{",
        ours="Invalid value",
    ),
    Difference(
        "no DefaultTolerationSeconds: the nodes of one machine do not get lost one by one",
        field="*.spec.tolerations",
        real="node.kubernetes.io/not-ready",
        ours="absent",
    ),
    Difference(
        "items of a list say what they are: they are served as they are stored",
        field=".items[*].*",
        real="^.absent.$",
        ours="^[A-Za-z0-9./]+$",
    ),
    Difference(
        "Go prints times that are not set as null",
        real="^null$",
        ours="^.absent.$",
    ),
    Difference(
        "columns have no description: no client shows it",
        field=".columnDefinitions[*].description",
        ours="^$",
    ),
    Difference(
        "a controller of the real control plane was there; beside the embedded server none runs here",
        real="Progressing|deployment.kubernetes.io/revision",
        ours="^.absent.$",
    ),
    Difference("as above", field="*.observedGeneration", ours="^.absent.$"),
    Difference(
        "the API's paths are not listed to who asks for one that is not there",
        field="(*",
        real='^application/json$|^{"paths"',
        ours="^text/plain$|^404 page not found",
    ),
    Difference("random", step="bad generated name", real="Gen_", ours="Gen_"),
    Difference(
        "a client's mistake is not answered with 500",
        real="^500 .*resourceVersion should not be set",
        ours="^400 .*resourceVersion should not be set",
    ),
)

DEFECTS: tuple[Difference, ...] = ()
"""Ours to mend: each says what is wrong. This list shrinks to nothing."""
