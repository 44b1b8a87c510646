"""Sets of fields, as `managedFields` writes them (FieldsV1), and what one can do with them.

A set is a tree of path elements: `f:name` a field, `k:{"name":"a"}` an item of a keyed list, `v:"x"` an item of a
set. An element without children is itself a member; with children, it is one only if they include `.`. Trees are
never changed in place: every function returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from trainmaster.cluster.registry.schema import ANY, MISSING, Shape

FieldSet: TypeAlias = dict[str, Any]
SELF = "."
_IMPLIED_KEYS = {"protocol": "TCP"}
"""Ports are keyed by number and protocol, and nobody writes the protocol."""


_LEAF: FieldSet = {}
_MEMBER: FieldSet = {SELF: {}}
_UNSAFE = frozenset('"\\')


def is_granular_map(shape: Shape, value: Any) -> bool:
    return isinstance(value, dict) and not shape.atomic


def is_granular_list(shape: Shape, value: Any) -> bool:
    return isinstance(value, list) and shape.list_type != "atomic"


def element_of(shape: Shape, item: Any) -> str:
    """The path element of an item of a keyed list or of a set."""
    if shape.list_type == "set" or not isinstance(item, dict):
        return f"v:{msgspec.json.encode(item).decode()}"
    if len(shape.keys) == 1:
        name = shape.keys[0]
        text = item.get(name)
        if isinstance(text, str) and text.isascii() and text.isprintable() and _UNSAFE.isdisjoint(text):
            return f'k:{{"{name}":"{text}"}}'  # by far the most common case, without the encoder
    items = shape.items or ANY
    key = {name: _key_value(items, item, name) for name in sorted(shape.keys)}
    return f"k:{msgspec.json.encode(key).decode()}"


def _key_value(items: Shape, item: Mapping[str, Any], name: str) -> Any:
    if name in item:
        return item[name]
    field = items.fields.get(name)
    if field is not None and field.default is not MISSING:
        return field.default
    return _IMPLIED_KEYS.get(name)


def of_value(shape: Shape, value: Any, *, is_new: bool) -> FieldSet:
    """All fields below a value. `is_new` also counts the objects on the way: they did not exist before."""
    made: FieldSet = {}
    if is_granular_map(shape, value):
        fields = shape.fields
        for key, item in value.items():
            if not isinstance(item, dict | list) or not item:
                made[f"f:{key}"] = _LEAF
            else:
                is_member = (is_new or key not in fields) and key not in shape.always
                child = fields.get(key) or shape.values or ANY
                made[f"f:{key}"] = _below(child, item, is_new=is_new, is_member=is_member)
    elif is_granular_list(shape, value):
        child = shape.items or ANY
        for item in value:
            made[element_of(shape, item)] = _below(child, item, is_new=is_new, is_member=True)
    return made


def _below(shape: Shape, value: Any, *, is_new: bool, is_member: bool) -> FieldSet:
    if isinstance(value, dict) and not shape.atomic and _is_flat(value):
        return _flat(tuple(value), is_member)
    below = of_value(shape, value, is_new=is_new)
    if below and is_member:
        below[SELF] = _LEAF
    return below


def _is_flat(value: dict[str, Any]) -> bool:
    for item in value.values():  # noqa: SIM110 - twice as fast as any() with a generator, and called per env variable
        if isinstance(item, dict | list) and item:
            return False
    return True


@lru_cache(maxsize=2048)
def _flat(keys: tuple[str, ...], is_member: bool) -> FieldSet:
    """The fields of an object without objects in it. Shared: most have the same few sets of keys."""
    made = {f"f:{key}": _LEAF for key in keys}
    return {**made, SELF: _LEAF} if made and is_member else made


def changed(shape: Shape, new: Any, old: Any) -> tuple[FieldSet, FieldSet]:
    """The fields that were added or got another value, and those that are gone."""
    if is_granular_map(shape, new) and isinstance(old, dict):
        return _changed_children(
            {
                f"f:{key}": (shape.child(key) or ANY, new.get(key, MISSING), old.get(key, MISSING))
                for key in {**new, **old}
                if key not in new or key not in old or new[key] != old[key]
            }
        )
    if is_granular_list(shape, new) and isinstance(old, list):
        items = shape.items or ANY
        after = {element_of(shape, item): item for item in new}
        before = {element_of(shape, item): item for item in old}
        return _changed_children(
            {
                name: (items, after.get(name, MISSING), before.get(name, MISSING))
                for name in {**after, **before}
                if name not in after or name not in before or after[name] != before[name]
            }
        )
    return {}, {}


def _changed_children(pairs: Mapping[str, tuple[Shape, Any, Any]]) -> tuple[FieldSet, FieldSet]:
    written: FieldSet = {}
    gone: FieldSet = {}
    for name, (shape, new, old) in pairs.items():
        if new is MISSING:
            gone[name] = with_self(of_value(shape, old, is_new=True))
        elif old is MISSING:
            written[name] = with_self(of_value(shape, new, is_new=True))
        else:
            inner_written, inner_gone = changed(shape, new, old)
            if inner_written or not inner_gone:
                written[name] = inner_written
            if inner_gone:
                gone[name] = inner_gone
    return written, gone


def with_self(fields: FieldSet) -> FieldSet:
    return {**fields, SELF: {}} if fields else fields


def _explicit(fields: FieldSet) -> FieldSet:
    """A member without children, with its membership written out."""
    return fields or _MEMBER


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    made = dict(left)
    for name, below in right.items():
        if name not in made:
            made[name] = below
        elif below != made[name]:
            made[name] = union(_explicit(made[name]), _explicit(below))
    return made


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in the left set only. Fields below a removed one stay, unless they are listed too."""
    made: FieldSet = {}
    for name, below in left.items():
        if name not in right:
            made[name] = below
        elif name != SELF and (rest := difference(_explicit(below), _explicit(right[name]))):
            made[name] = _LEAF if rest == _MEMBER else rest
    return made


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    made: FieldSet = {}
    for name, below in left.items():
        if name not in right:
            continue
        if name == SELF:
            made[name] = _LEAF
        elif both := intersection(_explicit(below), _explicit(right[name])):
            made[name] = _LEAF if both == _MEMBER else both
    return made


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Members, as people read them: `.spec.containers[name="a"].image`."""
    for name, below in sorted(fields.items()):
        if name == SELF:
            yield prefix
        elif below:
            yield from paths(below, prefix + _shown(name))
        else:
            yield prefix + _shown(name)


def _shown(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    key: dict[str, Any] = msgspec.json.decode(rest)
    return "[" + ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in key.items()) + "]"


def existing(shape: Shape, fields: FieldSet, value: Any) -> FieldSet:
    """The fields that a value really has: ownership of what others removed is void."""
    made: FieldSet = {}
    present = _children(shape, value)
    for name, below in fields.items():
        if name == SELF:
            made[name] = below
        elif name in present:
            inner_shape, inner = present[name]
            kept = existing(inner_shape, below, inner)
            if kept or not below:
                made[name] = _LEAF if kept == _MEMBER else kept
    return made


def _children(shape: Shape, value: Any) -> dict[str, tuple[Shape, Any]]:
    if isinstance(value, dict):
        return {f"f:{key}": (shape.child(key) or ANY, item) for key, item in value.items()}
    if is_granular_list(shape, value):
        return {element_of(shape, item): (shape.items or ANY, item) for item in value}
    return {}
