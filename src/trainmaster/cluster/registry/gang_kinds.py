"""Definitions of the PodGroups and the Queue that gang schedulers bring to a cluster, so that manifests made for
them apply.

Volcano's PodGroup and Queue, kube-batch's PodGroup (an older Volcano), scheduler-plugins' PodGroup (its
coscheduling). Unknown fields are kept: real installations differ by version, and our scheduler reads only what is
listed here.
"""

from __future__ import annotations

from typing import Any

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_INT32 = {"type": "integer", "format": "int32"}
_TEXT = {"type": "string"}
_AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
_CONDITIONS = {"type": "array", "items": _OPEN}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": fields}


def _column(name: str, kind: str, path: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path}


_AGE = _column("Age", "date", ".metadata.creationTimestamp")


_APPROVAL = {"api-approved.kubernetes.io": "unapproved, as kube-batch left it"}
"""Asked for by the API server where a group is below k8s.io."""


def _definition(
    group: str,
    version: str,
    kind: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    *,
    columns: list[dict[str, Any]],
    short: tuple[str, ...] = (),
    scope: str = "Namespaced",
) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": _APPROVAL},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **({"shortNames": list(short)} if short else {})},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


_VOLCANO_SPEC = _object(
    minMember=_INT32,
    minTaskMember={"type": "object", "additionalProperties": _INT32},
    minResources=_AMOUNTS,
    queue={**_TEXT, "default": "default"},
    priorityClassName=_TEXT,
)
_BATCH_STATUS = _object(phase=_TEXT, running=_INT32, succeeded=_INT32, failed=_INT32, conditions=_CONDITIONS)
_VOLCANO_COLUMNS = [
    _column("STATUS", "string", ".status.phase"),
    _column("minMember", "integer", ".spec.minMember"),
    _column("RUNNINGS", "integer", ".status.running"),
    _column("AGE", "date", ".metadata.creationTimestamp"),
]
_QUEUE_SPEC = _object(
    weight={**_INT32, "default": 1, "minimum": 1}, capability=_AMOUNTS, reclaimable={"type": "boolean"}
)
_QUEUE_STATUS = _object(
    state=_TEXT, unknown=_INT32, pending=_INT32, running=_INT32, inqueue=_INT32, completed=_INT32, reservation=_OPEN
)

DEFINITIONS: tuple[dict[str, Any], ...] = (
    _definition(
        "scheduling.volcano.sh",
        "v1beta1",
        "PodGroup",
        _VOLCANO_SPEC,
        _BATCH_STATUS,
        columns=_VOLCANO_COLUMNS,
        short=("pg", "podgroup-v1beta1"),
    ),
    _definition(
        "scheduling.volcano.sh",
        "v1beta1",
        "Queue",
        _QUEUE_SPEC,
        _QUEUE_STATUS,
        columns=[_AGE],
        short=("q", "queue-v1beta1"),
        scope="Cluster",
    ),
    _definition(
        "scheduling.x-k8s.io",
        "v1alpha1",
        "PodGroup",
        _object(minMember=_INT32, minResources=_AMOUNTS, scheduleTimeoutSeconds=_INT32),
        _object(
            phase=_TEXT, occupiedBy=_TEXT, running=_INT32, succeeded=_INT32, failed=_INT32, scheduleStartTime=_TEXT
        ),
        columns=[
            _column("Phase", "string", ".status.phase"),
            _column("MinMember", "integer", ".spec.minMember"),
            _column("Running", "integer", ".status.running"),
            _column("Succeeded", "integer", ".status.succeeded"),
            _column("Failed", "integer", ".status.failed"),
            _AGE,
        ],
        short=("pg", "pgs"),
    ),
    _definition(
        "scheduling.incubator.k8s.io",
        "v1alpha1",
        "PodGroup",
        _object(minMember=_INT32, queue=_TEXT, priorityClassName=_TEXT),
        _BATCH_STATUS,
        columns=[_AGE],
    ),
)
