"""Objects in the forms that programs read: yaml, json, name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import yaml

Form: TypeAlias = Literal["yaml", "json", "name"]


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """Without managedFields, which nobody reads, as kubectl leaves them out."""
    metadata = {key: value for key, value in item.get("metadata", {}).items() if key != "managedFields"}
    first = {key: value for key, value in item.items() if key in ("apiVersion", "kind")}
    rest = {key: value for key, value in item.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**first, "metadata": metadata, **rest}


def as_list(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    listed = [bare(item) for item in items]
    return {"apiVersion": "v1", "kind": "List", "items": listed, "metadata": {"resourceVersion": ""}}


def text(body: dict[str, Any], form: Form) -> str:
    if form == "json":
        return json.dumps(body, indent=4)
    return yaml.safe_dump(body, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120).rstrip("\n")
