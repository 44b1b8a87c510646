"""Strategic merge patch: JSON merge that knows which lists are keyed, for Kubernetes' own kinds.

The keys come with the kinds' shapes (`x-kubernetes-patch-merge-key` and `-strategy` in the Kubernetes API
definitions, Apache-2.0; see `definitions`). Directives inside the patch: `$patch: delete|replace|merge`,
`$retainKeys`, `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`.
"""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.registry.schema import ANY, Shape
from trainmaster.cluster.registry.status_error import ApiError, bad_request

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def merge(shape: Shape, document: Any, patch: dict[str, Any]) -> Any:
    """The document after the patch; both may be changed."""
    if not isinstance(document, dict):
        document = {}
    directive = patch.pop(_PATCH, None)
    if directive == "replace":
        return _plain(patch)
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type {directive!r} found: {patch!r}".replace("'", '"'))
    retained = patch.pop(_RETAIN, None)
    orders = _taken(patch, _ORDER)
    deletions = _taken(patch, _DELETE_FROM)
    for key, value in patch.items():
        _merge_field(shape.child(key) or ANY, document, key, value)
    for key, gone in deletions.items():
        if isinstance(document.get(key), list):
            document[key] = [item for item in document[key] if item not in _as_list(gone, key)]
    for key, order in orders.items():
        if isinstance(document.get(key), list):
            child = shape.child(key) or ANY
            known = [_rank(child, item) for item in document[key]]
            document[key] = _ordered(child, document[key], _as_list(order, key), known)
    if isinstance(retained, list):
        return {key: value for key, value in document.items() if key in retained}
    return document


def _taken(patch: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): patch.pop(key) for key in list(patch) if key.startswith(prefix)}


def _as_list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"expected a list in the directive for {key}")
    return value


def _merge_field(shape: Shape, document: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        document.pop(key, None)
    elif isinstance(value, dict):
        _merge_object(shape, document, key, value)
    elif isinstance(value, list) and "merge" in shape.strategies:
        document[key] = _merge_list(shape, document.get(key) or [], value, key)
    else:
        document[key] = _plain(value)


def _merge_object(shape: Shape, document: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    if value.get(_PATCH) == "delete":
        document.pop(key, None)
    elif "replace" in shape.strategies and "retainKeys" not in shape.strategies:
        document[key] = _plain(value)
    else:
        document[key] = merge(shape, document.get(key), value)


def _merge_list(shape: Shape, found: Any, patch: list[Any], key: str) -> list[Any]:
    live: list[Any] = found if isinstance(found, list) else []
    items = shape.items or ANY
    if not shape.merge_key or not all(isinstance(item, dict) for item in patch):
        return [*live, *(item for item in patch if item not in live)]
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get(_PATCH) != "replace" or len(item) > 1]
    known = [_rank(shape, item) for item in live]
    for item in patch:
        live = _merge_item(items, live, item, shape.merge_key, key)
    return _ordered(shape, live, patch, known)


def _merge_item(shape: Shape, live: list[Any], item: dict[str, Any], merge_key: str, field: str) -> list[Any]:
    if merge_key not in item:
        raise _missing_key(item, merge_key)
    wanted = item[merge_key]
    if item.get(_PATCH) == "delete":
        return [each for each in live if not _is_item(each, merge_key, wanted)]
    for index, each in enumerate(live):
        if _is_item(each, merge_key, wanted):
            return [*live[:index], merge(shape, each, item), *live[index + 1 :]]
    return [*live, _plain(item)]


def _is_item(value: Any, merge_key: str, wanted: Any) -> bool:
    return isinstance(value, dict) and value.get(merge_key) == wanted


def _missing_key(item: dict[str, Any], merge_key: str) -> ApiError:
    listed = " ".join(f"{key}:{value}" for key, value in sorted(item.items()))
    return bad_request(f"map: map[{listed}] does not contain declared merge key: {merge_key}")


def _rank(shape: Shape, item: Any) -> Any:
    return item.get(shape.merge_key) if shape.merge_key and isinstance(item, dict) else item


def _ordered(shape: Shape, items: list[Any], order: list[Any], known: list[Any]) -> list[Any]:
    """Items in the order the client gives them; those it does not name stay before what they used to precede."""
    wanted = [_rank(shape, item) for item in order]
    named = sorted((i for i in items if _rank(shape, i) in wanted), key=lambda item: wanted.index(_rank(shape, item)))
    unnamed = [item for item in items if _rank(shape, item) not in wanted]
    made: list[Any] = []
    for item in named:
        place = known.index(_rank(shape, item)) if _rank(shape, item) in known else -1
        while unnamed and known.index(_rank(shape, unnamed[0])) < place:
            made.append(unnamed.pop(0))
        made.append(item)
    return [*made, *unnamed]


def _plain(value: Any) -> Any:
    """A value that is new to the document: directives in it are obeyed and dropped, nulls are absent."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not _is_directive(key) and item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and item.get(_PATCH) == "delete")]
    return value


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN) or key.startswith((_DELETE_FROM, _ORDER))
