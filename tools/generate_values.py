"""What users of the Helm chart may set: one table, from which values.yaml, its schema and the README are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.generate_text import HEADER, comment, yaml_text
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import Json
from trainmaster.operator.install import Installation, manifests

STRING: dict[str, Any] = {"type": "string"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
OBJECT: dict[str, Any] = {"type": "object"}
STRINGS: dict[str, Any] = {"type": "object", "additionalProperties": STRING}
LIST: dict[str, Any] = {"type": "array"}
DNS_LABEL: dict[str, Any] = {"type": "string", "maxLength": 63, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"}


@dataclass(frozen=True, slots=True)
class Value:
    path: str
    default: Any
    schema: dict[str, Any]
    about: str


def values(frameworks: tuple[Framework, ...]) -> tuple[Value, ...]:
    installation = Installation(frameworks)
    kinds = list(dict.fromkeys(framework.kind for framework in frameworks))
    return (*_process(installation), *_work(kinds), *_cluster(), *_pod(_container(installation)))


def _process(installation: Installation) -> Iterator[Value]:
    repository = _container(installation)["image"].partition(":")[0]
    policies = _one_of("", "Always", "IfNotPresent", "Never")
    yield Value("image.repository", repository, STRING, "Where the operator's image is.")
    yield Value("image.tag", "", STRING, "Which of them; the chart's appVersion if empty.")
    yield Value("image.digest", "", STRING, "`sha256:…`: exactly this image, whatever its tag.")
    yield Value("image.pullPolicy", "", policies, "Kubernetes' own default if empty.")
    yield Value("imagePullSecrets", [], LIST, "Secrets for the registry, as `- name: …`.")
    about = "Operators: one leads, the others take over when it ends."
    yield Value("replicas", installation.replicas, {"type": "integer", "minimum": 1}, about)


def _work(kinds: list[str]) -> Iterator[Value]:
    known = {"type": "array", "items": {"enum": kinds}, "uniqueItems": True}
    flags = {"type": "array", "items": STRING}
    yield Value("schemes", [], known, "Kinds of jobs to run, all if empty; CRDs and rights shrink with them.")
    about = "Confine the operator, and its rights, to this namespace; empty is all."
    yield Value("watchNamespace", "", DNS_LABEL, about)
    about = "With `watchNamespace`: let the operator list jobs elsewhere, to tell their authors that nobody runs them."
    yield Value("warnOutside", True, BOOLEAN, about)
    about = "Schedule each job's pods all or none: `volcano`, `kube-batch`, or a scheduler-plugins name; empty is off."
    yield Value("gangScheduler", "", {"type": "string", "not": {"pattern": "^[Nn][Oo][Nn][Ee]$"}}, about)
    about = "`2021`: behave as the single-framework operators of that year."
    yield Value("compat", "", _one_of("", "2021", 2021), about)
    about = "Refuse new MSJobs whose replicas could not find one another; otherwise they run, with a warning."
    yield Value("strictTopology", False, BOOLEAN, about)
    yield Value("extraArgs", [], flags, "More flags, such as `--cluster-domain=cluster.local`.")


def _cluster() -> Iterator[Value]:
    yield Value("crds.install", True, BOOLEAN, "Whether the CustomResourceDefinitions are part of the release.")
    yield Value("crds.keep", True, BOOLEAN, "Leave them, and with them all jobs, when the release is uninstalled.")
    modes = _one_of("", "validating", "all")
    yield Value(
        "webhooks.mode", "", modes, "Admission webhooks: `validating`, or `all` with defaulting; empty is none."
    )
    about = "While no webhook answers: `Ignore` lets jobs in, `Fail` keeps them out."
    yield Value("webhooks.failurePolicy", "Ignore", _one_of("Ignore", "Fail"), about)
    about = "Let others connect to the ports of `/metrics`, of the probes and of the webhook, and to no others."
    yield Value("networkPolicy.enabled", True, BOOLEAN, about)
    about = "Peers of a NetworkPolicy that may read `/metrics`; anybody if empty."
    yield Value("networkPolicy.metricsFrom", [], LIST, about)
    about = "Those that may call the webhook: the API servers, mostly an `ipBlock`; anybody if empty."
    yield Value("networkPolicy.webhookFrom", [], LIST, about)
    yield Value("podDisruptionBudget.enabled", True, BOOLEAN, "Keep an operator while nodes are drained.")
    yield Value("podDisruptionBudget.minAvailable", 1, {"type": ["integer", "string"]}, "How many of them.")


def _pod(container: Json) -> Iterator[Value]:
    yield Value("resources", container["resources"], OBJECT, "What the operator requests, and may use at most.")
    yield Value("nodeSelector", {}, STRINGS, "Labels of the nodes to run on.")
    yield Value("tolerations", [], LIST, "Taints to put up with.")
    yield Value("affinity", {}, OBJECT, "More rules of placement; operators are spread over nodes anyway.")
    yield Value("priorityClassName", "", STRING, "PriorityClass of the operator's pods.")
    yield Value("podAnnotations", {}, STRINGS, "On the operator's pods.")
    yield Value("podLabels", {}, STRINGS, "On the operator's pods, beside those that they are selected by.")
    yield Value("serviceAccount.annotations", {}, STRINGS, "On the operator's account.")
    yield Value("metrics.annotations", {}, STRINGS, "On the Service of `/metrics`, for scrapers that look for them.")


def _container(installation: Installation) -> Json:
    deployment = next(item for item in manifests(installation) if item["kind"] == "Deployment")
    container: Json = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def _one_of(*choices: str | int) -> dict[str, Any]:
    return {"enum": list(choices)}


def values_yaml(table: Iterable[Value]) -> str:
    """Grouped by the first part of their paths, each value under what it means."""
    lines = [HEADER]
    group = ""
    for value in table:
        first, _, rest = value.path.partition(".")
        lines.append("\n" if first != group or not rest else "")
        if rest and first != group:
            lines.append(f"{first}:\n")
        text = comment(value.about) + yaml_text({rest or first: value.default})
        lines += [f"{'  ' if rest else ''}{line}\n" for line in text.splitlines()]
        group = first
    return "".join(lines)


def values_schema(table: Iterable[Value]) -> str:
    """Closed, so that a misspelt value is refused; `global` is what a parent chart may hand down."""
    root: dict[str, Any] = _record({"global": OBJECT})
    for value in table:
        first, _, rest = value.path.partition(".")
        described = {"description": value.about, **value.schema}
        if rest:
            root["properties"].setdefault(first, _record({}))["properties"][rest] = described
        else:
            root["properties"][first] = described
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **root}, indent=2) + "\n"


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def values_table(table: Iterable[Value]) -> Iterator[str]:
    yield "| value | default | meaning |\n"
    yield "|---|---|---|\n"
    for value in table:
        yield f"| `{value.path}` | `{json.dumps(value.default)}` | {value.about} |\n"
