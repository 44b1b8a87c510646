"""What may happen to a job and its cluster, one function each.

Every function takes the cluster and two numbers to choose by, and returns the cluster after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from trainmaster.api.framework import Role
from trainmaster.engine import gang
from trainmaster.objects import timestamp
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodCondition, PodStatus, Terminated
from trainmaster.testing.scene import UID, Scene

ENDINGS = (("Failed", 137), ("Succeeded", 0), ("Failed", None), ("Failed", 139), ("Succeeded", None), ("Failed", 1))
READY = (PodCondition("Ready", "True"),)
STANDINGS: tuple[dict[str, Any], ...] = (
    {},
    {"failed": 1},
    {"conditions": [{"type": "Complete", "status": "True"}]},
    {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}], "failed": 2},
)


def within(role: Role, replicas: int) -> int:
    return max(role.min, replicas if role.max is None else min(replicas, role.max))


def terminating(world: Scene, uid: str) -> Scene:
    stamp = timestamp.render(world.now)
    return replace(
        world,
        pods={
            name: msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=stamp))
            if pod.metadata.uid == uid and not pod.metadata.is_terminating
            else pod
            for name, pod in world.pods.items()
        },
    )


def _ended(world: Scene, pod: Pod, phase: str, exit_code: int | None) -> Pod:
    """A pod in its last phase; without an exit code it was lost with its node."""
    if exit_code is None:
        return msgspec.structs.replace(pod, status=PodStatus(phase=phase, reason="Evicted"))
    terminated = Terminated(exit_code=exit_code, finished_at=timestamp.render(world.now))
    name = world.framework.container or "main"
    container = ContainerStatus(name=name, state=ContainerState(terminated=terminated))
    return msgspec.structs.replace(pod, status=PodStatus(phase=phase, container_statuses=(container,)))


def _owned(world: Scene) -> list[Pod]:
    return [pod for pod in world.pods.values() if pod.metadata.is_controlled_by(UID)]


def _with(world: Scene, pod: Pod) -> Scene:
    return replace(world, pods={**world.pods, pod.name: pod})


def _without(world: Scene, pods: list[Pod], which: int) -> Scene:
    gone = pods[which % len(pods)].name if pods else None
    return replace(world, pods={name: pod for name, pod in world.pods.items() if name != gone})


def a_pod_runs(world: Scene, which: int, restarts: int) -> Scene:
    pods = [pod for pod in _owned(world) if not pod.is_finished]
    if not pods:
        return world
    container = ContainerStatus(name=world.framework.container or "main", restart_count=restarts % 3)
    status = PodStatus("Running", container_statuses=(container,), conditions=READY if restarts % 2 else ())
    return _with(world, msgspec.structs.replace(pods[which % len(pods)], status=status))


def all_pods_run(world: Scene, which: int, choice: int) -> Scene:
    for pod in _owned(world):
        if not pod.is_finished:
            world = _with(world, msgspec.structs.replace(pod, status=PodStatus("Running", conditions=READY)))
    return world


def a_pod_ends(world: Scene, which: int, choice: int) -> Scene:
    pods = [pod for pod in _owned(world) if not pod.is_finished]
    return _with(world, _ended(world, pods[which % len(pods)], *ENDINGS[choice % len(ENDINGS)])) if pods else world


def a_pod_is_gone(world: Scene, which: int, choice: int) -> Scene:
    return _without(world, [pod for pod in _owned(world) if pod.metadata.is_terminating], which)


def all_that_was_going_is_gone(world: Scene, which: int, choice: int) -> Scene:
    return replace(world, pods={n: pod for n, pod in world.pods.items() if not pod.metadata.is_terminating})


def somebody_deletes_a_pod(world: Scene, which: int, choice: int) -> Scene:
    pods = _owned(world)
    return terminating(world, pods[which % len(pods)].metadata.uid) if pods else world


def a_pod_vanishes(world: Scene, which: int, choice: int) -> Scene:
    return _without(world, _owned(world), which)


def somebody_deletes_a_service(world: Scene, which: int, choice: int) -> Scene:
    gone = sorted(world.services)[which % len(world.services)] if world.services else ""
    return replace(world, services={name: service for name, service in world.services.items() if name != gone})


def a_stranger_takes_a_name(world: Scene, which: int, choice: int) -> Scene:
    free = [member for member in world.job.members() if member.name not in world.pods]
    if not free:
        return world
    member = free[which % len(free)]
    return world.pod(member.role, member.index, "Running" if choice % 2 else "Failed", owner="stranger")


def the_scheduler_moves_the_group(world: Scene, which: int, choice: int) -> Scene:
    group = world.others.get(("PodGroup", "job"))
    if group is None:
        return world
    phase = ("Inqueue", "Running", "Pending", "")[choice % 4]
    return world.other("PodGroup", group.metadata, group.at("spec"), {"phase": phase})


def a_delegate_gets_on(world: Scene, which: int, choice: int) -> Scene:
    """A Kubernetes Job of the job's makes a pod, counts a failure, or ends."""
    for (kind, name), held in world.others.items():
        if kind == "Job":
            pod = world.pod("Launcher", 0, name=f"{name}-x", owner=held.metadata.uid)
            return pod.other("Job", held.metadata, held.at("spec"), STANDINGS[choice % len(STANDINGS)])
    return world


def somebody_deletes_a_companion(world: Scene, which: int, choice: int) -> Scene:
    return replace(world, others=dict(list(world.others.items())[1:]))


def the_user_makes_a_group(world: Scene, which: int, choice: int) -> Scene:
    is_free = gang.resource_of(world.settings) is not None and ("PodGroup", "job") not in world.others
    return world.group("Inqueue", owner="") if is_free else world


def the_user_scales(world: Scene, which: int, choice: int) -> Scene:
    roles = [role for role in world.reading.framework.roles if world.job.has(role.name)]
    role = roles[which % len(roles)]
    return world.scaled(role.name, within(role, choice % 5))


def the_user_suspends_or_resumes(world: Scene, which: int, choice: int) -> Scene:
    return world.policy(suspend=not world.job.policy.suspend)


def time_passes(world: Scene, which: int, choice: int) -> Scene:
    return world.at((1, 5, 60, 400)[choice % 4])


def nothing_happens(world: Scene, which: int, choice: int) -> Scene:
    return world


Happening = Callable[[Scene, int, int], Scene]
HAPPENINGS: tuple[Happening, ...] = (
    all_pods_run,
    all_pods_run,
    a_pod_runs,
    a_pod_ends,
    a_pod_ends,
    a_pod_is_gone,
    all_that_was_going_is_gone,
    somebody_deletes_a_pod,
    a_pod_vanishes,
    somebody_deletes_a_service,
    a_stranger_takes_a_name,
    the_scheduler_moves_the_group,
    the_scheduler_moves_the_group,
    a_delegate_gets_on,
    somebody_deletes_a_companion,
    the_user_makes_a_group,
    the_user_scales,
    the_user_suspends_or_resumes,
    time_passes,
    nothing_happens,
)
