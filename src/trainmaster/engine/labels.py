"""Labels and annotations that we put on objects. Scripts, SDKs and Services select by them: they are an interface."""

from __future__ import annotations

from trainmaster.api.framework import Framework
from trainmaster.api.job import Job, Member

PREFIX = "training.kubeflow.org/"
OPERATOR_NAME = PREFIX + "operator-name"
JOB_NAME = PREFIX + "job-name"
REPLICA_TYPE = PREFIX + "replica-type"
REPLICA_INDEX = PREFIX + "replica-index"
JOB_ROLE = PREFIX + "job-role"
ATTEMPT = "trainmaster.dev/attempt"
"""Annotation: which incarnation of its slot a pod is; absent on the first."""

JOB_UID = "trainmaster.dev/job-uid"
"""Annotation of pods that a Kubernetes Job makes for us: whose they are, beyond that Job."""

APPLIED = "trainmaster.dev/applied"
"""Annotation: hash of what we last wrote into a companion, so that drift shows without comparing defaults."""


def job_labels(framework: Framework, job: Job) -> dict[str, str]:
    return {OPERATOR_NAME: framework.operator_name, JOB_NAME: job.name}


def role_labels(framework: Framework, job: Job, role: str) -> dict[str, str]:
    return {**job_labels(framework, job), REPLICA_TYPE: role.lower()}


def selector_labels(framework: Framework, member: Member) -> dict[str, str]:
    """The labels of a replica's Service, by which it also selects its pod."""
    return {**role_labels(framework, member.job, member.role), REPLICA_INDEX: str(member.index)}


def pod_labels(framework: Framework, member: Member) -> dict[str, str]:
    labels = selector_labels(framework, member)
    labels |= framework.labels(member)
    if framework.is_leader(member):
        labels[JOB_ROLE] = "master"
    if member.job.settings.compat_2021:
        labels |= {key.removeprefix(PREFIX): value for key, value in labels.items() if key != OPERATOR_NAME}
        labels["group-name"] = framework.group
    return labels
