"""Where a request's path points: group, version, namespace, resource, name and subresource.

Read by hand and not by a router: kinds come and go with their CustomResourceDefinitions, and every request passes here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Target(NamedTuple):
    """A resource path in its parts; what is absent is empty. Without a plural it is the group and version itself."""

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    is_watch: bool = False


@lru_cache(maxsize=8192)
def parse(path: str) -> Target | None:
    """None for a path outside /api/VERSION and /apis/GROUP/VERSION, or with empty parts in the middle."""
    parts = path.strip("/").split("/")
    if "" in parts:
        return None
    if parts[0] == "api" and len(parts) >= 2:
        return _within("", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) >= 3:
        return _within(parts[1], parts[2], parts[3:])
    return None


def _within(group: str, version: str, rest: list[str]) -> Target | None:
    is_watch = rest[:1] == ["watch"]
    if is_watch:  # the way to ask before `?watch=true`, still in use
        rest = rest[1:]
    namespace = ""
    # /namespaces/NAME is the namespace itself, /namespaces/NAME/pods lies within it
    if len(rest) > 2 and rest[0] == "namespaces" and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "", "")[:3]
    return Target(group, version, namespace, plural, name, subresource, is_watch)
