"""The pod of one replica: the user's template with name, labels, environment and the framework's last word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainmaster.api.framework import Framework
from trainmaster.api.job import Member
from trainmaster.engine import gang, labels
from trainmaster.engine.actions import Patch
from trainmaster.engine.observed import Observed
from trainmaster.engine.owner import owner_reference
from trainmaster.engine.recipe import ReplicaRecipe
from trainmaster.objects import template
from trainmaster.objects.meta import Json, mutable
from trainmaster.objects.number import number_of
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS

MAX_ATTEMPTS = 10**9
"""More have never been made: an annotation that says so is nobody's count."""


@dataclass(frozen=True, slots=True, repr=False)
class PodRecipe(ReplicaRecipe):
    attempt: int = 0

    def build(self) -> Json:
        return pod_of(self.framework, self.member, self.attempt)


def pod_of(framework: Framework, member: Member, attempt: int = 0) -> Json:
    pod: Json = {"apiVersion": "v1", "kind": "Pod", **_common(framework, member)}
    if attempt:
        pod = template.with_metadata(pod, annotations={labels.ATTEMPT: str(attempt)})
    return framework.decorate(gang.decorate(_identified(pod, member), member), member)


def template_of(framework: Framework, member: Member) -> Json:
    """The same as a template, for a Job that makes the pod."""
    return framework.decorate(gang.decorate(_common(framework, member), member), member)


def plan_annotations(observed: Observed) -> Iterator[Patch]:
    """Annotations of living pods that are no longer current."""
    for member in observed.job.members():
        wanted = observed.framework.annotations(member)
        for pod in _pods_of(observed, member):
            is_current = all(pod.metadata.annotations.get(name) == value for name, value in wanted.items())
            if not is_current and not pod.is_finished and not pod.metadata.is_terminating:
                yield Patch(PODS, pod.metadata, {"metadata": {"annotations": dict(wanted)}})


def _pods_of(observed: Observed, member: Member) -> tuple[Pod, ...]:
    delegate = observed.job.seen.delegates.get(member.role)
    pod = observed.pod_at.get((member.role, member.index))
    return delegate.pods if delegate is not None else (pod,) if pod is not None else ()


def _common(framework: Framework, member: Member) -> Json:
    replica = member.replica
    pod: Json = _from_template(replica.template)
    # Under ExitCode the operator decides on restarts, so the kubelet must not.
    policy = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
    pod = template.with_spec(pod, restartPolicy=policy)
    env = framework.env(member)

    def with_env(container: Json) -> Json:
        return template.with_env(container, env)

    if framework.env_in_every_container:
        pod = template.with_containers(pod, with_env)
    else:
        pod = template.with_container(pod, with_env, framework.container_names)
    return template.with_metadata(
        pod, labels=labels.pod_labels(framework, member), annotations=framework.annotations(member)
    )


def _from_template(declared: Json) -> dict[str, Any]:
    """Only what belongs to a pod: old manifests carry an apiVersion and kind inside the template."""
    copy = mutable(declared)
    metadata = copy.get("metadata", {})
    kept = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata.get(key)}
    return {"metadata": kept, "spec": copy.get("spec", {})}


def _identified(pod: Json, member: Member) -> Json:
    job = member.job
    identity = {"name": member.name, "namespace": job.namespace}
    return {**pod, "metadata": {**identity, **pod["metadata"], "ownerReferences": [owner_reference(job)]}}


def attempt_of(annotations: Json) -> int:
    return number_of(str(annotations.get(labels.ATTEMPT, "0")), MAX_ATTEMPTS) or 0
