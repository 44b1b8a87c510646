"""What the kubelet needs from the rest of the cluster, and the delays it keeps; tests bring a small world."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from trainmaster.objects.meta import Json


@dataclass(frozen=True, slots=True)
class Seen:
    """One change. SYNCED comes once, after everything that was there at the start; its object is empty."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: Json


class PodApi(Protocol):
    """The API server as the kubelet sees it. Nothing here raises for an object that is gone."""

    def watch(self, kind: str) -> AsyncIterator[Seen]:
        """Every "Pod", "Service", "ConfigMap" or "Secret" of the cluster: what there is as ADDED, SYNCED, then changes.

        It may end when it cannot go on, such as for a watch that fell behind; the kubelet then begins again.
        """

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """A ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume or Node, or None."""

    async def update_status(self, pod: Json, status: Json) -> None:
        """Replaces the status of this very pod (by uid); nothing happens if it is gone."""

    async def delete(self, pod: Json) -> None:
        """Removes this very pod (by uid) now: its processes have ended."""

    async def event(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        """Told about the pod, or one of its containers."""


class Reporter:
    """Another's API, until it is silenced: from then on it can be read, and whatever is written to it is dropped."""

    def __init__(self, api: PodApi) -> None:
        self._api = api
        self._is_silent = False

    def silence(self) -> None:
        self._is_silent = True

    def watch(self, kind: str) -> AsyncIterator[Seen]:
        return self._api.watch(kind)

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return await self._api.get(kind, namespace, name)

    async def update_status(self, pod: Json, status: Json) -> None:
        if not self._is_silent:
            await self._api.update_status(pod, status)

    async def delete(self, pod: Json) -> None:
        if not self._is_silent:
            await self._api.delete(pod)

    async def event(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        if not self._is_silent:
            await self._api.event(pod, kind, reason, message, container)


async def follow(api: PodApi, kind: str) -> AsyncIterator[Seen]:
    """A watch without end: where one ends and the next begins, what has gone in between is told as DELETED."""
    held: dict[str, Json] = {}
    while True:
        listed: dict[str, Json] | None = {}
        async for seen in api.watch(kind):
            if seen.type == "SYNCED":
                for uid in [uid for uid in held if uid not in (listed or {})]:
                    yield Seen("DELETED", held.pop(uid))
                listed = None
            else:
                uid = seen.object["metadata"]["uid"]
                if seen.type == "DELETED":
                    held.pop(uid, None)
                else:
                    held[uid] = seen.object
                    if listed is not None:
                        listed[uid] = seen.object
            yield seen


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The defaults are Kubernetes' own where it has them."""

    back_off: float = 10.0  # before the second restart, doubled from one to the next
    back_off_max: float = 300.0
    back_off_reset: float = 600.0  # a container that ran this long starts with a clean slate
    retry: float = 2.0  # for what is missing: a config map, a claim, a sandbox
    coalesce: float = 0.01  # status changes this close together are one write
    helper_back_off: float = 1.0  # before the second helper in a row, doubled from one to the next
    helper_back_off_max: float = 30.0
    helper_back_off_reset: float = 60.0  # a helper that lived this long was well
    log_retention: float = 3600.0  # how long a pod's logs outlive it
