"""The forms other than the object itself that a client may ask for: Table rows, and metadata only.

kubectl asks for a Table and prints it as it comes, so the columns are the server's business: of built-in kinds from
`table_layout`, of custom resources from their CRD's `additionalPrinterColumns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from trainmaster.cluster.registry.kinds import Column, Kind
from trainmaster.cluster.server import age, jsonpath
from trainmaster.cluster.server.table_layout import LAYOUTS, NAME_AND_AGE, NAME_AND_TIME, definition
from trainmaster.objects.meta import Json

_META = "meta.k8s.io"


def table(
    kind: Kind, items: Iterable[Json], *, now: float, metadata: Json, version: str = "v1", include: str = "Metadata"
) -> dict[str, Any]:
    """A Table with a row per item. `include` is how much of the object rides along: None, Metadata or Object."""
    columns, cells = _columns(kind)
    api_version = f"{_META}/{version}"
    rows = [{"cells": cells(item, now), **_ride_along(item, include, api_version)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }


def _ride_along(item: Json, include: str, api_version: str) -> dict[str, Any]:
    if include == "None":
        return {}
    return {"object": item if include == "Object" else partial(item, api_version=api_version)}


def partial(item: Json, *, api_version: str = f"{_META}/v1") -> dict[str, Any]:
    """The object's metadata without the object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": item["metadata"]}


def partial_list(items: Iterable[Json], metadata: Json, *, version: str = "v1") -> dict[str, Any]:
    api_version = f"{_META}/{version}"
    parts = [partial(item, api_version=api_version) for item in items]
    return {"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": parts}


def _columns(kind: Kind) -> tuple[list[dict[str, Any]], Callable[[Json, float], list[Any]]]:
    if not kind.custom:
        layout = LAYOUTS.get((kind.group, kind.plural), NAME_AND_TIME)
        return layout.definitions(), layout.make
    if not kind.columns:
        return NAME_AND_AGE.definitions(), NAME_AND_AGE.make
    shown = [definition("Name"), *(_custom_definition(column) for column in kind.columns)]
    return shown, lambda item, now: [item["metadata"].get("name", ""), *(_cell(c, item, now) for c in kind.columns)]


def _custom_definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(column: Column, item: Json, now: float) -> Any:
    """A value of the column's type; null where the object has none, which kubectl leaves blank."""
    found = jsonpath.find(column.json_path, item)
    if not found or found[0] is None:
        return None
    value = found[0]
    if column.type == "string":
        return " ".join(_shown(each) for each in found)
    if column.type == "date":
        return age.since(value, now) if isinstance(value, str) else None
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if column.type == "integer" else value


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else jsonpath.text(value)
