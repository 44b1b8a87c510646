"""Some small jobs of one kind, for tests that are about the operator rather than about kinds."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.kubernetes.mirror import Json, Mirror, Node, insist

from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.jobs import a_small

KIND = "JAXJob"
WORKERS = 2


class Fleet:
    """Called by a word each; `sort` tells the jobs of one test from another's."""

    def __init__(self, mirror: Mirror, node: Node, sort: str) -> None:
        self._mirror, self._node, self._sort = mirror, node, sort
        self.resource = a_small(KIND).framework.resource

    def name(self, word: str) -> str:
        return f"{self._sort}-{word}"

    async def submit(self, *words: str, **policy: Any) -> None:
        for word in words:
            self._mirror.track(self.name(word))
            metadata = {"name": self.name(word), "namespace": "default"}
            body = {**a_small(KIND, self.name(word), "ExitCode").policy(**policy).manifest, "metadata": metadata}
            await insist(partial(self._mirror.client.create, self.resource, body))

    async def running(self, *words: str) -> None:
        """With both workers, as their status knows too, and their Services."""
        for word in words:
            await self._mirror.until(self.name(word), partial(self._is_running, word), "running")

    async def replaced(self, word: str, old: str) -> None:
        """Its second worker is another than it was, and runs. Its status alone may still be of the time before."""
        await self._mirror.until(self.name(word), partial(self._is_replaced, word, old), "another worker")

    async def lose_worker(self, word: str) -> None:
        """Of a signal: it is to be replaced."""
        pod = self._mirror.get(PODS, f"{self.name(word)}-worker-1")
        assert pod is not None
        await self._node.end(pod, 137)

    async def touch(self, *words: str) -> None:
        """Has the operator look at them."""
        for word in words:
            body = {"metadata": {"annotations": {"touched": "true"}}}
            await insist(partial(self._mirror.client.patch, self.resource, self.name(word), body, "default"))

    async def recovered(self, *words: str) -> None:
        """Running again, with one restart on record."""
        for word in words:
            await self._mirror.until(self.name(word), partial(self._is_recovered, word), "a new worker")

    async def succeed(self, *words: str) -> None:
        for word in words:
            for pod in self._mirror.named(PODS, self.name(word)).values():
                await self._node.end(pod, 0)
        await self.ended("Succeeded", *words)

    async def ended(self, condition: str, *words: str) -> None:
        for word in words:
            await self._mirror.until(self.name(word), partial(self._is_at, word, condition), f"being {condition}")

    async def delete(self, *words: str) -> None:
        for word in words:
            await insist(partial(self._mirror.client.delete, self.resource, self.name(word), "default"))
        await self.gone(*words)

    async def gone(self, *words: str) -> None:
        """And all that they owned: the garbage collector sees to that."""
        for word in words:
            await self._mirror.until(self.name(word), partial(self._is_gone, word), "being gone")

    def uids(self, word: str) -> dict[str, str]:
        """Of its pods."""
        return {name: pod["metadata"]["uid"] for name, pod in self._mirror.named(PODS, self.name(word)).items()}

    def status(self, word: str) -> Json:
        status: Json = (self._mirror.get(self.resource, self.name(word)) or {}).get("status") or {}
        return status

    def last_condition(self, word: str) -> str:
        conditions = self.status(word).get("conditions") or [{}]
        return str(conditions[-1].get("type", ""))

    def _is_at(self, word: str, condition: str) -> bool:
        return self.last_condition(word) == condition

    def _is_gone(self, word: str) -> bool:
        return not any(self._mirror.named(one, self.name(word)) for one in (self.resource, PODS, SERVICES))

    def _is_recovered(self, word: str) -> bool:
        is_counted = self.status(word).get("attempts") == {"worker-1": 1}
        return is_counted and self._is_running(word)

    def _is_replaced(self, word: str, old: str) -> bool:
        return self.uids(word).get("-worker-1", old) != old and self._is_running(word)

    def _is_running(self, word: str) -> bool:
        active = self.status(word).get("replicaStatuses", {}).get("Worker", {}).get("active", 0)
        pods, services = (self._mirror.named(resource, self.name(word)) for resource in (PODS, SERVICES))
        phases = [pod["status"].get("phase") for pod in pods.values()]
        is_whole = phases == ["Running"] * WORKERS and active == len(services) == WORKERS
        return is_whole and self.last_condition(word) == "Running"
