"""Admission of the small kinds: configuration, namespaces, storage, scheduling, coordination."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry.admission import Object, Policy, World
from trainmaster.cluster.registry.quantities import parsed
from trainmaster.cluster.registry.status_error import Cause, forbidden_field, invalid_value, required, unsupported
from trainmaster.cluster.registry.validation import label_problems, path_segment_problems, subdomain_problems

_KEY_FORM = "[-._a-zA-Z0-9]+"
_KEY = re.compile(_KEY_FORM, re.ASCII)
_PERCENT = re.compile("[0-9]{1,3}%")
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY_FORM}')"
)
_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
_MAX_DATA = 1024 * 1024
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_SOURCES = frozenset(
    {
        *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker"),
        *("gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk"),
        *("portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
    }
)
_RECLAIM = ("Delete", "Recycle", "Retain")


def _key_problems(key: str) -> Iterator[str]:
    """A key is the name of a file where a volume shows it."""
    if len(key) > 253:
        yield "must be no more than 253 characters"
    if not _KEY.fullmatch(key):
        yield _BAD_KEY
    if key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def _check_data(obj: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[Cause]:
    size = 0
    for field in keys:
        for key, value in (obj.get(field) or {}).items():
            size += len(value)
            problems = list(_key_problems(key))
            yield from (invalid_value(f"{field}[{key}]", key, problem) for problem in problems)
            if not problems and field == "data" and key in (obj.get("binaryData") or {}):
                yield invalid_value(f"{field}[{key}]", key, "duplicate of key present in binaryData")
    if size > _MAX_DATA:
        field = keys[0] if keys == ("data",) else ""
        yield Cause("FieldValueTooLong", field, f"Too long: must have at most {_MAX_DATA} bytes")


def _check_config_map(obj: Mapping[str, Any]) -> list[Cause]:
    return list(_check_data(obj, ("data", "binaryData")))


def _check_immutable(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    detail = "field is immutable when `immutable` is set"
    causes = [forbidden_field("immutable", detail)] if not new.get("immutable") else []
    fields = ("data", "binaryData")
    return [*causes, *(forbidden_field(key, detail) for key in fields if new.get(key) != old.get(key))]


def _fill_secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _check_secret(obj: Mapping[str, Any]) -> list[Cause]:
    causes = list(_check_data(obj, ("data",)))
    needed = {"kubernetes.io/tls": ("tls.crt", "tls.key"), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",)}
    missing = [key for key in needed.get(obj["type"], ()) if key not in (obj.get("data") or {})]
    return [*causes, *(required(f"data[{key}]") for key in missing)]


def _check_secret_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    causes = _check_immutable(new, old)
    if new.get("type") != old.get("type"):
        causes.append(invalid_value("type", new.get("type"), "field is immutable"))
    return causes


def _admit_namespace(obj: Object, world: World) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name") or ""


def _keep_namespace_spec(obj: Object, old: Mapping[str, Any], world: World) -> None:
    """Only the finalize subresource changes these."""
    obj["spec"] = old.get("spec") or {}


def _fill_claim(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _admit_claim(obj: Object, world: World) -> None:
    obj["status"] = {"phase": "Pending"}
    if obj["spec"].get("storageClassName") is None:
        marked = (each for each in world.find_all("storage.k8s.io/storageclasses") if _is_default(each))
        if (chosen := next(marked, None)) is not None:
            obj["spec"]["storageClassName"] = chosen["metadata"]["name"]


def _is_default(storage_class: Mapping[str, Any]) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return annotations.get("storageclass.kubernetes.io/is-default-class") == "true"


def _check_claim(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj["spec"]
    causes = list(_check_modes(spec))
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        causes.append(required("spec.resources[storage]"))
    elif parsed(amount) <= 0:
        causes.append(invalid_value("spec.resources[storage]", amount, "must be greater than zero"))
    if (mode := spec["volumeMode"]) not in ("Block", "Filesystem"):
        causes.append(unsupported("spec.volumeMode", mode, ("Block", "Filesystem")))
    if name := spec.get("storageClassName"):
        causes += [invalid_value("spec.storageClassName", name, problem) for problem in subdomain_problems(name)]
    return causes


def _check_modes(spec: Mapping[str, Any], why: str = "at least 1 access mode is required") -> Iterator[Cause]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", why)
    yield from (unsupported("spec.accessModes", mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES)


def _check_claim_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """A bound claim keeps everything but its requested size; of another, the binder may fill in the volume's name."""
    free = {"resources"} if old["spec"].get("volumeName") else {"volumeName"}
    after = {key: value for key, value in new["spec"].items() if key not in free}
    before = {key: value for key, value in old["spec"].items() if key not in free}
    if after == before:
        return []
    detail = "spec is immutable after creation except resources.requests for bound claims"
    return [forbidden_field("spec", detail)]


def _fill_volume(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _admit_volume(obj: Object, world: World) -> None:
    obj["status"] = {"phase": "Pending"}


def _check_volume(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj["spec"]
    causes = list(_check_modes(spec, why=""))
    if not spec.get("capacity"):
        causes.append(required("spec.capacity"))
    sources = [key for key in spec if key in _VOLUME_SOURCES]
    if not sources:
        causes.append(required("spec", "must specify a volume type"))
    causes += [forbidden_field(f"spec.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]]
    if (policy := spec["persistentVolumeReclaimPolicy"]) not in _RECLAIM:
        causes.append(unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
    return causes


def _fill_storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _check_storage_class(obj: Mapping[str, Any]) -> list[Cause]:
    return [] if obj.get("provisioner") else [required("provisioner")]


def _fill_priority_class(obj: Object) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _check_priority_class(obj: Mapping[str, Any]) -> list[Cause]:
    name, value = obj["metadata"].get("name") or "", obj["value"]
    if name.startswith("system-") and name not in _SYSTEM_CLASSES:
        detail = "priority class names with 'system-' prefix are reserved for system use only. error:"
        return [forbidden_field("metadata.name", f"{detail} {name} is not a known system priority class")]
    if value > 1_000_000_000 and not name.startswith("system-"):
        detail = "maximum allowed value of a user defined priority is 1000000000"
        return [forbidden_field("value", detail)]
    return []


def _check_priority_class_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    return [] if new["value"] == old["value"] else [forbidden_field("value", "may not be changed in an update.")]


def _fill_node(obj: Object) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})


def _check_disruption_budget(obj: Mapping[str, Any]) -> list[Cause]:
    detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
    shares = {key: obj["spec"].get(key, 0) for key in ("minAvailable", "maxUnavailable")}
    return [
        invalid_value(f"spec.{key}", share, detail)
        for key, share in shares.items()
        if isinstance(share, str) and not _PERCENT.fullmatch(share)
    ]


def _fill_disruption_budget(obj: Object) -> None:
    obj.setdefault("spec", {})


def _fill_autoscaler(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("minReplicas", 1)


def _admit_autoscaler(obj: Object, world: World) -> None:
    obj["status"] = {"currentReplicas": 0, "desiredReplicas": 0}


def _check_autoscaler(obj: Mapping[str, Any]) -> list[Cause]:
    spec, causes = obj["spec"], []
    low, high = spec["minReplicas"], spec.get("maxReplicas") or 0
    if low < 1:
        causes.append(invalid_value("spec.minReplicas", low, "must be greater than or equal to 1"))
    if high < 1:
        causes.append(invalid_value("spec.maxReplicas", high, "must be greater than 0"))
    elif high < low:
        causes.append(invalid_value("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    return [*causes, *(required(f"spec.scaleTargetRef.{key}") for key in ("kind", "name") if not target.get(key))]


def _check_lease(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if (count := spec.get("leaseTransitions")) is not None and count < 0:
        causes.append(invalid_value("spec.leaseTransitions", count, "must to be greater or equal than 0"))
    return causes


def _fill_event(obj: Object) -> None:
    """Fields that generated clients insist on, even when they say nothing."""
    if obj["apiVersion"] != "v1":
        obj.setdefault("eventTime", None)
        return
    for key in ("eventTime", "firstTimestamp", "lastTimestamp"):
        obj.setdefault(key, None)
    for key in ("reportingComponent", "reportingInstance"):
        obj.setdefault(key, "")
    obj.setdefault("source", {})


def _check_event(obj: Mapping[str, Any]) -> list[Cause]:
    """Events are accepted loosely, as their writers are; only their namespace must be their object's."""
    space = (obj.get("involvedObject") or obj.get("regarding") or {}).get("namespace") or ""
    held = obj["metadata"].get("namespace") or ""
    if space and space != held:
        return [invalid_value("involvedObject.namespace", space, "does not match event.namespace")]
    if not space and held not in ("", "default", "kube-system"):
        return [invalid_value("involvedObject.namespace", space, "does not match event.namespace")]
    return []


def _check_role(obj: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        at = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{at}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def _fill_network_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("policyTypes", ["Ingress", *(["Egress"] if spec.get("egress") else [])])


_RBAC = Policy(name_rule=path_segment_problems)
_ROLES = Policy(check=_check_role, name_rule=path_segment_problems)
_GENERATION = Policy(has_generation=True)

POLICIES: Mapping[str, Policy] = {
    "/configmaps": Policy(check=_check_config_map, check_update=_check_immutable),
    "/secrets": Policy(_fill_secret, check=_check_secret, check_update=_check_secret_update),
    "/namespaces": Policy(create=_admit_namespace, update=_keep_namespace_spec, name_rule=label_problems),
    "/persistentvolumeclaims": Policy(_fill_claim, _admit_claim, check=_check_claim, check_update=_check_claim_update),
    "/persistentvolumes": Policy(_fill_volume, _admit_volume, check=_check_volume),
    "/nodes": Policy(_fill_node),
    "/events": Policy(_fill_event, check=_check_event),
    "storage.k8s.io/storageclasses": Policy(_fill_storage_class, check=_check_storage_class),
    "scheduling.k8s.io/priorityclasses": Policy(
        _fill_priority_class,
        check=_check_priority_class,
        check_update=_check_priority_class_update,
        has_generation=True,
    ),
    "coordination.k8s.io/leases": Policy(check=_check_lease),
    "policy/poddisruptionbudgets": Policy(_fill_disruption_budget, check=_check_disruption_budget, has_generation=True),
    "autoscaling/horizontalpodautoscalers": Policy(_fill_autoscaler, _admit_autoscaler, check=_check_autoscaler),
    "networking.k8s.io/networkpolicies": Policy(_fill_network_policy, has_generation=True),
    "networking.k8s.io/ingresses": _GENERATION,
    "admissionregistration.k8s.io/mutatingwebhookconfigurations": _GENERATION,
    "admissionregistration.k8s.io/validatingwebhookconfigurations": _GENERATION,
    "rbac.authorization.k8s.io/roles": _ROLES,
    "rbac.authorization.k8s.io/rolebindings": _RBAC,
    "rbac.authorization.k8s.io/clusterroles": _ROLES,
    "rbac.authorization.k8s.io/clusterrolebindings": _RBAC,
}
