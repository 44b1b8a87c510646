"""The PodGroup of a job: why its pods are not placed, and often not even made, before there is room for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cli.ranks import Obstacle
from trainmaster.engine import gang
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError, NotFound

KIND = "PodGroup"
_RESOURCES = (gang.VOLCANO, gang.SCHEDULER_PLUGINS, gang.KUBE_BATCH)
_PLACED = ("Running", "Completed")
"""Phases in which Volcano leaves standing what it once said of a group."""


async def of(client: Client, namespace: str, job: str, uid: str) -> list[Mapping[str, Any]]:
    """One at most, unless several schedulers are at work: those of the job's name that no other job has made. Nothing
    where they may not be read."""
    found: list[Mapping[str, Any]] = []
    for resource in _RESOURCES:
        try:
            group = await client.get(resource, job, namespace)
        except KubeError:
            continue
        if _is_for(group, uid):
            found.append(group)
    return found


async def is_about(client: Client, namespace: str, regarding: Mapping[str, Any], uid: str) -> bool:
    """Whether an event about a group of the job's name is about that which it has now. Events outlive their objects."""
    resource = next((one for one in _RESOURCES if one.api_version == regarding.get("apiVersion")), None)
    if resource is None:
        return False
    try:
        group = await client.get(resource, str(regarding.get("name")), namespace)
    except NotFound:
        return False
    except KubeError:
        return True  # one may read events, but not groups: the name has to do
    return group["metadata"].get("uid") == regarding.get("uid") and _is_for(group, uid)


def obstacle_of(group: Mapping[str, Any]) -> Obstacle | None:
    status = group.get("status") or {}
    if status.get("phase") in _PLACED:
        return None
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True":
            return Obstacle("Unschedulable", condition.get("message", ""))
    return None


def _is_for(group: Mapping[str, Any], uid: str) -> bool:
    """Groups that users make have no owner: whatever job bears the name is concerned."""
    owners = [owner["uid"] for owner in group["metadata"].get("ownerReferences") or () if owner.get("controller")]
    return not owners or uid in owners
