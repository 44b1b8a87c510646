"""The structural schema of every kind, derived from its framework, and the CRD around it.

Two principles. What we read is typed, and of pod templates also what people write by hand, so that the API server
refuses a wrong type in a job before there are pods to refuse. What we do not know is kept
(`x-kubernetes-preserve-unknown-fields`), so that fields of newer Kubernetes versions reach the pods, flat policy
fields of old manifests survive, and a misspelt field can be named in an event instead of vanishing. No CEL by default:
Kubernetes 1.20 has none, and every rule is also checked on reading.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.framework import Framework
from trainmaster.objects import names, quantity
from trainmaster.objects.meta import Json, mutable
from trainmaster.objects.resource import Resource

KEEP = {"x-kubernetes-preserve-unknown-fields": True}
STRING: Json = {"type": "string"}
BOOLEAN: Json = {"type": "boolean"}
INT_OR_STRING: Json = {"x-kubernetes-int-or-string": True}
QUANTITY: Json = {**INT_OR_STRING, "maxLength": quantity.MAX_LENGTH}
NAME: Json = {**STRING, "maxLength": names.MAX_SUBDOMAIN}
"""Of another object, or of a policy: nothing with a longer name can exist."""

MAX_REPLICAS = 10_000
"""Per role. Beyond it a typo would exhaust the operator and the cluster alike."""


def integer(minimum: int = 0, maximum: int = 2**31 - 1, bits: int = 32) -> Json:
    return {"type": "integer", "format": f"int{bits}", "minimum": minimum, "maximum": maximum}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def mapping(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def record(properties: Json, **more: Any) -> Json:
    """An object with these fields, and any others kept as they are."""
    return {"type": "object", "properties": properties, **KEEP, **more}


def told(schema: Json, description: str) -> Json:
    """With the words that `kubectl explain` shows."""
    return {**schema, "description": description}


ANYTHING = record({})
LARGEST = 2**53
"""API servers read bounds as floats, which are not exact beyond. Kubernetes 1.20 turns 2**63 - 1 into the least number
there is, and refuses every other."""

LONG = integer(maximum=LARGEST, bits=64)
SECURITY = record(
    {"runAsUser": LONG, "runAsGroup": LONG, "fsGroup": LONG, "runAsNonRoot": BOOLEAN, "privileged": BOOLEAN}
)
CONTAINER = record(
    {
        "name": STRING,
        "image": STRING,
        "command": array(STRING),
        "args": array(STRING),
        "env": array(record({"name": STRING, "value": STRING})),
        "ports": array(record({"name": STRING, "containerPort": integer(1, 65535)})),
        "resources": record({"limits": mapping(QUANTITY), "requests": mapping(QUANTITY)}),
        "volumeMounts": array(record({"name": STRING, "mountPath": STRING, "subPath": STRING, "readOnly": BOOLEAN})),
        "imagePullPolicy": STRING,
        "securityContext": SECURITY,
        "stdin": BOOLEAN,
        "tty": BOOLEAN,
        "workingDir": STRING,
    }
)
POD_TEMPLATE = record(
    {
        "metadata": record({"labels": mapping(STRING), "annotations": mapping(STRING), "finalizers": array(STRING)}),
        "spec": record(
            {
                "containers": array(CONTAINER),
                "initContainers": array(CONTAINER),
                "dnsConfig": record({"searches": array(STRING)}),
                "priorityClassName": NAME,
                "restartPolicy": NAME,
                "schedulerName": NAME,
                "serviceAccountName": NAME,
                "volumes": array(record({"name": STRING})),
                "activeDeadlineSeconds": LONG,
                "hostIPC": BOOLEAN,
                "hostNetwork": BOOLEAN,
                "hostPID": BOOLEAN,
                "imagePullSecrets": array(ANYTHING),
                "nodeName": NAME,
                "nodeSelector": mapping(STRING),
                "securityContext": SECURITY,
                "terminationGracePeriodSeconds": LONG,
                "tolerations": array(record({"key": STRING, "operator": STRING, "value": STRING, "effect": STRING})),
            }
        ),
    }
)
REPLICA_SPEC = record(
    {
        "replicas": told(integer(0, MAX_REPLICAS), "How many of them; 1 if unset."),
        "restartPolicy": told(
            NAME, "Always, OnFailure, Never, or ExitCode: replace a pod that exits with 128 or more."
        ),
        "template": told(POD_TEMPLATE, "The pod of each; one container must bear the framework's name."),
    }
)
SCHEDULING_POLICY = record(
    {
        "minAvailable": told(integer(), "Pods that must be scheduled together; all if unset."),
        "queue": told(NAME, "Volcano's queue."),
        "minResources": told(mapping(QUANTITY), "What must be free together; the sum of requests if unset."),
        "priorityClass": told(NAME, "Of the whole group (Volcano)."),
        "scheduleTimeoutSeconds": told(integer(), "How long the group may wait (scheduler-plugins)."),
    }
)
RUN_POLICY_FIELDS: Json = {
    "cleanPodPolicy": told(NAME, "Which pods go when the job has ended: None, Running (Pending too), or All."),
    "ttlSecondsAfterFinished": told(integer(), "The job is deleted so many seconds after its end; kept if unset."),
    "activeDeadlineSeconds": told(LONG, "The job fails when it has been active so long since its start or resumption."),
    "backoffLimit": told(integer(), "Restarts the job may have, of containers in place and of pods, together."),
    "suspend": told(BOOLEAN, "Take the job's pods away; set to false to start it anew."),
    "managedBy": told(NAME, "Who runs the job; another's jobs are not touched."),
    "schedulingPolicy": told(SCHEDULING_POLICY, "Of the job's PodGroup, where gang scheduling is on."),
}
INLINED_POLICY = "RunPolicy"
"""mxnet- and xgboost-operator meant to inline the policy and in effect read it from this key."""

TIME: Json = {"type": "string", "format": "date-time"}
COUNTER: Json = {"type": "integer", "format": "int32"}
CONDITION: Json = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": STRING,
        "status": STRING,
        "reason": STRING,
        "message": STRING,
        "lastUpdateTime": TIME,
        "lastTransitionTime": TIME,
    },
}
REPLICA_STATUS = record(
    {
        "active": told(COUNTER, "Pods that run."),
        "succeeded": told(COUNTER, "Replicas that have succeeded."),
        "failed": told(COUNTER, "Pods that have failed."),
        "selector": told(STRING, "By which kubectl scale and an HPA find the pods."),
    }
)
STATUS = record(
    {
        "conditions": told(array(CONDITION), "What came to hold, and when; the last one is the job's state."),
        "replicaStatuses": told(mapping(REPLICA_STATUS), "How the pods stand, by role."),
        "authoredVersion": told(STRING, "The API version in which the job was written, where it matters."),
        "attempts": told(mapping(COUNTER), "Pods replaced by the operator, by slot."),
        "completed": told(mapping(array(COUNTER)), "Replicas that are done, by role."),
        "startTime": told(TIME, "When the job became active, first or again."),
        "completionTime": told(TIME, "When it was decided."),
        "lastReconcileTime": told(TIME, "When an operator first looked at the job."),
    }
)
QUEUE_RULE: Json = {
    "rule": "self == oldSelf",
    "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
}


def spec_schema(framework: Framework) -> Json:
    managed_by = {**RUN_POLICY_FIELDS["managedBy"], "enum": [*framework.managers, MULTIKUEUE]}
    told_otherwise = {name: field for name, field in framework.fields.items() if name in RUN_POLICY_FIELDS}
    policy = {**RUN_POLICY_FIELDS, "managedBy": managed_by, **told_otherwise}
    nested = {**policy, "suspend": {**policy["suspend"], "default": False}}
    return record(
        {
            **_roles(framework),
            "runPolicy": told(record(nested), "How long the job lives, how often it restarts, what it leaves behind."),
            INLINED_POLICY: record(policy),
            **policy,  # flat, as the operators before 2020 had them and their manifests still do
            **framework.fields,
        },
        required=[field for field in (framework.replicas_field, *framework.required_fields) if field],
    )


def _roles(framework: Framework) -> Json:
    if framework.replicas_field:
        roles = ", ".join(role.name for role in framework.roles)
        return {framework.replicas_field: told(mapping(REPLICA_SPEC), f"The replicas by role: {roles}.")}
    return {role.name.lower(): told(REPLICA_SPEC, f"The {role.name} replicas.") for role in framework.roles}


MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def object_schema(framework: Framework) -> Json:
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"type": "object"},
            "spec": spec_schema(framework),
            "status": {**STATUS, "properties": {**STATUS["properties"], **framework.status_fields}},
        },
    }


def crd(framework: Framework, resource: Resource, *, cel: bool = False) -> Json:
    """The CustomResourceDefinition of one served name of a framework."""
    versions = [resource.version]
    if resource == framework.resource:
        versions += framework.older_versions
    schema = mutable(object_schema(framework))
    if cel:
        _policy_of(schema)["schedulingPolicy"]["properties"]["queue"]["x-kubernetes-validations"] = [QUEUE_RULE]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            # The default, said aloud: a CRD that was created as v1beta1 has true, under which no default is allowed.
            "preserveUnknownFields": False,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **({"shortNames": [*framework.short_names]} if framework.short_names else {}),
            },
            "versions": [_version(framework, name, name == resource.version, schema) for name in versions],
        },
    }


def _policy_of(schema: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = schema["properties"]["spec"]["properties"]["runPolicy"]["properties"]
    return properties


def _unwritable(framework: Framework, schema: Json) -> Json:
    """Of a version that can be read and deleted only: the server itself says which ones can be written."""
    living = (framework.version, *(name for name in framework.older_versions if name not in framework.deprecated))
    refusing = {**STRING, "enum": [f"{framework.group}/{name}" for name in living]}
    spec = {key: value for key, value in schema["properties"]["spec"].items() if key != "required"}
    return {**schema, "properties": {**schema["properties"], "apiVersion": refusing, "spec": spec}}


def _version(framework: Framework, name: str, is_storage: bool, schema: Json) -> Json:
    warning = framework.deprecated.get(name)
    schema = _unwritable(framework, schema) if warning else schema
    return {
        "name": name,
        "served": True,
        "storage": is_storage,
        **({"deprecated": True, "deprecationWarning": warning} if warning else {}),
        "additionalPrinterColumns": [
            {"name": heading, "type": type, "jsonPath": path} for heading, type, path in framework.columns
        ],
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **_scale(framework)},
    }


def _scale(framework: Framework) -> Json:
    if not framework.scalable_role:
        return {}
    role = framework.scalable_role
    return {
        "scale": {
            "specReplicasPath": framework.path().replace("spec", ".spec", 1) + f".{role}.replicas",
            "statusReplicasPath": f".status.replicaStatuses.{role}.active",
            "labelSelectorPath": f".status.replicaStatuses.{role}.selector",
        }
    }
