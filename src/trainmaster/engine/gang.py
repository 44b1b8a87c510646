"""Gang scheduling: a PodGroup of the job's name, and what ties the pods to it.

Three schedulers with three shapes: Volcano, scheduler-plugins (any other name), and kube-batch as the operators of
2019 used it. A PodGroup of the job's name that somebody else made is respected: waited for, never changed or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Advice
from trainmaster.api.settings import Settings
from trainmaster.engine import companions
from trainmaster.engine.actions import Create, Delete, Patch
from trainmaster.engine.observed import Observed
from trainmaster.objects import quantity, template
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource

VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
SCHEDULER_PLUGINS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
KUBE_BATCH = Resource("scheduling.incubator.k8s.io", "v1alpha1", "podgroups", "PodGroup")

GROUP_NAME = "scheduling.k8s.io/group-name"
TASK_SPEC = "volcano.sh/task-spec"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


def resource_of(settings: Settings) -> Resource | None:
    """The kind of PodGroup that the chosen scheduler reads; None when gang scheduling is off."""
    match settings.gang_scheduler.lower():
        case "" | "none":
            return None
        case "volcano":
            return VOLCANO
        case "kube-batch":
            return KUBE_BATCH
        case _:
            return SCHEDULER_PLUGINS


def scheduler_name(settings: Settings) -> str:
    return "volcano" if resource_of(settings) == VOLCANO else settings.gang_scheduler


def decorate(pod: Json, member: Member) -> Json:
    settings = member.job.settings
    resource = resource_of(settings)
    if resource is None:
        return pod
    if not pod["spec"].get("schedulerName"):
        pod = template.with_spec(pod, schedulerName=scheduler_name(settings))
    if resource == SCHEDULER_PLUGINS:
        return template.with_metadata(pod, labels={POD_GROUP: member.job.name})
    task = {TASK_SPEC: member.role.lower()} if resource == VOLCANO else {}
    return template.with_metadata(pod, annotations={GROUP_NAME: member.job.name, **task})


def is_holding(observed: Observed) -> bool:
    """Whether pods must wait. Those of a group that is not there would be placed one by one, so it is made first; and
    Volcano admits a group first, so that pods made earlier would only sit there Pending."""
    resource, group = resource_of(observed.job.settings), observed.pod_group
    if resource is None:
        return False
    if group is None or group.metadata.is_terminating:
        return True
    return resource == VOLCANO and (group.at("status", "phase") or "Pending") == "Pending"


def advice_of(job: Job) -> Iterator[Advice]:
    if resource_of(job.settings) is None:
        return
    asked, wanted = job.policy.scheduling.min_available, scheduler_name(job.settings)
    if asked is not None and asked > job.world:
        remedy = "lower it, or leave it out to start all together"
        message = (
            f"schedulingPolicy.minAvailable is {asked}, but the job has {job.world} pods: it never starts; {remedy}"
        )
        yield Advice("GroupNeverFits", message)
    for role, replica in job.replicas.items():
        named = replica.template.get("spec", {}).get("schedulerName")
        if named and named != wanted:
            message = f"Another scheduler ({named}) is set in the pod template of {role} and will not be overwritten"
            yield Advice("SetPodTemplateSchedulerName", message)


def plan_group(observed: Observed) -> Iterator[Create | Patch]:
    resource = resource_of(observed.job.settings)
    if resource is not None:
        body = group_of(observed, resource)
        for action in companions.plan_object(observed.job, resource, body, observed.pod_group):
            yield replace(action, yields=True) if isinstance(action, Create) else action


def plan_removal(observed: Observed) -> Iterator[Delete]:
    resource = resource_of(observed.job.settings)
    if resource is not None:
        yield from companions.plan_removal(observed.job, resource, observed.pod_group)


def group_of(observed: Observed, resource: Resource) -> Json:
    job = observed.job
    metadata: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    annotations = {k: v for k, v in job.meta.annotations.items() if not k.startswith("kubectl.kubernetes.io/")}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": _spec(observed, resource),
    }


def _spec(observed: Observed, resource: Resource) -> Json:
    job, policy = observed.job, observed.job.policy.scheduling
    if resource == KUBE_BATCH:
        return {"minMember": observed.framework.gang_size(job)}
    members = _members(observed, least=1 if resource == SCHEDULER_PLUGINS else 0)  # its schema takes no less
    later = job.world - observed.framework.gang_size(job)  # room is asked for whoever starts later, too
    resources = policy.min_resources or min_resources(observed, members + later)
    spec: dict[str, Any] = {"minMember": members}
    if resource == VOLCANO:
        # A queue, once chosen, stays: moving a live group between queues confuses Volcano's accounting.
        held = observed.pod_group.at("spec", "queue") if observed.pod_group else None
        spec["queue"] = held or job.queue
        priority = observed.framework.priority_class(job)
        if priority:
            spec["priorityClassName"] = priority
    elif policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    if resources:
        spec["minResources"] = dict(resources)
    return spec


def _members(observed: Observed, *, least: int) -> int:
    job = observed.job
    at_first = observed.framework.gang_size(job)
    asked = job.policy.scheduling.min_available
    if asked is None:
        return max(at_first, least)
    # Where some start only once the others are there, a group that asked for all of them would wait for ever.
    return max(min(asked, at_first) if at_first < job.world else asked, least)


def min_resources(observed: Observed, members: int) -> Json:
    """What the first `members` pods ask for, roles of higher priority first, then in role order."""
    job = observed.job
    roles = sorted(job.replicas, key=lambda role: -observed.priorities.get(_priority_class(job, role), 0))
    requests: list[Json] = []
    for role in roles:
        taken = min(job.count(role), members)
        members -= taken
        requests += taken * [quantity.add(map(_requested, template.containers_of(job.replicas[role].template)))]
    return quantity.add(requests)


def _priority_class(job: Job, role: str) -> str:
    return str(job.replicas[role].template.get("spec", {}).get("priorityClassName", ""))


def _requested(container: Json) -> Json:
    """Requests; whatever is limited but not requested, Kubernetes itself requests to the limit."""
    resources = container.get("resources", {})
    return {**resources.get("limits", {}), **resources.get("requests", {})}
