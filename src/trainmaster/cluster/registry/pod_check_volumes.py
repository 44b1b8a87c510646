"""Whether a pod's volumes and their mounts make sense, in Kubernetes' words.

A path that leaves its volume is refused here, so that its author hears of it at once. The kubelet does not rely on
that: it opens files only below the volume's own directory (`kubelet/beneath.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry import status_error as error
from trainmaster.cluster.registry.status_error import Cause, invalid_value, required
from trainmaster.cluster.registry.validation import label_problems

_BAD_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_NEEDS = (
    ("hostPath", "path"),
    ("persistentVolumeClaim", "claimName"),
    ("secret", "secretName"),
    ("configMap", "name"),
)


def check_volumes(volumes: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name") or ""
        sources = [key for key in volume if key != "name"]
        yield from (
            error.forbidden_field(f"{at}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]
        )
        yield from check_name(name, at, seen)
        yield from _source(volume, at)


def check_name(name: str, at: str, seen: set[str]) -> Iterator[Cause]:
    """Of a volume or a container: a label that is not one of those seen, to which it is added."""
    if not name:
        yield required(f"{at}.name")
    elif problems := label_problems(name):
        yield from (invalid_value(f"{at}.name", name, problem) for problem in problems)
    elif name in seen:
        yield error.duplicate(f"{at}.name", name)
    seen.add(name)


def check_mounts(mounts: list[Mapping[str, Any]], path: str, volumes: frozenset[Any]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, where = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{at}.name")
        if name not in volumes:
            yield error.not_found_value(f"{at}.name", name)
        if not where:
            yield required(f"{at}.mountPath")
        if where in seen:
            yield invalid_value(f"{at}.mountPath", where, "must be unique")
        seen.add(where)
        yield from _sub_paths(mount, at)


def _sub_paths(mount: Mapping[str, Any], at: str) -> Iterator[Cause]:
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    yield from _descending(sub_path, f"{at}.subPath")
    if sub_path and expression:
        detail = "subPathExpr and subPath are mutually exclusive"
        yield invalid_value(f"{at}.subPathExpr", expression, detail)
    yield from _descending(expression, f"{at}.subPathExpr")


def _descending(path: str, at: str) -> Iterator[Cause]:
    if path.startswith("/"):
        yield invalid_value(at, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid_value(at, path, "must not contain '..'")


def _file_path(path: str, at: str) -> Iterator[Cause]:
    """Names that begin with two dots are the kubelet's own: it replaces the files of a volume by means of them."""
    yield from _descending(path, at)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid_value(at, path, "must not start with '..'")


def _mode(owner: Mapping[str, Any], key: str, at: str) -> Iterator[Cause]:
    mode = owner.get(key)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_value(f"{at}.{key}", mode, _BAD_MODE)


def _source(volume: Mapping[str, Any], at: str) -> Iterator[Cause]:
    for source, key in _NEEDS:
        if source in volume and not (volume[source] or {}).get(key):
            yield required(f"{at}.{source}.{key}")
    where = (volume.get("hostPath") or {}).get("path") or ""
    if ".." in where.split("/"):
        yield invalid_value(f"{at}.hostPath.path", where, "must not contain '..'")
    for source in ("secret", "configMap"):
        yield from _mode(volume.get(source) or {}, "defaultMode", f"{at}.{source}")
        yield from _keys(volume.get(source) or {}, f"{at}.{source}")
    yield from _downward(volume.get("downwardAPI") or {}, f"{at}.downwardAPI")
    yield from _projected(volume.get("projected") or {}, f"{at}.projected")


def _keys(source: Mapping[str, Any], at: str) -> Iterator[Cause]:
    for index, item in enumerate(source.get("items") or ()):
        place = f"{at}.items[{index}]"
        yield from (required(f"{place}.{key}") for key in ("key", "path") if not item.get(key))
        yield from _file_path(item.get("path") or "", f"{place}.path")
        yield from _mode(item, "mode", place)


def _downward(source: Mapping[str, Any], at: str) -> Iterator[Cause]:
    """The path of a problem does not name the item: neither does that of the API server."""
    yield from _mode(source, "defaultMode", at)
    for item in source.get("items") or ():
        if not item.get("path"):
            yield required(f"{at}.path")
        yield from _file_path(item.get("path") or "", f"{at}.path")
        references = [key for key in ("fieldRef", "resourceFieldRef") if item.get(key) is not None]
        if len(references) > 1:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid_value(at, "resource", detail)
        if not references:
            yield required(at, "one of fieldRef and resourceFieldRef is required")
        yield from _mode(item, "mode", at)


def _projected(volume: Mapping[str, Any], at: str) -> Iterator[Cause]:
    yield from _mode(volume, "defaultMode", at)
    seen: set[str] = set()
    for index, source in enumerate(volume.get("sources") or ()):
        place = f"{at}.sources[{index}]"
        for kind in ("secret", "configMap"):
            part = source.get(kind)
            if part is not None and not part.get("name"):
                yield required(f"{place}.{kind}.name")
            yield from _keys(part or {}, f"{place}.{kind}")
            yield from _conflicts(part or {}, (part or {}).get("name") or "", at, seen)
        part = source.get("downwardAPI") or {}
        yield from _downward(part, f"{place}.downwardAPI")
        yield from _conflicts(part, "", at, seen)
        if source.get("serviceAccountToken") is not None:
            path = source["serviceAccountToken"].get("path") or ""
            yield from _file_path(path, f"{at}.path") if path else [required(f"{at}.path")]
        if len(source) > 1:
            yield error.forbidden_field(place, "may not specify more than 1 volume type per source")


def _conflicts(source: Mapping[str, Any], name: str, at: str, seen: set[str]) -> Iterator[Cause]:
    """Two files of one path; the API server names the object that the second is made of, or else the path."""
    for item in source.get("items") or ():
        path = item.get("path") or ""
        if path and path in seen:
            yield invalid_value(at, name or path, "conflicting duplicate paths")
        seen.add(path)
