"""One page per kind: facts from its framework, fields from its schema, and what a real example's pods get.

What facts cannot tell (what the kind is for, how its API versions differ) stands in `tools/reference/kinds/NAME.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tools.reference_schema import Field, fields
from tools.reference_text import PROSE, ROOT, code, codes, header, sections, table
from trainmaster.api import reading, schema
from trainmaster.api.framework import Framework, Role
from trainmaster.api.job import Member
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.objects import template
from trainmaster.objects.meta import Json

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("05-tensorflow-ps/job.yaml",),
    "pytorch": ("02-pytorch-ddp/job.yaml", "03-pytorch-elastic/job.yaml"),
    "mpi": ("06-mpi/job.yaml", "06-mpi/job-v1.yaml"),
    "xgboost": ("08-xgboost/job.yaml",),
    "mxnet": ("10-mxnet/job.yaml",),
    "paddle": ("12-paddle-collective/job.yaml",),
    "jax": ("11-jax/job.yaml",),
    "mindspore": ("14-mindspore/job.yaml",),
    "paddle-batch": ("13-paddle-ps/job.yaml",),
}
BY_ROLE = "[by role](#roles)"
FLAT = """
The fields of `runPolicy` may also stand directly under `spec`, as old manifests have them; those of `runPolicy` win.
Fields of pod templates are those of Kubernetes. A field that is not listed is kept, and named in a warning.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A manifest, and what it becomes."""

    path: str
    body: dict[str, Any]
    observed: Observed
    objects: tuple[Json, ...]


def page_name(framework: Framework) -> str:
    """Two groups have a PaddleJob; the one that is not kubeflow's bears its framework's name."""
    is_plain = framework.group == Framework.group or framework.name == "mindspore"
    return f"{framework.singular}.md" if is_plain else f"{framework.singular}-{framework.name.partition('-')[2]}.md"


def files(known: Iterable[Framework]) -> Iterator[tuple[str, str]]:
    frameworks = tuple(known)
    yield "kinds/README.md", _index(frameworks)
    for framework in frameworks:
        yield f"kinds/{page_name(framework)}", _page(framework)


def _index(frameworks: Iterable[Framework]) -> str:
    rows = [
        (f"[{framework.kind}]({page_name(framework)})", codes(_api_versions(framework)), _roles_in_words(framework))
        for framework in frameworks
    ]
    text = (PROSE / "kinds" / "README.md").read_text()
    listed = table(("kind", "apiVersion", "roles"), rows)
    return header("the frameworks") + text.replace("{kinds}\n", listed)


def _page(framework: Framework) -> str:
    prose = sections((PROSE / "kinds" / f"{framework.name}.md").read_text())
    shown = [example(framework, path) for path in EXAMPLES[framework.name]]
    parts = [
        header("the schemas and tools/reference/kinds"),
        f"# {framework.kind}\n\n{prose.pop('')}\n",
        table(("", ""), _facts(framework)),
        "## Roles\n\n"
        + table(("role", "replicas", "restartPolicy", "remarks"), _roles(framework))
        + _after(prose.pop("Roles", "")),
        "## Example\n\n" + _example(shown[0]),
        "## What its pods get\n\n" + "\n".join(_gifts(one) for one in shown),
        "## Fields of spec\n\n" + _spec(framework),
        "## Fields of status\n\n" + _status(framework),
        *(f"## {heading}\n\n{body}\n" for heading, body in prose.items()),
    ]
    return "\n".join(parts)


def _api_versions(framework: Framework) -> list[str]:
    """Retired versions are served only so that they can say so."""
    own = [f"{framework.group}/{version}" for version in (framework.version, *framework.older_versions)]
    kept = [name for name in own if name.rpartition("/")[2] not in framework.deprecated]
    return [*kept, *(f"{alias.group}/{alias.version} {alias.kind}" for alias in framework.aliases)]


def _roles_in_words(framework: Framework) -> str:
    return ", ".join(role.name for role in framework.roles)


def _facts(framework: Framework) -> Iterator[tuple[str, str]]:
    yield "apiVersion", codes(_api_versions(framework))
    yield "to kubectl", codes((framework.plural, framework.singular, *framework.short_names))
    yield "training container", codes(framework.container_names) or "the first one, whatever its name"
    if framework.port:
        yield "port", f"{code(framework.port)}, named {code(framework.port_name)}; declare another under that name"
    yield "pods", f"{code('JOB-ROLE-INDEX')}, such as {code('ddp-worker-0')}" + _unnumbered(framework)
    if framework.scalable_role:
        yield "scaled by `kubectl scale`", framework.scalable_role
    yield "columns of `kubectl get`", codes(column[0] for column in framework.columns)
    yield "metrics label", code(f"framework={framework.name}")


def _unnumbered(framework: Framework) -> str:
    bare = [role.name for role in framework.roles if not role.numbered]
    return f"; {codes(f'JOB-{name.lower()}' for name in bare)} has no index" if bare else ""


def _roles(framework: Framework) -> Iterator[tuple[str, ...]]:
    for role in framework.roles:
        remarks = [
            "required" if role.required else "",
            _bounds(role),
            "labelled `job-role: master`" if role.leader else "",
            "made by a Kubernetes Job" if role.delegated else "",
        ]
        policy = role.restart_policy or framework.restart_policy
        yield code(role.name), code(role.replicas), code(policy), "; ".join(remark for remark in remarks if remark)


def _bounds(role: Role) -> str:
    if role.max is not None:
        return f"exactly {role.max}" if role.min == role.max else f"at most {role.max}"
    return f"at least {role.min}" if role.min else ""


def example(framework: Framework, path: str) -> Example:
    bodies = yaml.safe_load_all((ROOT / "examples" / path).read_text())
    body = next(body for body in bodies if body["kind"] == framework.kind)
    placed = {**body, "metadata": {"namespace": "default", **body["metadata"]}}
    read = reading.read(framework, placed)
    if read.job is None:
        raise ValueError(f"examples/{path}: {'; '.join(map(str, read.problems))}")
    observed = Observed(read.framework, read.job)
    return Example(path, body, observed, tuple(action.body for action in blueprint(observed)))


def _example(shown: Example) -> str:
    """The manifest, and how its own page says that it is run."""
    directory = (ROOT / "examples" / shown.path).parent
    text = (ROOT / "examples" / shown.path).read_text()
    command = (directory / "README.md").read_text().partition("```sh\n")[2].partition("```")[0]
    return (
        f"[`examples/{shown.path}`](../../examples/{directory.name}):\n\n```yaml\n{text}```\n\n"
        f"In a clone, with an environment that has what it needs:\n\n```sh\n{command}```\n"
    )


def _gifts(shown: Example) -> str:
    """Variables by role, of the first replica of each, and every object that the job has."""
    job = shown.observed.job
    firsts = [member for member in job.members() if member.index == 0]
    given = {member.name: _given(shown, member) for member in firsts}
    names = dict.fromkeys(name for variables in given.values() for name in variables)
    rows = [(code(name), *(_shown(given[m.name].get(name)) for m in firsts)) for name in names]
    titles = [member.name.removeprefix(f"{job.name}-") for member in firsts]
    made = codes(f"{item['kind']} {item['metadata']['name']}" for item in shown.objects)
    return (
        f"Of `examples/{shown.path}` ({job.api_version}), beside what its templates say:\n\n"
        + table(("variable", *titles), rows)
        + f"\nAll its objects, in the order of creation: {made}.\n"
    )


def _shown(value: str | None) -> str:
    return "" if value is None else code(value) or "(empty)"


def _given(shown: Example, member: Member) -> dict[str, str]:
    """What the training container has and its template has not."""
    container = _container(shown, member)
    own = {entry["name"] for entry in _trained(member.replica.template, shown).get("env", ())}
    maps = {item["metadata"]["name"]: item.get("data", {}) for item in shown.objects if item["kind"] == "ConfigMap"}
    taken: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        taken |= maps.get(source.get("configMapRef", {}).get("name"), {})
    return taken | {entry["name"]: _value(entry) for entry in container.get("env", ()) if entry["name"] not in own}


def _container(shown: Example, member: Member) -> Json:
    for item in shown.objects:
        if item["metadata"]["name"] == member.name and item["kind"] in ("Pod", "Job"):
            pod = item if item["kind"] == "Pod" else item["spec"]["template"]
            return _trained(pod, shown)
    raise ValueError(f"examples/{shown.path}: {member.name} is not planned")


def _trained(pod: Json, shown: Example) -> Json:
    found = template.container_named(pod, shown.observed.framework.container_names)
    return found or template.containers_of(pod)[0]


def _value(entry: Json) -> str:
    return str(entry["value"]) if "value" in entry else f"<{entry['valueFrom']['fieldRef']['fieldPath']}>"


def _spec(framework: Framework) -> str:
    """Flat policy fields and the misspelt `RunPolicy` are told of in words."""
    own = schema.spec_schema(framework)
    flat = {
        f"spec.{name}" for name in (*schema.RUN_POLICY_FIELDS, schema.INLINED_POLICY) if name not in framework.fields
    }
    rows = fields("spec", own, left_out=flat)
    return _fields_table(framework, rows) + FLAT


def _fields_table(framework: Framework, rows: Iterable[Field]) -> str:
    known = [_completed(framework, row) for row in rows]
    return table(
        ("field", "type", "default", "meaning"), [(code(row.path), row.type, row.default, row.meaning) for row in known]
    )


def _completed(framework: Framework, row: Field) -> Field:
    """With what is filled in or checked on reading, and so is not in the schema that all kinds share."""
    if framework.replicas_field:
        row = row._replace(
            path=row.path.replace(f"{framework.replicas_field}.NAME", f"{framework.replicas_field}.ROLE")
        )
    match row.path.rpartition(".")[2]:
        case "replicas":
            return row._replace(default=BY_ROLE, meaning="How many of them.")
        case "restartPolicy":
            policies = codes(framework.restart_policies)
            return row._replace(
                type=policies,
                default=BY_ROLE,
                meaning="What is started again; see [restarts](../operator.md#what-a-job-may-say).",
            )
        case "template":
            trainer = f"The container {code(framework.container)}" if framework.container else "The first container"
            return row._replace(meaning=f"The pod of each. {trainer} trains.")
        case "cleanPodPolicy":
            own = framework.fields.get("cleanPodPolicy", {}).get("description", row.meaning)
            return row._replace(default=row.default or code(framework.clean_pod_policy), meaning=own)
    return row


def _status(framework: Framework) -> str:
    status = schema.object_schema(framework)["properties"]["status"]
    rows = [row for row in fields("status", status) if not row.path.startswith("status.conditions[]")]
    lines = [(code(row.path), row.type, row.meaning) for row in rows]
    return table(("field", "type", "meaning"), lines)


def _after(text: str) -> str:
    return f"\n{text}\n" if text else ""
