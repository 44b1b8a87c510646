"""A cluster without server, scheduler and kubelet: a registry in memory, and the controllers under test at work on it.

    async def scene(stage: Stage) -> None:
        await stage.create("batch/v1/jobs", a_job())
        await stage.until(lambda: stage.pods("default"))

    stage.play(scene, lambda registry, now: [JobKeeper(registry, now=now)])

Time is virtual, so `until` may wait for hours and `passes` lets them go by. What a kubelet would write, tests write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.storage.store import ALL, Store
from trainmaster.objects.meta import mutable
from trainmaster.testing import clock

T = TypeVar("T")

PATIENCE = 4 * 3600.0
"""Virtual seconds that `until` waits."""


class Controller(Protocol):
    async def run(self) -> None: ...


Cast = Callable[[Registry, Callable[[], float]], Iterable[Controller]]
"""From a registry and a clock, whoever is to be at work."""


class Stage:
    """Objects are addressed by path, `v1/pods` or `batch/v1/jobs`, and key, `namespace/name` or `name`."""

    def __init__(self, registry: Registry, now: Callable[[], float]) -> None:
        self.registry = registry
        self.now = now

    def kind(self, path: str) -> Kind:
        group, version, plural = ("/" + path).rsplit("/", 2)
        kind = self.registry.kinds.lookup(group.lstrip("/"), version, plural)
        assert kind is not None, f"{path} is not served"
        return kind

    async def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        namespaced = self.kind(path).namespaced
        namespace = obj["metadata"].get("namespace", "default") if namespaced else ""
        return await self.registry.create(self.kind(path), namespace, mutable(obj))

    def get(self, path: str, key: str) -> dict[str, Any] | None:
        entry = self.registry.store.get(self.kind(path).prefix, key)
        return entry.value if entry is not None else None

    def all(self, path: str, namespace: str = "") -> list[dict[str, Any]]:
        return [entry.value for entry in self.registry.store.list(self.kind(path).prefix, namespace)]

    def names(self, path: str, namespace: str = "") -> list[str]:
        return [obj["metadata"]["name"] for obj in self.all(path, namespace)]

    async def change(self, path: str, key: str, subresource: str = "", **parts: Any) -> dict[str, Any]:
        """Lays mappings over the object's top-level parts: `change("v1/pods", "default/a", "status", status={…})`."""
        obj = mutable(self.get(path, key) or {})
        for name, part in parts.items():
            obj[name] = {**(obj.get(name) or {}), **part} if isinstance(part, Mapping) else part
        namespace, _, name = key.rpartition("/")
        changed, _ = await self.registry.update(self.kind(path), namespace, name, obj, subresource=subresource)
        return changed

    async def delete(self, path: str, key: str, **options: Any) -> None:
        namespace, _, name = key.rpartition("/")
        await self.registry.delete(self.kind(path), namespace, name, options)

    async def until(self, holds: Callable[[], T | None]) -> T:
        """What `holds` returns once that is true; asked again after every change."""
        watch = self.registry.store.watch(ALL, self.registry.store.revision)
        try:
            async with asyncio.timeout(PATIENCE):
                while not (value := holds()):
                    await anext(watch)
        finally:
            watch.close()
        return value

    async def passes(self, seconds: float) -> None:
        """Time, for what must not happen meanwhile."""
        await asyncio.sleep(seconds)


def play(scene: Callable[[Stage], Awaitable[None]], cast: Cast) -> None:
    """Runs the scene on a fresh stage, in virtual time."""

    async def main() -> None:
        now = clock.Clock().now
        async with aclosing(_Closing(await Store.open(None))) as closing:
            registry = Registry(closing.store, now=now)
            await registry.start()
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(controller.run(), name=type(controller).__name__)
                    for controller in cast(registry, now)
                ]
                await scene(Stage(registry, now))
                for task in tasks:
                    task.cancel()

    clock.run(main())


class _Closing:
    """A store closes by `close`, not by `aclose`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def aclose(self) -> None:
        await self.store.close()
