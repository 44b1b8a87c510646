"""What objects are built from: small values in place of large ones.

A job may have ten thousand pods, each of which lists all the others. So a plan does not hold the objects that it asks
for, but a recipe of each. An object is built when it is written, and forgotten then; what the objects of a job have in
common is computed once (`Job.once`). Building is pure: two calls build the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainmaster.api.framework import Framework
from trainmaster.api.job import Member
from trainmaster.objects.meta import Json


class Recipe(Protocol):
    @property
    def name(self) -> str:
        """The name of the object."""

    def build(self) -> Json:
        """Return the object. Each call builds another one."""


@dataclass(frozen=True, slots=True)
class Given:
    """The recipe of an object of which a job has one or two: the object itself."""

    body: Json

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def build(self) -> Json:
        return self.body


@dataclass(frozen=True, slots=True, repr=False)
class ReplicaRecipe:
    """What the recipes of all objects that belong to one replica share. Its text shows the name: the job is long."""

    framework: Framework
    member: Member

    @property
    def name(self) -> str:
        return self.member.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"
