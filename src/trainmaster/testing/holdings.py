"""What a cluster holds of an object, in the types in which the operator's caches keep it, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from trainmaster.objects.meta import FiledObject, Json, Object

FILED = ("ConfigMap", "Role", "RoleBinding")


def stored(kind: str, body: Json) -> Object:
    return msgspec.json.decode(msgspec.json.encode(body), type=FiledObject if kind in FILED else Object)


def written(held: Object) -> dict[str, Any]:
    """The whole of it; parts that it has not are left out."""
    filed = {part: held.part(part) for part in ("data", "rules", "subjects")} if isinstance(held, FiledObject) else {}
    parts = {"spec": held.at("spec"), "status": held.at("status"), **filed}
    present = {part: value for part, value in parts.items() if value is not None}
    return {"metadata": msgspec.to_builtins(held.metadata), **present}
