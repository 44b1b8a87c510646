from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.schema import ANY, Shape
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import Store
from trainmaster.testing import clock

TEXT = st.sampled_from(
    ["", "a", "x.io/y", "1Gi", "Always", "-1", "10.96.1.1", "2020-01-01T00:00:00Z", "\u00e9 b", "None"]
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-1, 70_000), st.sampled_from([2**40, 0.5, 1.0]), TEXT)
TYPES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)


@st.composite
def like(draw: st.DrawFn, shape: Shape, depth: int = 7) -> Any:
    """A value that is mostly of this shape, and now and then of another."""
    if depth == 0 or draw(st.integers(0, 11)) == 0:
        return draw(SCALAR)
    if shape.type in ("list", "schema") and shape.items is not None:
        return draw(st.lists(like(shape.items, depth - 1), max_size=2))
    if shape.type == "map" or shape.open:
        return draw(st.dictionaries(TEXT, like(shape.values or ANY, depth - 1), max_size=2))
    if shape.fields:
        names = draw(st.lists(st.sampled_from(sorted(shape.fields)), unique=True, max_size=5))
        return {name: draw(like(shape.fields[name], depth - 1)) for name in {*names, *sorted(shape.always)}}
    return draw(SCALAR)


@st.composite
def an_object(draw: st.DrawFn, kind: Kind) -> Any:
    fields = {
        name: shape for name, shape in kind.shape.fields.items() if name not in ("apiVersion", "kind", "metadata")
    }
    made = {name: draw(like(shape)) for name, shape in fields.items() if draw(st.booleans())}
    extra = draw(like(kind.shape.fields["metadata"], 3)) if draw(st.integers(0, 3)) == 0 else {}
    metadata = {"name": "x", **extra} if isinstance(extra, dict) else extra
    return {"apiVersion": kind.api_version, "kind": kind.kind, **made, "metadata": metadata}


async def attempt(registry: Registry, kind: Kind, obj: Any, patch: Any, type_: str) -> list[int]:
    """What a client would do with such an object, whatever comes of it; the statuses of the refusals."""
    space = "default" if kind.namespaced else ""
    body = msgspec.json.encode(patch)
    refused: list[int] = []
    for action in (
        lambda: registry.create(kind, space, obj, manager="fuzz"),
        lambda: registry.update(kind, space, "x", patch, manager="fuzz"),
        lambda: registry.update(kind, space, "x", patch, subresource="status"),
        lambda: registry.patch(kind, space, "x", body, type_, manager="fuzz", force=True),
        lambda: registry.patch(kind, space, "x", body, "application/merge-patch+json", subresource="status"),
        lambda: registry.delete(kind, space, "x", patch),
        lambda: registry.delete(kind, space, "x", {}),
    ):
        try:
            await action()
        except ApiError as error:
            refused.append(error.status)
            msgspec.json.encode(error.body())
    return refused


@pytest.mark.parametrize(
    "kind", [kind for kind in BUILTIN if "get" in kind.verbs], ids=lambda kind: kind.api_version + kind.plural
)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_a_client_sends_is_stored_or_refused_but_never_breaks_the_server(
    kind: Kind, data: st.DataObject
) -> None:
    obj, patch = data.draw(an_object(kind)), data.draw(an_object(kind))
    type_ = data.draw(st.sampled_from(TYPES))

    async def use() -> list[int]:
        store = await Store.open(None)
        registry = Registry(store, now=clock.Clock().now)
        await registry.start()
        return await attempt(registry, kind, obj, patch, type_)

    assert all(status < 500 for status in clock.run(use()))
