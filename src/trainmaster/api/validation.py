"""The rules every job must keep, with or without an admission webhook.

`type_problems` checks a spec against the kind's own schema; `rule_problems` checks what a schema cannot say. Both
take any JSON whatever and report everything they find, each with its field path as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs

from trainmaster.api import schema
from trainmaster.api.framework import Framework, Role
from trainmaster.api.problem import Problem, forbidden, invalid, required, unsupported
from trainmaster.objects import names, quantity, template
from trainmaster.objects.meta import Json


def type_problems(framework: Framework, spec: object) -> Iterator[Problem]:
    """Wrong types, numbers out of range, missing required fields."""
    schemed = framework.checked_as()
    written = _spellings(schemed, spec)
    for error in _validator(schemed).iter_errors(_spelt(spec, written)):
        steps = error.instance_path
        path = path_of(framework, [written.get(str(steps[0]), steps[0]), *steps[1:]] if steps else steps)
        facts = error.kind.as_dict()
        match error.kind.name:
            case "required":
                yield required(f"{path}.{facts['property']}", "is missing")
            case "enum":
                yield unsupported(path, error.instance, facts["options"])
            case "type":
                yield invalid(path, error.instance, _expected(facts["types"], error.instance))
            case "minimum":
                yield invalid(path, error.instance, f"must be at least {facts['limit']}")
            case "maximum":
                yield invalid(path, error.instance, f"must be at most {facts['limit']}")
            case "maxLength":
                yield invalid(path, error.instance, f"must have at most {facts['limit']} characters")
            case _:
                yield invalid(path, error.instance, error.message)


def _expected(types: Sequence[str], given: object) -> str:
    quotes = "; put it in quotes" if types == ["string"] and isinstance(given, bool | int | float) else ""
    return f"must be of type {' or '.join(types)}{quotes}"


def _spellings(framework: Framework, spec: object) -> dict[str, str]:
    """Of roles that stand in the spec itself: the names that the schema has for them, and those the user wrote."""
    if framework.replicas_field or not isinstance(spec, dict):
        return {}
    known = {role.name.lower() for role in framework.roles}
    return {key.lower(): key for key in spec if isinstance(key, str) and key.lower() in known}


def _spelt(spec: object, written: Mapping[str, str]) -> object:
    """The spec with the schema's names for its roles, in which alone it knows their types."""
    if not written or not isinstance(spec, dict):
        return spec
    renamed = {key: name for name, key in written.items()}
    return {renamed.get(key, key): value for key, value in spec.items()}


@lru_cache(64)  # as many as there are kinds, mostly; third parties may have dialects of their own
def _validator(framework: Framework) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(_json_schema(schema.spec_schema(framework)))


def _json_schema(node: Any) -> Any:
    """The OpenAPI subset of CRDs as JSON Schema: only int-or-string needs translating."""
    if isinstance(node, dict):
        if node.get("x-kubernetes-int-or-string"):
            return {"type": ["integer", "number", "string"]}
        return {key: _json_schema(value) for key, value in node.items() if key not in ("format", "default")}
    return [_json_schema(item) for item in node] if isinstance(node, list) else node


def path_of(framework: Framework, steps: Sequence[str | int]) -> str:
    """`spec.tfReplicaSpecs[Worker].template.spec.containers[0].image`"""
    path = "spec"
    for position, step in enumerate(steps):
        is_key = isinstance(step, int) or (position == 1 and bool(steps[0]) and steps[0] == framework.replicas_field)
        path += f"[{step}]" if is_key else f".{step}"
    return path


def empty_replicas(framework: Framework, spec: Json) -> Iterator[Problem]:
    """A role without anything below it is a mistake, though null means unset elsewhere; also of roles that stand in
    the spec itself, beside its other fields. Takes the spec as written."""
    replicas = framework.declared(spec) if framework.replicas_field else {}
    for key, value in replicas.items() if isinstance(replicas, dict) else ():
        if value is None:
            yield required(framework.path(key), "must not be empty")


def rule_problems(framework: Framework, name: str, spec: Json, roles: Mapping[str, str]) -> Iterator[Problem]:
    """Everything else. `roles` maps the keys the user wrote to canonical role names."""
    replicas = framework.declared(spec)
    field = framework.path()
    yield from _name_problems(framework, name, replicas, roles)
    yield from _policy_problems(framework, spec)
    if not isinstance(replicas, dict):
        if replicas is None:
            yield required(field, "is missing")
        return
    if not replicas:
        yield required(field, "must have at least one of " + ", ".join(role.name for role in framework.roles))
    spelt: dict[str, list[str]] = {}
    for key, canonical in roles.items():
        spelt.setdefault(canonical, []).append(key)
    for role in framework.roles:
        written = spelt.get(role.name, [])
        if role.required and not written:
            yield required(framework.path(role.name), "must be present")
        if len(written) > 1:
            yield invalid(field, written, f"these keys all mean the role {role.name}; keep one")
    for key, value in replicas.items():
        yield from _replica_problems(framework, name, framework.path(key), key, roles.get(key), value)


def _name_problems(framework: Framework, name: str, replicas: object, roles: Mapping[str, str]) -> Iterator[Problem]:
    declared = replicas if isinstance(replicas, dict) else {}
    served = [key for key, role in roles.items() if framework.role(role).served and _size(declared[key]) != 0]
    is_right, pattern = (names.is_dns_1035, names.DNS_1035) if served or not roles else (names.is_label, names.LABEL)
    if not is_right(name):
        yield invalid("metadata.name", name, f"should match: {pattern}, at most {names.MAX_LABEL} characters")


def _size(replica: object) -> object:
    return replica.get("replicas") if isinstance(replica, dict) else None


def _policy_problems(framework: Framework, spec: Json) -> Iterator[Problem]:
    nested = [(f"spec.{key}", spec.get(key)) for key in ("runPolicy", schema.INLINED_POLICY)]
    for path, policy in (*nested, ("spec", spec)):
        if not isinstance(policy, dict):
            continue
        clean = policy.get("cleanPodPolicy")
        known = framework.clean_pod_policies
        if isinstance(clean, str) and clean and known and clean.capitalize() not in known:
            yield unsupported(f"{path}.cleanPodPolicy", clean, known)
        scheduling = policy.get("schedulingPolicy")
        resources = scheduling.get("minResources") if isinstance(scheduling, dict) else None
        yield from _quantity_problems(f"{path}.schedulingPolicy.minResources", resources)


def _replica_problems(
    framework: Framework, job: str, path: str, key: str, canonical: str | None, value: object
) -> Iterator[Problem]:
    if canonical is None:
        yield unsupported(path, key, (role.name for role in framework.roles))
    if not isinstance(value, dict):
        return
    if canonical is not None:
        role = framework.role(canonical)
        yield from _size_problems(role, job, path, value.get("replicas", role.replicas))
    pod = value.get("template")
    yield from _restart_problems(framework, path, value, pod)
    yield from _template_problems(framework, f"{path}.template.spec", pod if isinstance(pod, dict) else {})


def _restart_problems(framework: Framework, path: str, replica: Json, pod: object) -> Iterator[Problem]:
    places = [(f"{path}.restartPolicy", replica.get("restartPolicy"))]
    spec = pod.get("spec") if isinstance(pod, dict) else None
    if framework.restarts_by_template and isinstance(spec, dict):
        places.append((f"{path}.template.spec.restartPolicy", spec.get("restartPolicy")))
    for place, policy in places:
        if isinstance(policy, str) and policy not in framework.restart_policies:
            yield unsupported(place, policy, framework.restart_policies)


def _size_problems(role: Role, job: str, path: str, replicas: object) -> Iterator[Problem]:
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        return
    if role.max is not None and replicas > role.max or (role.min == role.max and replicas != role.max):
        yield forbidden(f"{path}.replicas", f"must be {role.max}")
    elif replicas < role.min:
        yield forbidden(f"{path}.replicas", f"must be at least {role.min}")
    yield from _length_problems(role, job, path, f"-{max(replicas - 1, 0)}" if role.numbered else "")


def _length_problems(role: Role, job: str, path: str, ending: str) -> Iterator[Problem]:
    """The longer name is to give way. That is the job's, unless the user has named the role, too."""
    longest = f"{job}-{role.name.lower()}{ending}"
    room = names.MAX_LABEL - len(f"-{ending}")
    if not len(job) <= names.MAX_LABEL < len(longest):
        return
    field, name, other = "metadata.name", job, role.name
    if len(role.name) > len(job):
        field, name, other = f"{path}.name", role.name, job
    limit = max(room - len(other), room // 2)
    detail = f"its replica {longest} has more than {names.MAX_LABEL} characters; use a name of at most {limit}"
    yield invalid(field, name, detail)


def _template_problems(framework: Framework, path: str, pod: Json) -> Iterator[Problem]:
    spec = pod.get("spec")
    declared = spec.get("containers") if isinstance(spec, dict) else None
    if declared is not None and not isinstance(declared, list):
        return
    if not declared:
        yield required(f"{path}.containers", "must be specified")
        return
    if template.container_named(pod, framework.container_names) is None:
        yield required(f"{path}.containers", f"must have at least one container with name {framework.container}")
    for index, container in enumerate(declared):
        if isinstance(container, dict):
            yield from _container_problems(f"{path}.containers[{index}]", container)


def _container_problems(path: str, container: Json) -> Iterator[Problem]:
    for field in ("name", "image"):
        if container.get(field) in (None, ""):
            yield required(f"{path}.{field}", "is missing")
    resources = container.get("resources")
    for part in ("limits", "requests"):
        amounts = resources.get(part) if isinstance(resources, dict) else None
        yield from _quantity_problems(f"{path}.resources.{part}", amounts)


def _quantity_problems(path: str, amounts: object) -> Iterator[Problem]:
    for name, amount in amounts.items() if isinstance(amounts, dict) else ():
        if isinstance(amount, str | int | float) and not quantity.is_quantity(amount):
            yield invalid(f"{path}.{name}", amount, "must be a quantity such as 500m, 2 or 4Gi")
