"""pods/binding: puts a pod on a node. The one part of a pod's spec that nobody can change otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry import definitions, subresources
from trainmaster.cluster.registry.decoding import part_of
from trainmaster.cluster.registry.status_error import bad_request
from trainmaster.cluster.registry.writing import PODS, Object, Writer
from trainmaster.cluster.storage.store import Stale
from trainmaster.objects.meta import mutable

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def check_named(asked: Mapping[str, Any], name: str, kind: str) -> None:
    """Of two names, that of the address counts, but nobody means two pods at once."""
    given = (asked.get("metadata") or {}).get("name") or name
    if given != name:
        raise bad_request(f"name in URL does not match name in {kind} object")


async def bind(writer: Writer, namespace: str, name: str, binding: Mapping[str, Any], *, dry_run: bool) -> Object:
    asked = part_of(definitions.shape("", "v1", "Binding"), binding, "Binding")
    check_named(asked, name, "Binding")
    while True:
        entry = writer.existing(PODS, namespace, name)
        pod = subresources.bound(PODS, mutable(entry.value), asked, writer.now())
        if dry_run:
            return dict(SUCCESS)
        try:
            await writer.store.put(PODS.prefix, entry.key, pod, expect=entry.revision)
        except Stale:
            continue
        return dict(SUCCESS)
