"""Admission of what makes pods: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry.admission import Object, Policy, World
from trainmaster.cluster.registry.pod_check import check_template
from trainmaster.cluster.registry.pod_defaults import fill_template
from trainmaster.cluster.registry.status_error import (
    Cause,
    forbidden_field,
    invalid_value,
    required,
    shown,
    unsupported,
)
from trainmaster.cluster.registry.validation import check_labels

_STS_MUTABLE = (
    "updates to statefulset spec for fields other than 'replicas', 'template', and 'updateStrategy' are forbidden"
)
_ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}


def _fill_deployment(obj: Object) -> None:
    spec = _fill_replicated(obj)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy["rollingUpdate"] = {**_ROLLING, **(strategy.get("rollingUpdate") or {})}
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _fill_stateful_set(obj: Object) -> None:
    spec = _fill_replicated(obj)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("serviceName", "")
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim.setdefault("status", {"phase": "Pending"})


def _fill_daemon_set(obj: Object) -> None:
    spec = _fill_spec(obj)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("maxUnavailable", 1)
    spec.setdefault("revisionHistoryLimit", 10)


def _fill_replica_set(obj: Object) -> None:
    _fill_replicated(obj)


def _fill_replicated(obj: Object) -> Object:
    spec = _fill_spec(obj)
    spec.setdefault("replicas", 1)
    return spec


def _fill_spec(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    fill_template(spec.setdefault("template", {}))
    return spec


def _fill_job(obj: Object) -> None:
    spec = _fill_spec(obj)
    _fill_job_spec(spec)
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def _fill_job_spec(spec: Object) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    # The author who names no policy gets the API's default for pods, which jobs then refuse: as on a real cluster.


def _fill_cron_job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    fill_template(template.setdefault("template", {}))


def _admit_job(job: Object, world: World) -> None:
    """A Job's own pods are told apart by its uid, unless the author insists on a selector."""
    job["status"] = {}
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    uid, name = job["metadata"]["uid"], job["metadata"].get("name") or ""
    labels |= {"controller-uid": uid, "job-name": name}
    labels |= {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    job["metadata"].setdefault("labels", dict(labels))
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _no_status(obj: Object, world: World) -> None:
    obj["status"] = {}


def _replica_status(obj: Object, world: World) -> None:
    obj["status"] = {"replicas": 0}


def _check_deployment(obj: Mapping[str, Any]) -> list[Cause]:
    strategy = obj["spec"].get("strategy") or {}
    known = ("Recreate", "RollingUpdate")
    causes = [] if strategy.get("type") in known else [unsupported("spec.strategy", strategy, known)]
    return [*_check_selected(obj), *causes]


def _check_selected(obj: Mapping[str, Any]) -> list[Cause]:
    """Replicated kinds: a selector that their own template satisfies."""
    spec = obj["spec"]
    causes = _check_replicas(spec)
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        causes.append(required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {obj['kind'].lower()}"))
    else:
        causes += check_labels(selector.get("matchLabels"), "spec.selector.matchLabels")
    wanted = (selector or {}).get("matchLabels") or {}
    if selector is None or any(labels.get(key) != value for key, value in wanted.items()):
        detail = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", labels, detail))
    causes += check_template(spec["template"], "spec.template", _claims(spec))
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy != "Always":
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return causes


def _claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """Volumes that a StatefulSet's pods have without their template saying so: a claim each, by the claim's name."""
    return ((claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ())


def _check_replicas(spec: Mapping[str, Any]) -> list[Cause]:
    replicas = spec.get("replicas") or 0
    if replicas < 0:
        return [invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")]
    return []


def _check_job(job: Mapping[str, Any]) -> list[Cause]:
    return [*_check_own_selector(job), *_check_job_spec(job["spec"], "spec")]


def _check_own_selector(job: Mapping[str, Any]) -> Iterator[Cause]:
    """Without manualSelector, the one that was made for it is the only one."""
    spec, own = job["spec"], {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    if not spec.get("manualSelector") and (spec.get("selector") or {}) != {"matchLabels": own}:
        yield invalid_value("spec.selector", spec.get("selector"), "`selector` not auto-generated")


def _check_job_spec(spec: Mapping[str, Any], path: str) -> list[Cause]:
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    causes = [
        invalid_value(f"{path}.{key}", spec[key], "must be greater than or equal to 0")
        for key in counts
        if (spec.get(key) or 0) < 0
    ]
    causes += check_template(spec["template"], f"{path}.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    at = f"{path}.template.spec.restartPolicy"
    if policy in (None, "", "Always"):
        causes.append(required(at, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        causes.append(unsupported(at, policy, ("OnFailure", "Never")))
    return causes


def _check_cron_job(obj: Mapping[str, Any]) -> list[Cause]:
    causes = [] if obj["spec"].get("schedule") else [required("spec.schedule")]
    return [*causes, *_check_job_spec(obj["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")]


def _same(*keys: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], list[Cause]]:
    def check(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        return [
            Cause("FieldValueInvalid", f"spec.{key}", f"Invalid value: {_shown(key, new)}: field is immutable")
            for key in keys
            if new["spec"].get(key) != old["spec"].get(key)
        ]

    return check


def _shown(key: str, obj: Mapping[str, Any]) -> str:
    value = obj["spec"].get(key)
    if key != "selector" or not isinstance(value, Mapping) or value.get("matchExpressions"):
        return shown(value)
    labels = shown(value.get("matchLabels") or {})
    return f"v1.LabelSelector{{MatchLabels:{labels}, MatchExpressions:[]v1.LabelSelectorRequirement(nil)}}"


def _check_stateful_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    mutable = {"replicas", "template", "updateStrategy", "minReadySeconds", "persistentVolumeClaimRetentionPolicy"}
    before = {key: value for key, value in old["spec"].items() if key not in mutable}
    after = {key: value for key, value in new["spec"].items() if key not in mutable}
    return [] if before == after else [forbidden_field("spec", _STS_MUTABLE)]


POLICIES: Mapping[str, Policy] = {
    "apps/deployments": Policy(
        _fill_deployment, _no_status, check=_check_deployment, check_update=_same("selector"), has_generation=True
    ),
    "apps/replicasets": Policy(
        _fill_replica_set,
        _replica_status,
        check=_check_selected,
        check_update=_same("selector"),
        has_generation=True,
    ),
    "apps/statefulsets": Policy(
        _fill_stateful_set,
        _replica_status,
        check=_check_selected,
        check_update=_check_stateful_update,
        has_generation=True,
    ),
    "apps/daemonsets": Policy(
        _fill_daemon_set, _no_status, check=_check_selected, check_update=_same("selector"), has_generation=True
    ),
    "batch/jobs": Policy(
        _fill_job,
        _admit_job,
        check=_check_job,
        check_update=_same("selector", "template", "completions", "completionMode"),
        has_generation=True,
    ),
    "batch/cronjobs": Policy(_fill_cron_job, _no_status, check=_check_cron_job, has_generation=True),
}
