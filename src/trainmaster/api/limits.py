"""How long a list of replicas may become: bounds of Linux and of Kubernetes.

A container with a longer variable never starts ("argument list too long"); a larger ConfigMap is refused on every try.
Both would happen only after thousands of pods were made, so such jobs are refused when they are read. Nothing is
guessed: what the last replica of each role would get, which has the longest, is computed and measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from trainmaster.api.framework import Framework
from trainmaster.api.job import Job, Member, Sight
from trainmaster.api.problem import Problem, invalid
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import Pod, PodStatus
from trainmaster.objects.resource import CONFIG_MAPS

MAX_VARIABLE = 128 * 1024
"""Bytes of one environment variable (Linux: MAX_ARG_STRLEN): its name, `=`, its value, and the byte that ends it."""

MAX_CONFIG_MAP = 1024 * 1024
"""Bytes of all values of one ConfigMap."""

SMALL = 100
"""Replicas of a job that is not measured: a name with its namespace, domain and port has some hundred bytes."""

ADDRESS = "10.0.0.100"
"""A pod's address as long as the real ones, which are not known yet."""


def size_problems(framework: Framework, job: Job) -> Iterator[Problem]:
    """Takes a job that is right otherwise."""
    if job.world <= SMALL:
        return
    yield from variable_problems(framework, job)
    name = next(too_long(framework.common_env(_imagined(job))), "")
    if name:
        yield _oversize(framework, job, lambda other: _is_common_env_short(framework, other), variable(name))
    elif CONFIG_MAPS in framework.companion_resources and not _are_config_maps_small(framework, job):
        yield _oversize(framework, job, lambda other: _are_config_maps_small(framework, other), _CONFIG_MAP)


def variable_problems(framework: Framework, job: Job, remedy: str = "") -> Iterator[Problem]:
    """`remedy` is what helps beside fewer replicas."""
    name = _long_variable(framework, job) if job.world > SMALL else ""
    if name:
        yield _oversize(framework, job, lambda other: not _long_variable(framework, other), variable(name), remedy)


def too_long(env: Mapping[str, object]) -> Iterator[str]:
    """Names of variables that Linux does not pass to a process."""
    for name, value in env.items():
        if isinstance(value, str) and len(f"{name}={value}".encode()) >= MAX_VARIABLE:
            yield name


def variable(name: str) -> str:
    """What is too long, why it grows, and what bounds it: the first half of a message."""
    limit = f"{MAX_VARIABLE} bytes that Linux allows for one environment variable"
    return f"{name} lists the replicas and would exceed the {limit}, so that no container could start"


_CONFIG_MAP = (
    f"the job's ConfigMap lists the replicas and would exceed the {MAX_CONFIG_MAP} bytes that Kubernetes allows for "
    "one, so that no replica could find the others"
)


def _oversize(framework: Framework, job: Job, fits: Callable[[Job], bool], why: str, remedy: str = "") -> Problem:
    """The problem of a job that does not fit, at its largest role. The text does not depend on how large that role is:
    an update that makes it smaller, and not small enough, breaks no other rule than before."""
    role = max(job.replicas, key=job.count)
    most = bisect_left(range(job.count(role)), True, key=lambda count: not fits(_sized(job, role, count))) - 1
    remedies = [f"use at most {most} replicas" if most > 0 else "use fewer replicas in all roles", remedy]
    detail = f"{why}; {' '.join(filter(None, remedies))}"
    return invalid(f"{framework.path(role)}.replicas", job.count(role), detail)


def _sized(job: Job, role: str, count: int) -> Job:
    return replace(job, replicas={**job.replicas, role: replace(job.replicas[role], replicas=count)})


def _long_variable(framework: Framework, job: Job) -> str:
    """The first variable that is too long for any replica; the last one of a role has the longest."""
    rank = -1
    for role, replica in job.replicas.items():
        rank += replica.replicas
        if replica.replicas:
            for name in too_long(framework.env(Member(job, role, replica.replicas - 1, rank))):
                return name
    return ""


def _is_common_env_short(framework: Framework, job: Job) -> bool:
    return not any(too_long(framework.common_env(_imagined(job))))


def _are_config_maps_small(framework: Framework, job: Job) -> bool:
    bodies = [c.body for c in framework.companions(_imagined(job)) if c.resource == CONFIG_MAPS]
    sizes = (sum(len(text.encode()) for text in body.get("data", {}).values()) for body in bodies)
    return all(size <= MAX_CONFIG_MAP for size in sizes)


def _imagined(job: Job) -> Job:
    """The job when all its pods run: only then is everything written that grows with them."""
    running = PodStatus(phase="Running", pod_ip=ADDRESS)
    pods = {(m.role, m.index): Pod(Meta(name=m.name, namespace=job.namespace), running) for m in job.members()}
    return replace(job, seen=Sight(pods=pods))
