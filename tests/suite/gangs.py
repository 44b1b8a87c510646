"""Three gang schedulers, each with an operator and a namespace of its own; their parts are played by the tests."""

from __future__ import annotations

from typing import Any

from tests.suite.cluster import Cluster
from tests.suite.operators import Operator

from trainmaster.engine import gang
from trainmaster.kube.errors import AlreadyExists
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import PRIORITY_CLASSES, Resource
from trainmaster.testing.jobs import ROLES
from trainmaster.testing.scene import Scene, a_job

VOLCANO, PLUGINS, BATCH, NONE = "volcano", "scheduler-plugins-scheduler", "kube-batch", ""
GROUPS: dict[str, Resource] = {VOLCANO: gang.VOLCANO, PLUGINS: gang.SCHEDULER_PLUGINS, BATCH: gang.KUBE_BATCH}
SCHEDULERS = tuple(GROUPS)
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
CPU = "500m"
"""What every container asks for."""


def home(scheduler: str) -> str:
    """The namespace of who uses that scheduler."""
    return f"gang-{scheduler or 'none'}"


def gang_operators() -> tuple[Operator, ...]:
    return tuple(Operator(home(scheduler), scheduler) for scheduler in (*SCHEDULERS, NONE))


def asking(
    kind: str, name: str, roles: dict[str, int] | None = None, *, version: str = "", restart: str = "", **template: Any
) -> Scene:
    """A job whose every replica asks for the same; `template` goes into its pods' specs."""
    scene = a_job(kind, name, version=version)
    resources = {"requests": {"cpu": CPU}}
    container = {"name": scene.framework.container or "main", "image": "example/train:1", "resources": resources}
    for role, replicas in (roles or ROLES[kind]).items():
        scene = scene.role(role, replicas, restart or None, containers=[container], **template)
    return scene


async def group_of(cluster: Cluster, scheduler: str, name: str, **spec: Any) -> Json:
    """The job's group, once it is there and its spec has these fields."""
    return await cluster.object(GROUPS[scheduler], name, lambda group: group["spec"].items() >= spec.items())


async def admitted(cluster: Cluster, scheduler: str, name: str, phase: str = "Inqueue") -> Json:
    """The group, once the scheduler has taken it in. Only scheduler-plugins has its status apart."""
    await cluster.object(GROUPS[scheduler], name)
    subresource = "status" if scheduler == PLUGINS else ""
    body = {"status": {"phase": phase}}
    return await cluster.client.patch(GROUPS[scheduler], name, body, cluster.namespace, subresource)


async def make_priorities(cluster: Cluster, **values: int) -> None:
    for name, value in values.items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        try:
            await cluster.client.create(PRIORITY_CLASSES, {**body, "value": value})
        except AlreadyExists:
            continue
