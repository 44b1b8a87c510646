"""The cells of a row of `kubectl get`, for each built-in kind: one function from object and clock to values.

`table_layout` says which columns they stand in; a pod's, which take more thought, are in `table_pod`.
"""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.server import age
from trainmaster.objects import selector, timestamp
from trainmaster.objects.meta import Json

NONE = "<none>"


def _name(item: Json) -> str:
    return str(item["metadata"].get("name", ""))


def _age(item: Json, now: float) -> str:
    return age.since(item["metadata"].get("creationTimestamp"), now)


def _part(item: Json, name: str) -> Json:
    part = item.get(name)
    return part if isinstance(part, dict) else {}


def _joined(values: list[str], empty: str = NONE) -> str:
    return ",".join(values) or empty


def _first_few(values: list[str], limit: int = 3) -> str:
    """`a,b,c + 2 more...`"""
    if len(values) <= limit:
        return _joined(values)
    return f"{','.join(values[:limit])} + {len(values) - limit} more..."


def _selector(spec: Json) -> str:
    """A label selector of the old form (services) or the new one (workloads)."""
    chosen = spec.get("selector") or {}
    labels = chosen.get("matchLabels", {}) if "matchLabels" in chosen or "matchExpressions" in chosen else chosen
    parts = [selector.render(labels)] if labels else []
    parts += [_requirement(rule) for rule in chosen.get("matchExpressions") or ()]
    return _joined(parts)


def _requirement(rule: Json) -> str:
    key, operator = rule.get("key", ""), rule.get("operator", "")
    if operator in ("Exists", "DoesNotExist"):
        return f"{'!' if operator == 'DoesNotExist' else ''}{key}"
    return f"{key} {operator.lower()} ({','.join(rule.get('values') or ())})"


def _containers(item: Json) -> list[str]:
    """Names and images, the two wide columns of everything that has a pod template."""
    spec = _part(_part(item, "spec").get("template") or {}, "spec")
    containers = spec.get("containers") or []
    return [_joined([c.get(key, "") for c in containers]) for key in ("name", "image")]


def service(item: Json, now: float) -> list[Any]:
    spec = _part(item, "spec")
    ports = [_service_port(port) for port in spec.get("ports") or ()]
    address = spec.get("clusterIP") or NONE
    if spec.get("type") == "ExternalName":
        address = NONE
    kind = spec.get("type", "ClusterIP")
    return [_name(item), kind, address, _external(item, spec), _joined(ports), _age(item, now), _selector(spec)]


def _service_port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _external(item: Json, spec: Json) -> str:
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    balancer = _part(_part(item, "status"), "loadBalancer").get("ingress") or []
    found = [i.get("ip") or i.get("hostname") or "" for i in balancer] + list(spec.get("externalIPs") or ())
    return _joined(found, "<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def endpoints(item: Json, now: float) -> list[Any]:
    found: list[str] = []
    for subset in item.get("subsets") or ():
        for address in subset.get("addresses") or ():
            ports = [f":{port.get('port')}" for port in subset.get("ports") or ()] or [""]
            found += [f"{address.get('ip')}{port}" for port in ports]
    return [_name(item), _first_few(found), _age(item, now)]


def node(item: Json, now: float) -> list[Any]:
    status, spec = _part(item, "status"), _part(item, "spec")
    info = _part(status, "nodeInfo")
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[0].get("status") == "True" else "NotReady"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        _name(item), ",".join(words), _roles(item), _age(item, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE),
        *(info.get(key) or "<unknown>" for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]  # fmt: skip


def _roles(item: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = item["metadata"].get("labels") or {}
    return _joined(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix)))


def event(item: Json, now: float) -> list[Any]:
    about, source, series = _part(item, "involvedObject"), _part(item, "source"), _part(item, "series")
    first = item.get("firstTimestamp") or item.get("eventTime")
    last = series.get("lastObservedTime") or item.get("lastTimestamp") or first
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    origin = ", ".join(filter(None, (source.get("component") or item.get("reportingComponent"), source.get("host"))))
    return [
        age.since(last, now), item.get("type", ""), item.get("reason", ""), target, about.get("fieldPath", ""),
        origin, str(item.get("message", "")).strip(), age.since(first, now),
        series.get("count") or item.get("count") or 1, _name(item),
    ]  # fmt: skip


def namespace(item: Json, now: float) -> list[Any]:
    return [_name(item), _part(item, "status").get("phase", ""), _age(item, now)]


def secret(item: Json, now: float) -> list[Any]:
    return [_name(item), item.get("type", ""), len(item.get("data") or ()), _age(item, now)]


def config_map(item: Json, now: float) -> list[Any]:
    count = len(item.get("data") or ()) + len(item.get("binaryData") or ())
    return [_name(item), count, _age(item, now)]


def service_account(item: Json, now: float) -> list[Any]:
    return [_name(item), len(item.get("secrets") or ()), _age(item, now)]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(spec: Json) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in dict.fromkeys(spec.get("accessModes") or ()))


def volume(item: Json, now: float) -> list[Any]:
    spec, status, claim = _part(item, "spec"), _part(item, "status"), _part(_part(item, "spec"), "claimRef")
    phase = "Terminating" if item["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        _name(item), _part(spec, "capacity").get("storage", ""), _modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""), phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "", spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>", status.get("reason", ""), _age(item, now),
        spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def claim(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    phase = "Terminating" if item["metadata"].get("deletionTimestamp") else status.get("phase", "")
    bound = bool(spec.get("volumeName"))
    return [
        _name(item), phase, spec.get("volumeName", ""), _part(status, "capacity").get("storage", "") if bound else "",
        _modes(status) if bound else "", spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>", _age(item, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def job(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    wanted, done = spec.get("completions"), status.get("succeeded") or 0
    parallel = spec.get("parallelism") or 0
    total = str(wanted) if wanted is not None else f"1 of {parallel}" if parallel > 1 else "1"
    return [
        _name(item), _job_word(item, status), f"{done}/{total}", _job_time(status, now), _age(item, now),
        *_containers(item), _selector(spec),
    ]  # fmt: skip


def _job_word(item: Json, status: Json) -> str:
    true = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in true:
            return word
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    pairs = (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet",) * 2)
    return next((word for condition, word in pairs if condition in true), "Running")


def _job_time(status: Json, now: float) -> str:
    started = timestamp.parse(status.get("startTime"))
    if started is None:
        return ""
    ended = timestamp.parse(status.get("completionTime"))
    return age.human((now if ended is None else ended) - started)


def cron_job(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    last = status.get("lastScheduleTime")
    template = {"spec": _part(_part(spec, "jobTemplate"), "spec")}
    return [
        _name(item), spec.get("schedule", ""), spec.get("timeZone") or NONE, str(bool(spec.get("suspend"))),
        len(status.get("active") or ()), age.since(last, now) if last else NONE, _age(item, now),
        *_containers(template), NONE,
    ]  # fmt: skip


def deployment(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [_name(item), ready, *counts, _age(item, now), *_containers(item), _selector(spec)]


def stateful_set(item: Json, now: float) -> list[Any]:
    ready, wanted = _part(item, "status").get("readyReplicas", 0), _part(item, "spec").get("replicas", 0)
    return [_name(item), f"{ready}/{wanted}", _age(item, now), *_containers(item)]


def replica_set(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(item), *counts, _age(item, now), *_containers(item), _selector(spec)]


def daemon_set(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    keys = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    counts = [status.get(key, 0) for key in (*keys, "updatedNumberScheduled", "numberAvailable")]
    nodes = _part(_part(_part(spec, "template"), "spec"), "nodeSelector")
    chosen = selector.render(nodes) or NONE
    return [_name(item), *counts, chosen, _age(item, now), *_containers(item), _selector(spec)]


def autoscaler(item: Json, now: float) -> list[Any]:
    spec, status = _part(item, "spec"), _part(item, "status")
    target = _part(spec, "scaleTargetRef")
    metrics = spec.get("metrics") or []
    goals = _first_few([f"{metric.get('type', '').lower()}: <unknown>/{_goal(metric)}" for metric in metrics], 2)
    low = spec.get("minReplicas")
    return [
        _name(item), f"{target.get('kind')}/{target.get('name')}", goals, "<unset>" if low is None else str(low),
        spec.get("maxReplicas", 0), status.get("currentReplicas", 0), _age(item, now),
    ]  # fmt: skip


def _goal(metric: Json) -> str:
    source = next((value for key, value in metric.items() if key != "type" and isinstance(value, dict)), {})
    target = _part(source, "target")
    used = target.get("averageUtilization")
    return f"{used}%" if used is not None else str(target.get("averageValue") or target.get("value") or "<auto>")


def priority_class(item: Json, now: float) -> list[Any]:
    policy = item.get("preemptionPolicy") or "PreemptLowerPriority"
    return [_name(item), item.get("value", 0), bool(item.get("globalDefault")), _age(item, now), policy]


def lease(item: Json, now: float) -> list[Any]:
    return [_name(item), _part(item, "spec").get("holderIdentity", ""), _age(item, now)]


def created(item: Json, now: float) -> list[Any]:
    return [_name(item), item["metadata"].get("creationTimestamp", "")]


def aged(item: Json, now: float) -> list[Any]:
    return [_name(item), _age(item, now)]


def quota(item: Json, now: float) -> list[Any]:
    hard, used = _part(_part(item, "status"), "hard"), _part(_part(item, "status"), "used")
    shown = {name: f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [_name(item), ", ".join(requests), ", ".join(limits), _age(item, now)]


def binding(item: Json, now: float) -> list[Any]:
    role, subjects = _part(item, "roleRef"), item.get("subjects") or []
    named = {
        kind: [s.get("name", "") for s in subjects if s.get("kind") == kind] for kind in ("User", "Group")
    }  # fmt: skip
    accounts = [f"{s.get('namespace', '')}/{s.get('name')}" for s in subjects if s.get("kind") == "ServiceAccount"]
    lists = [", ".join(names) for names in (named["User"], named["Group"], accounts)]
    return [_name(item), f"{role.get('kind')}/{role.get('name')}", _age(item, now), *lists]


def webhooks(item: Json, now: float) -> list[Any]:
    return [_name(item), len(item.get("webhooks") or ()), _age(item, now)]


def disruption_budget(item: Json, now: float) -> list[Any]:
    spec = _part(item, "spec")
    bounds = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [_name(item), *bounds, _part(item, "status").get("disruptionsAllowed", 0), _age(item, now)]


def storage_class(item: Json, now: float) -> list[Any]:
    marks = item["metadata"].get("annotations") or {}
    default = " (default)" if marks.get("storageclass.kubernetes.io/is-default-class") == "true" else ""
    return [
        _name(item) + default, item.get("provisioner", ""), item.get("reclaimPolicy", "Delete"),
        item.get("volumeBindingMode", "Immediate"), bool(item.get("allowVolumeExpansion")), _age(item, now),
    ]  # fmt: skip


def endpoint_slice(item: Json, now: float) -> list[Any]:
    ports = [str(port.get("port")) for port in item.get("ports") or ()]
    found = [address for endpoint in item.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [_name(item), item.get("addressType", ""), _first_few(ports), _first_few(found), _age(item, now)]
