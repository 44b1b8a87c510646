"""Events that tell why a job does not get on: how containers ended, what pods are waiting for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.api.status import JobStatus
from trainmaster.engine.actions import Event
from trainmaster.engine.observed import Observed
from trainmaster.objects.pod import ContainerStatus, Pod


def exits(observed: Observed, status: JobStatus) -> Iterator[Event]:
    """Exits with another code than 0, told when the tally of ended replicas changes: a settled job is silent."""
    before, after = observed.job.status.replica_statuses, status.replica_statuses
    for (role, _), pod in sorted(observed.pod_at.items()):
        held, new = before.get(role), after.get(role)
        if new is None or (held is not None and (held.succeeded, held.failed) == (new.succeeded, new.failed)):
            continue
        code = pod.exit_code(observed.container_names(role))
        if pod.is_finished and code:
            message = f"Pod: {pod.metadata.namespace}.{pod.name} exited with code {code}"
            yield Event("Normal", "ExitedWithCode", message, repeat=False)


def troubles(pods: Sequence[Pod]) -> Iterator[Event]:
    """What keeps active pods from running, in Kubernetes' own words."""
    for pod in pods:
        if pod.is_finished or pod.metadata.is_terminating:
            continue
        statuses = pod.status.container_statuses or pod.status.init_container_statuses
        yield from _containers(pod, statuses)
        if not statuses:
            yield from _condition(pod)


def _containers(pod: Pod, statuses: Sequence[ContainerStatus]) -> Iterator[Event]:
    for status in statuses:
        ended, waiting = status.state.terminated, status.state.waiting
        if ended is not None and ended.exit_code != 0:
            message = f"Error pod {pod.name} container {status.name} exitCode: {ended.exit_code}"
            words = f" terminated message: {ended.message}" if ended.message else ""
            yield _trouble(ended.reason, message + words)
        if waiting is not None and waiting.message:
            yield _trouble(
                waiting.reason, f"Error pod {pod.name} container {status.name} waiting message: {waiting.message}"
            )


def _condition(pod: Pod) -> Iterator[Event]:
    if pod.status.conditions:
        latest = max(pod.status.conditions, key=lambda condition: condition.last_transition_time or "")
        if latest.status != "True":
            yield _trouble(latest.reason, f"Error pod {pod.name} condition message: {latest.message}")


def _trouble(reason: str, message: str) -> Event:
    return Event("Warning", reason or "PodNotRunning", message, repeat=False)
