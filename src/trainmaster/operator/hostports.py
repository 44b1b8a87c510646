"""Ports for jobs whose pods share the network of their nodes: a block for each, and no two jobs have the same.

What a job was given stands in its annotation `host-port`, so it is the same after a restart of the operator, and users
can see it. A block is free again when its job has ended and none of its pods is left. Only one block is dealt out at a
time, and the answer is in the cache before the next one is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from enum import Enum

from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.status import status_of
from trainmaster.engine.actions import Event, Patch
from trainmaster.engine.plan import Plan
from trainmaster.objects.meta import Meta
from trainmaster.objects.number import number_of
from trainmaster.objects.resource import Resource
from trainmaster.operator.apply import Applier
from trainmaster.operator.observe import World

ANNOTATION = "host-port"
HIGHEST = 65535


class BadRange(ValueError):
    """Two numbers were asked for."""


class Provision(Enum):
    HAD = "had"
    DEALT = "dealt"  # the change of the job's annotation brings it back
    NONE_LEFT = "none left"


def parse_range(text: str) -> tuple[int, int]:
    """`35000,65000`, the first and the last port."""
    ports = [number_of(part.strip(), HIGHEST) for part in text.split(",")]
    match ports:
        case [int(first), int(last)] if 0 < first <= last:
            return first, last
    raise BadRange(f"--port-range {text}: must be the first and the last port, such as 35000,65000")


def free_port(ports: tuple[int, int], size: int, taken: Iterable[range]) -> int | None:
    """The first of the lowest block of this size that overlaps none of those taken."""
    first, last = ports
    for block in sorted(taken, key=lambda block: block.start):
        if block.start >= first + size:
            break
        first = max(first, block.stop)
    return first if first + size - 1 <= last else None


def port_in(meta: Meta, size: int) -> int | None:
    return number_of(meta.annotations.get(ANNOTATION, ""), HIGHEST + 1 - size) or None


class HostPorts:
    def __init__(self, world: World, frameworks: Iterable[Framework], ports: tuple[int, int]) -> None:
        self._world, self._ports = world, ports
        self._users: dict[Resource, Framework] = {
            resource: framework for framework in frameworks for resource in framework.served if framework.host_ports
        }
        self._dealing = asyncio.Lock()

    async def provide(self, framework: Framework, job: Job, applier: Applier) -> Provision:
        if not framework.wants_host_ports(job) or job.status.is_finished or job.meta.is_terminating:
            return Provision.HAD
        if self._dealt(framework, job) is None:  # a job that has its ports does not wait for one whose write hangs
            return Provision.HAD
        async with self._dealing:
            made = self._dealt(framework, job)
            if made is not None:
                await applier.apply(framework, job, made)
        if made is None:
            return Provision.HAD
        return Provision.DEALT if made.actions else Provision.NONE_LEFT

    def _dealt(self, framework: Framework, job: Job) -> Plan | None:
        size, taken = framework.host_ports, list(self._taken(job))
        held = port_in(job.meta, size)
        if held is not None:
            # A copied manifest brings another job's ports along. Once pods run, it is too late to mind.
            is_shared = any(held < block.stop and block.start < held + size for block in taken)
            if not is_shared or self._world.pods_of(job.meta.uid):
                return None
        port = free_port(self._ports, size, taken)
        if port is None:
            return Plan(job.status, events=(_exhausted(self._ports, size),))
        annotations = {ANNOTATION: str(port)}
        body = {"metadata": {"resourceVersion": job.meta.resource_version, "annotations": annotations}}
        return Plan(job.status, (Patch(job.resource, job.meta, body),))

    def _taken(self, besides: Job) -> Iterator[range]:
        for resource, framework in self._users.items():
            size = framework.host_ports
            for stored in self._world.jobs[resource].values():
                port, uid = port_in(stored.metadata, size), stored.metadata.uid
                if port is None or uid == besides.meta.uid:
                    continue
                if not framework.inherited(status_of(stored.at("status"))).is_finished or self._world.pods_of(uid):
                    yield range(port, port + size)


def _exhausted(ports: tuple[int, int], size: int) -> Event:
    message = (
        f"no {size} ports are left between {ports[0]} and {ports[1]} for this job; it waits until another one ends. "
        "Delete jobs that are done, or give the operator a wider --port-range"
    )
    return Event("Warning", "NoHostPorts", message, repeat=False)
