"""Views of an object that are read and written on their own: status, scale, binding, finalize.

Pure functions from objects to objects; the registry stores what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.decoding import part_of
from trainmaster.cluster.registry.kinds import Kind, ScalePaths
from trainmaster.cluster.registry.status_error import bad_request, conflict, invalid, invalid_value, required
from trainmaster.objects import timestamp

_OWN_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def at(value: Any, path: str) -> Any:
    """What is at a path such as `.spec.replicas`; None where there is nothing."""
    for step in path.split(".")[1:]:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def scale_of(kind: Kind, value: Mapping[str, Any]) -> dict[str, Any]:
    """An object's `autoscaling/v1 Scale`."""
    paths = kind.scale or ScalePaths()
    metadata = value["metadata"]
    selector = _selector_text(kind, value, paths)
    status = {"replicas": at(value, paths.status) or 0, **({"selector": selector} if selector else {})}
    replicas = at(value, paths.spec)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in _OWN_METADATA if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(kind: Kind, value: Mapping[str, Any], paths: ScalePaths) -> str:
    if kind.custom:
        return str(at(value, paths.selector) or "") if paths.selector else ""
    selector = at(value, ".spec.selector") or {}
    terms = [f"{key}={wanted}" for key, wanted in sorted((selector.get("matchLabels") or {}).items())]
    terms += [_expression_text(expression) for expression in selector.get("matchExpressions") or ()]
    return ",".join(terms)


def _expression_text(expression: Mapping[str, Any]) -> str:
    key, operator = expression.get("key"), expression.get("operator")
    if operator in ("Exists", "DoesNotExist"):
        return f"{'' if operator == 'Exists' else '!'}{key}"
    return f"{key} {'in' if operator == 'In' else 'notin'} ({','.join(expression.get('values') or ())})"


def rescaled(kind: Kind, value: dict[str, Any], scale: Any) -> dict[str, Any]:
    """The object with the number of replicas that a Scale asks for."""
    asked = part_of(definitions.shape("autoscaling", "v1", "Scale"), scale, "Scale")
    _check_scale(value["metadata"]["name"], asked)
    replicas = (asked.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        name = value["metadata"]["name"]
        raise invalid(_SCALE, name, [invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")])
    steps = (kind.scale or ScalePaths()).spec.split(".")[1:]
    target = value
    for step in steps[:-1]:
        if not isinstance(target.get(step), dict):
            target[step] = {}
        target = target[step]
    target[steps[-1]] = replicas
    return value


def _check_scale(name: str, asked: Mapping[str, Any]) -> None:
    if (kind := asked.get("kind") or "Scale") != "Scale":
        version = str(asked.get("apiVersion") or "").rpartition("/")[2]
        what = f'{kind} in version "{version}" cannot be handled as a Scale'
        raise bad_request(f"{what}: converting ({version}.{kind}) to (autoscaling.Scale): unknown conversion")
    given = (asked.get("metadata") or {}).get("name") or name
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


_SCALE = Kind("autoscaling", "v1", "scales", "Scale")


def with_status(kind: Kind, new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A write to /status: the new status on the old object. Kubernetes' own kinds also take new metadata."""
    metadata = old["metadata"] if kind.custom else new["metadata"]
    made = {**old, "metadata": dict(metadata)}
    if "managedFields" in new["metadata"]:
        made["metadata"]["managedFields"] = new["metadata"]["managedFields"]
    made.pop("status", None)
    return {**made, "status": _status_of(kind, new["status"])} if "status" in new else made


def _status_of(kind: Kind, status: Any) -> Any:
    """As written; a pod's one address is also the first of its list of them."""
    address = status.get("podIP") if kind.prefix == "/pods" and isinstance(status, dict) else None
    return {**status, "podIPs": [{"ip": address}]} if address and not status.get("podIPs") else status


def without_status_change(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A write to the object itself leaves its status as it was."""
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]
    return new


def finalized(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A write to a namespace's /finalize: only its list of finalizers."""
    finalizers = (new.get("spec") or {}).get("finalizers") or []
    return {**old, "metadata": dict(old["metadata"]), "spec": {**(old.get("spec") or {}), "finalizers": finalizers}}


def bound(kind: Kind, pod: dict[str, Any], binding: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The pod on the node that a Binding names."""
    name = pod["metadata"]["name"]
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        raise invalid(_BINDING, name, [invalid_value("target.kind", target["kind"], "must be empty or 'Node'")])
    if not target.get("name"):
        raise invalid(_BINDING, name, [required("target.name")])
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(_BINDING_OF, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod["spec"].get("nodeName"):
        raise conflict(_BINDING_OF, name, f'pod {name} is already assigned to node "{node}"')
    annotations = {
        **(pod["metadata"].get("annotations") or {}),
        **((binding.get("metadata") or {}).get("annotations") or {}),
    }
    if annotations:
        pod["metadata"]["annotations"] = annotations
    pod["spec"]["nodeName"] = target["name"]
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp.render(now)}
    status = pod.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    status["conditions"] = [*others, condition]
    return pod


_BINDING = Kind("", "v1", "bindings", "Binding")
_BINDING_OF = Kind("", "v1", "pods/binding", "Pod")
