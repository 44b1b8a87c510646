"""Kubernetes events of controllers: what happened to an object, for `kubectl describe`. Repetitions only count up."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.cluster.controllers.control import Registry
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects import timestamp

_log = logging.getLogger(__name__)


def event(
    obj: Mapping[str, Any], reason: str, message: str, *, warning: bool, source: str, now: float
) -> dict[str, Any]:
    """Named after what it says, so that the same thing said again is the same object."""
    metadata = obj["metadata"]
    identity = "\0".join((metadata["uid"], reason, message))
    moment = timestamp.render(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
            "namespace": metadata.get("namespace") or "default",
        },
        "involvedObject": {
            "apiVersion": obj.get("apiVersion", ""),
            "kind": obj.get("kind", ""),
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


class Recorder:
    """Writes events of one component. An event that cannot be written stops nobody's work."""

    def __init__(self, registry: Registry, source: str, *, now: Callable[[], float]) -> None:
        self._registry = registry
        self._source = source
        self._now = now

    async def record(self, obj: Mapping[str, Any], reason: str, message: str, *, warning: bool = False) -> None:
        kind = self._registry.kinds.lookup("", "v1", "events")
        assert kind is not None, "events are always served"
        new = event(obj, reason, message, warning=warning, source=self._source, now=self._now())
        namespace, name = new["metadata"]["namespace"], new["metadata"]["name"]
        try:
            try:
                known = self._registry.get(kind, namespace, name).value
            except ApiError:
                await self._registry.create(kind, namespace, new)
                return
            again = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": new["lastTimestamp"]}
            await self._registry.update(kind, namespace, name, again)
        except ApiError as error:
            _log.debug("event not written", extra={"fields": {"reason": reason, "error": error.message}})
