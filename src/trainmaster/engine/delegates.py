"""Roles that a Kubernetes Job runs for us: made when the role may start, taken away when the job stops.

Such a Job is never changed. On suspension it is removed, and made anew on resumption: that works on every version of
Kubernetes, and whatever a queue has written into the template meanwhile (node selectors, tolerations) reaches the new.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.api.framework import Framework
from trainmaster.api.job import Member
from trainmaster.engine import labels
from trainmaster.engine.actions import Create, Delete, Stage
from trainmaster.engine.observed import Observed
from trainmaster.engine.owner import owner_reference
from trainmaster.engine.pods import template_of
from trainmaster.engine.recipe import ReplicaRecipe
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import JOBS

JOBS_OWN = ("job-name", "controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid")
"""Labels that a Kubernetes Job gives its pods itself; a template with others of these names is refused."""


@dataclass(frozen=True, slots=True, repr=False)
class JobRecipe(ReplicaRecipe):
    def build(self) -> Json:
        return job_of(self.framework, self.member)


def job_of(framework: Framework, member: Member) -> Json:
    job = member.job
    pod = template.with_metadata(template_of(framework, member), annotations={labels.JOB_UID: job.meta.uid})
    kept = {key: value for key, value in pod["metadata"]["labels"].items() if key not in JOBS_OWN}
    pod["metadata"]["labels"] = kept
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": member.name,
            "namespace": job.namespace,
            "labels": {"app": job.name, **labels.pod_labels(framework, member)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {**job.delegated, "template": pod},
    }


def plan_creation(observed: Observed) -> Iterator[Create]:
    job, framework = observed.job, observed.framework
    standing = {held.metadata.name for held in observed.jobs}
    for member in job.members():
        if not framework.role(member.role).delegated or member.name in standing or _has_leftovers(observed):
            continue
        if framework.may_start(member.role, job, observed.counts):
            yield Create(JOBS, JobRecipe(framework, member), Stage.PODS)


def _has_leftovers(observed: Observed) -> bool:
    """Whether a pod of a Job that is gone still runs: it bears the host name of the one that is to come."""
    held = {job.metadata.uid for job in observed.jobs}
    owners = (pod.metadata.controller for pod in observed.delegated_pods if not pod.is_finished)
    return any(owner is not None and owner.uid not in held for owner in owners)


def plan_replacement(observed: Observed) -> Iterator[Delete]:
    """Jobs that another operator has suspended, and left so: we make none that are."""
    for held in observed.jobs:
        if held.at("spec", "suspend") and not held.metadata.is_terminating:
            yield Delete(JOBS, held.metadata)


def plan_removal(observed: Observed, *, unfinished_only: bool) -> Iterator[Delete]:
    """At the end of a job only what still runs goes: the pods of a finished Job are its log."""
    finished = {delegate.uid for delegate in observed.job.seen.delegates.values() if delegate.is_finished}
    for held in observed.jobs:
        is_spared = unfinished_only and held.metadata.uid in finished
        if not is_spared and not held.metadata.is_terminating:
            yield Delete(JOBS, held.metadata)
