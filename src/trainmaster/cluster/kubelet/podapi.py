"""The API server as the kubelet sees it: a few verbs over the registry, none of which minds that an object is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal

from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.kubelet.kubelet_api import Seen
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects.meta import Json

PLURALS = {
    "Pod": "pods",
    "Service": "services",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "Node": "nodes",
}


class RegistryPodApi:
    """Implements `kubelet_api.PodApi`."""

    def __init__(self, registry: Registry, *, now: Callable[[], float]) -> None:
        self._registry = registry
        self._recorder = Recorder(registry, "kubelet", now=now)

    async def watch(self, kind: str) -> AsyncIterator[Seen]:
        served = self._kind(kind)
        listing = self._registry.list(served)
        for entry in listing.items:
            yield Seen("ADDED", entry.value)
        yield Seen("SYNCED", {})
        stream = self._registry.watch(served, after=listing.revision)
        try:
            async for event in stream:
                match event.type:
                    case "ADDED" | "MODIFIED" | "DELETED":
                        yield Seen(event.type, event.value)
        except ApiError:
            return  # too slow for the history: the kubelet begins anew with a list
        finally:
            stream.close()

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        try:
            return self._registry.get(self._kind(kind), namespace, name).value
        except ApiError:
            return None

    async def update_status(self, pod: Json, status: Json) -> None:
        """Somebody else's change in between is no conflict: the kubelet alone writes a pod's status."""
        kind, metadata = self._kind("Pod"), pod["metadata"]
        while (current := await self.get("Pod", metadata["namespace"], metadata["name"])) is not None:
            if current["metadata"]["uid"] != metadata["uid"]:
                return
            try:
                await self._registry.update(
                    kind, metadata["namespace"], metadata["name"], {**current, "status": status}, subresource="status"
                )
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            else:
                return

    async def delete(self, pod: Json) -> None:
        metadata = pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._registry.delete(self._kind("Pod"), metadata["namespace"], metadata["name"], options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def event(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        await self._recorder.record(pod, reason, message, warning=kind == "Warning")

    def _kind(self, name: str) -> Kind:
        found = self._registry.kinds.lookup("", "v1", PLURALS[name])
        assert found is not None, f"{name} is always served"
        return found
