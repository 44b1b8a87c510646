"""Finding one's way in OpenAPI v3 schemas: references, lists and maps are stepped through as people write paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
KEEPS = "x-kubernetes-preserve-unknown-fields"
_DEEPEST = 12


class UnknownField(Exception):
    """`step` is not among `known`, of what lies at `path`."""

    def __init__(self, path: Sequence[str], step: str, known: Sequence[str], keeps: bool) -> None:
        super().__init__(f"{'.'.join(path)} has no field {step}")
        self.path, self.step, self.known, self.keeps = tuple(path), step, tuple(known), keeps


@dataclass(frozen=True, slots=True)
class Schemas:
    types: Mapping[str, Schema] = field(default_factory=dict)
    """By name, as in `components.schemas`."""

    def of_kind(self, group: str, version: str, kind: str) -> Schema | None:
        wanted = {"group": group, "version": version, "kind": kind}
        for schema in self.types.values():
            if wanted in (schema.get("x-kubernetes-group-version-kind") or ()):
                return schema
        return None

    def at(self, root: Schema, steps: Sequence[str]) -> Schema:
        """What a path leads to. Of a map, `workers.replicas` and `workers.Worker.replicas` mean the same."""
        here = root
        for number, step in enumerate(steps):
            inner = self.element(here)
            fields = inner.get("properties") or {}
            if step in fields:
                here = fields[step]
            elif self._is_map(self.resolved(here)):
                here = self.resolved(here)["additionalProperties"]
            else:
                raise UnknownField(steps[:number], step, list(fields), bool(inner.get(KEEPS)))
        return here

    def resolved(self, schema: Schema) -> Schema:
        """What a reference stands for, with the description of the place that refers."""
        for _ in range(_DEEPEST):
            target = schema.get("$ref") or next((one.get("$ref") for one in schema.get("allOf") or ()), None)
            if target is None:
                break
            said = {key: schema[key] for key in ("description", "default") if key in schema}
            schema = {**self.types.get(target.rpartition("/")[2], {}), **said}
        return schema

    def element(self, schema: Schema) -> Schema:
        """What is inside of lists and maps."""
        schema = self.resolved(schema)
        for _ in range(_DEEPEST):
            if isinstance(schema.get("items"), Mapping):
                schema = self.resolved(schema["items"])
            elif self._is_map(schema):
                schema = self.resolved(schema["additionalProperties"])
            else:
                break
        return schema

    def type_of(self, schema: Schema) -> str:
        """`[]Container`, `map[string]string`, `Object`, `integer`."""
        whole = self.resolved(schema)
        if isinstance(whole.get("items"), Mapping):
            return f"[]{self.type_of(whole['items'])}"
        if self._is_map(whole):
            return f"map[string]{self.type_of(whole['additionalProperties'])}"
        if whole.get("x-kubernetes-int-or-string") or whole.get("format") == "int-or-string":
            return "IntOrString"
        target = schema.get("$ref") or next((one.get("$ref") for one in schema.get("allOf") or ()), "")
        if whole.get("properties") and target:
            return str(target).rpartition(".")[2]
        if "type" not in whole and whole.get("oneOf"):
            return "|".join(str(one.get("type", "any")) for one in whole["oneOf"])
        kind = str(whole.get("type", "Object"))
        return "Object" if kind == "object" else kind

    @staticmethod
    def _is_map(schema: Schema) -> bool:
        return isinstance(schema.get("additionalProperties"), Mapping) and not schema.get("properties")
