"""The pod of one replica: the user's template with name, labels, environment and the framework's last word."""

from __future__ import annotations

from typing import Any

from trainmaster.api.framework import Framework
from trainmaster.api.job import Member
from trainmaster.engine import gang, labels
from trainmaster.engine.owner import owner_reference
from trainmaster.objects import template
from trainmaster.objects.meta import Json, mutable


def pod_of(framework: Framework, member: Member, attempt: int = 0) -> Json:
    replica = member.replica
    pod: Json = {"apiVersion": "v1", "kind": "Pod", **_from_template(replica.template)}
    # Under ExitCode the operator decides on restarts, so the kubelet must not.
    policy = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
    pod = template.with_spec(pod, restartPolicy=policy)
    names = () if framework.env_in_every_container else framework.container_names
    env = framework.env(member)
    pod = template.with_containers(pod, lambda container: template.with_env(container, env), names)
    pod = template.with_metadata(
        pod,
        labels=labels.pod_labels(framework, member),
        annotations={labels.ATTEMPT: str(attempt)} if attempt else None,
    )
    return framework.decorate(gang.decorate(_identified(pod, member), member), member)


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
    text = str(annotations.get(labels.ATTEMPT, "0"))
    return int(text) if text.isdecimal() else 0
