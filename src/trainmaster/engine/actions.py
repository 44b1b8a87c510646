"""What a plan asks for: values that say which write to make, never how it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from trainmaster.engine.recipe import Recipe
from trainmaster.objects.meta import Json, Meta
from trainmaster.objects.resource import Resource


class Stage(IntEnum):
    """Creates happen stage by stage; within one they are concurrent."""

    COMPANIONS = 0
    BINDINGS = 1
    """Of roles that a server must know before anyone is bound to them."""

    SERVICES = 2
    PODS = 3


@dataclass(frozen=True, slots=True)
class Create:
    resource: Resource
    recipe: Recipe
    stage: Stage
    secret: Callable[[], Json] | None = None
    """Makes the part of the body that no plan holds, when it is written."""

    yields: bool = False
    """Whether one that users made themselves serves as well."""

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def body(self) -> Json:
        """The object, built at each call: to be written and forgotten, not to be kept by the thousand."""
        return self.recipe.build()


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch, refused by the server if the object has changed since it was observed."""

    resource: Resource
    target: Meta
    body: Json

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class Delete:
    """Carries the UID: a namesake that took the object's place is left alone."""

    resource: Resource
    target: Meta

    @property
    def name(self) -> str:
        return self.target.name


Action = Create | Patch | Delete


@dataclass(frozen=True, slots=True)
class Claim:
    """A name that must be free, or the job's own, before any of its pods is made."""

    resource: Resource
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something the user should read. With `repeat=False` it is an observation made on every pass, told once."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    repeat: bool = True


Mark = Literal["created", "deleted", "successful", "failed", "restarted"]
"""Job-level happenings that are counted in metrics once the status that records them is written."""
