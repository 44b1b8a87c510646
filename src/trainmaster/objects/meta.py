"""Slim, typed views of stored objects: what the cache keeps and the engine reads.

Decoded by msgspec straight from the API server's bytes. Fields that nobody reads (managedFields, pod specs) are
not declared, so they are dropped while decoding and cost nothing. `gc=False` keeps 10,000 of these out of the
garbage collector's way; none of them can be part of a reference cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from trainmaster.objects.learning import learn

Json: TypeAlias = Mapping[str, Any]
"""A foreign object or a part of one: read-only, unknown fields kept. It comes from JSON, so that the objects within are
dicts, and are asked for as such: to ask for an abstract Mapping takes several times as long."""


class OwnerReference(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Meta(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-wide object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def is_terminating(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object, if it has one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def is_controlled_by(self, uid: str) -> bool:
        owner = self.controller
        return owner is not None and bool(uid) and owner.uid == uid


class Stored(Protocol):
    """Whatever a cache can hold."""

    @property
    def metadata(self) -> Meta: ...


class Object(Struct, frozen=True, gc=False, rename="camel"):
    """Any object; its large parts stay undecoded until someone asks for them."""

    metadata: Meta
    spec: Raw = Raw()
    status: Raw = Raw()

    def at(self, *path: str) -> Any:
        """The value at a path such as ("spec", "queue"); None where there is nothing."""
        raw = self.spec if path[0] == "spec" else self.status
        value: Any = msgspec.json.decode(raw) if bytes(raw) else None
        for step in path[1:]:
            value = value.get(step) if isinstance(value, dict) else None
        return value


class FiledObject(Object, frozen=True, gc=False, rename="camel"):
    """One that has its content beside `spec`, where somebody may have changed it. No Secret is read as such: what is in
    those is not to lie in our memory."""

    data: Raw = Raw()
    rules: Raw = Raw()
    subjects: Raw = Raw()

    def part(self, name: str) -> Any:
        """None where there is nothing."""
        raw: Raw = getattr(self, name)
        return msgspec.json.decode(raw) if bytes(raw) else None


class Author(Struct, frozen=True, gc=False, rename="camel"):
    """Who wrote a part of an object, and in which version of its API."""

    api_version: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""


class JobMeta(Meta, frozen=True, gc=False, rename="camel"):
    managed_fields: tuple[Author, ...] = ()


class JobObject(Object, frozen=True, gc=False, rename="camel"):
    """A job: here it matters in which version it was written. Kept for jobs alone, as it is long."""

    metadata: JobMeta


class Service(Struct, frozen=True, gc=False, rename="camel"):
    """A Service without its ports: the engine wants its existence and its address."""

    metadata: Meta
    spec: ServiceSpec


class ServiceSpec(Struct, frozen=True, gc=False, rename="camel"):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class PriorityClass(Struct, frozen=True, gc=False):
    metadata: Meta
    value: int = 0


def meta_of(raw: object) -> Meta:
    """Metadata of a foreign mapping, as far as it is well-formed; what is not becomes empty."""
    if isinstance(raw, Meta):
        return raw
    fields = raw if isinstance(raw, Mapping) else {}
    try:
        return msgspec.convert(fields, Meta)
    except msgspec.ValidationError:
        text = {key: value for key, value in fields.items() if isinstance(value, str)}
        return msgspec.convert({key: text[key] for key in ("name", "namespace", "uid") if key in text}, Meta)


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def mutable(value: Json) -> dict[str, Any]:
    """A deep copy one may change; twenty times cheaper than copy.deepcopy."""
    return cast(dict[str, Any], msgspec.json.decode(msgspec.json.encode(value)))


learn(Meta, Object, FiledObject, JobObject, Service, PriorityClass)
