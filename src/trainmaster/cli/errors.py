"""What went wrong, out of the groups in which task groups wrap it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def first_cause(error: BaseException) -> BaseException:
    """The first of the errors inside: the others mostly follow from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raises the first cause instead of a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
