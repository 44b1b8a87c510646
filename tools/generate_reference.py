"""The reference part of the documentation, derived from the code: `docs/kinds/`, `docs/reference/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools import reference_cli, reference_kinds, reference_metrics
from trainmaster.api.framework import Framework

FOLDERS = ("kinds", "reference")
"""Of docs/; everything in them is derived."""


def files(known: Sequence[Framework]) -> Iterator[tuple[str, str]]:
    """Paths below docs/, and what should stand there."""
    yield from reference_kinds.files(known)
    yield from reference_cli.files()
    yield from reference_metrics.files()
