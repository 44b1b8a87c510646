"""The installation as a Helm chart: the objects of `trainmaster manifests`, with marks put in where values go.

An object is built with marks where values belong and written as YAML; then the marks become what Helm reads.
So the templates follow every change of the installation, and for default values give the same objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import trainmaster
from tools.generate_rights import NAMESPACE, PLACE, helpers, rights
from tools.generate_text import HEADER, yaml_text
from tools.generate_values import values, values_schema, values_table, values_yaml
from tools.generate_webhooks import webhooks
from trainmaster.api import schema
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import Json, mutable
from trainmaster.operator.install import NAME, Installation, manifests

IMAGE, REPLICAS = "HELM-IMAGE", "HELM-REPLICAS"
SCALARS = {
    f"{NAME}-{NAMESPACE}": '{{ include "trainmaster.nameOutside" . }}',
    NAMESPACE: "{{ .Release.Namespace }}",
    IMAGE: '{{ include "trainmaster.image" . }}',
    REPLICAS: "{{ .Values.replicas }}",
    "HELM-AVAILABLE": "{{ .Values.podDisruptionBudget.minAvailable }}",
}
BLOCK = re.compile(r"^(?P<indent> *)(?P<key>\S+): HELM-BLOCK-(?P<value>\S+)\n", re.MULTILINE)
LABELS = re.compile(r"^(?P<indent> *)HELM-LABELS: ''\n", re.MULTILINE)
HOOKED = {
    "args": re.compile(r"^(?P<indent> *)HELM-HOOKED\n", re.MULTILINE),
    "ports": re.compile(r"^(?P<indent> *)HELM-HOOKED-PORT\n", re.MULTILINE),
}
PORT = re.compile(r"^(?P<indent> *)- HELM-PORT\n", re.MULTILINE)
ARGUMENTS = re.compile(r"^(?P<indent> *)- HELM-ARGUMENTS\n", re.MULTILINE)
FLAGS = """\
{{- range .Values.schemes }}
- --enable-scheme={{ . }}
{{- end }}
{{- if .Values.webhooks.mode }}
HELM-HOOKED
{{- end }}
{{- with .Values.watchNamespace }}
- --namespace={{ . }}
{{- end }}
{{- with .Values.gangScheduler }}
- --gang-scheduler-name={{ . }}
{{- end }}
{{- with .Values.compat }}
- --compat={{ . }}
{{- end }}
{{- if .Values.strictTopology }}
- --strict-topology
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
"""
PORTS = """\
{{- if .Values.webhooks.mode }}
HELM-HOOKED-PORT
{{- end }}
"""
KEPT = """\
{{- if .Values.crds.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
"""


def files(frameworks: tuple[Framework, ...]) -> Iterator[tuple[str, str]]:
    table = values(frameworks)
    installation = Installation(frameworks, **PLACE, image=IMAGE)
    objects = _by_kind(manifests(installation))
    yield "Chart.yaml", HEADER + yaml_text(_chart())
    yield "values.yaml", values_yaml(table)
    yield "values.schema.json", values_schema(table)
    yield "README.md", README.format(table="".join(values_table(table)))
    yield "templates/NOTES.txt", NOTES
    yield "templates/_helpers.tpl", helpers(frameworks)
    yield "templates/crds.yaml", _crds(frameworks)
    yield "templates/rights.yaml", _plain(rights(frameworks))
    yield "templates/webhooks.yaml", _plain(webhooks(frameworks))
    yield "templates/account.yaml", _template(_annotated(objects["ServiceAccount"], "serviceAccount.annotations"))
    yield "templates/service.yaml", _template(_annotated(objects["Service"], "metrics.annotations"))
    yield "templates/deployment.yaml", _template(_deployment(objects["Deployment"]), _hooked(installation))
    yield "templates/networkpolicy.yaml", _network_policy(replace(installation, webhooks="all"))
    yield "templates/disruptionbudget.yaml", _budget(objects["PodDisruptionBudget"])


def _by_kind(objects: Iterable[Json]) -> dict[str, dict[str, Any]]:
    return {item["kind"]: mutable(item) for item in objects}


def _chart() -> Json:
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": "One operator for every training framework",
        "type": "application",
        "version": trainmaster.__version__,
        "appVersion": trainmaster.__version__,
        "kubeVersion": ">=1.20.0-0",
    }


def _annotated(item: dict[str, Any], value: str) -> dict[str, Any]:
    item["metadata"]["annotations"] = f"HELM-BLOCK-{value}"
    return item


def _deployment(item: dict[str, Any]) -> dict[str, Any]:
    item["spec"]["replicas"] = REPLICAS
    template = item["spec"]["template"]
    template["metadata"] = {
        "annotations": "HELM-BLOCK-podAnnotations",
        "labels": {**template["metadata"]["labels"], "HELM-LABELS": ""},
    }
    pod = template["spec"]
    placed = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets")
    template["spec"] = {**{name: f"HELM-BLOCK-{name}" for name in placed}, **pod}
    container = pod["containers"][0]
    container["args"] = [*container["args"], "HELM-ARGUMENTS"]
    container["ports"] = [*container["ports"], "HELM-PORT"]
    container["resources"] = "HELM-BLOCK-resources"
    container["imagePullPolicy"] = "HELM-BLOCK-image.pullPolicy"
    return item


def _budget(item: dict[str, Any]) -> str:
    """Not for a lone operator, of which none could be evicted, nor for clusters that lack the kind."""
    item["spec"]["minAvailable"] = "HELM-AVAILABLE"
    asked = ".Values.podDisruptionBudget.enabled", "(gt (int .Values.replicas) 1)"
    known = f'(.Capabilities.APIVersions.Has "{item["apiVersion"]}")'
    return f"{HEADER}{{{{- if and {' '.join(asked)} {known} }}}}\n{_filled(yaml_text(item))}{{{{- end }}}}\n"


def _network_policy(installation: Installation) -> str:
    """Anybody may call, unless values say who; the webhook's port is open where there is a webhook."""
    item = _by_kind(manifests(installation))["NetworkPolicy"]
    metrics, health, webhook = item["spec"]["ingress"]
    metrics["from"] = "HELM-BLOCK-networkPolicy.metricsFrom"
    webhook["from"] = "HELM-BLOCK-networkPolicy.webhookFrom"
    item["spec"]["ingress"] = [metrics, health, "HELM-IF-WEBHOOKS", webhook, "HELM-END"]
    text = _filled(yaml_text(item))
    for mark, expression in (("HELM-IF-WEBHOOKS", "{{- if .Values.webhooks.mode }}"), ("HELM-END", "{{- end }}")):
        text = text.replace(f"- {mark}", expression)
    return f"{HEADER}{{{{- if .Values.networkPolicy.enabled }}}}\n{text}{{{{- end }}}}\n"


def _crds(frameworks: Iterable[Framework]) -> str:
    parts = [HEADER, "{{- if .Values.crds.install }}\n"]
    for framework in frameworks:
        parts.append(f'{{{{- if include "trainmaster.runs" (list . "{framework.kind}") }}}}\n')
        for resource in framework.served:
            crd = mutable(schema.crd(framework, resource))
            parts.append(
                "---\n" + _filled(yaml_text(crd)).replace("metadata:\n", "metadata:\n" + _indented(KEPT, 2), 1)
            )
        parts.append("{{- end }}\n")
    return "".join([*parts, "{{- end }}\n"])


def _hooked(installation: Installation) -> dict[str, list[Any]]:
    """What webhooks add to the operator's container, by the field to which they add it."""
    pods = [
        _by_kind(manifests(one))["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        for one in (installation, replace(installation, webhooks="all"))
    ]
    return {name: [part for part in pods[1][name] if part not in pods[0][name]] for name in ("args", "ports")}


def _template(item: Json, hooked: dict[str, list[Any]] | None = None) -> str:
    text = _filled(yaml_text(item))
    for name, parts in (hooked or {}).items():
        text = HOOKED[name].sub(_adding(parts), text)
    return HEADER + _scalars(text)


def _adding(parts: list[Any]) -> Callable[[re.Match[str]], str]:
    return lambda match: _indented(yaml_text(parts), len(match["indent"]))


def _plain(text: str) -> str:
    return HEADER + _scalars(text)


def _filled(text: str) -> str:
    if "{{" in text:
        raise ValueError("an object holds {{, which Helm would take for its own")
    text = ARGUMENTS.sub(lambda match: _indented(FLAGS, len(match["indent"])), text)
    text = PORT.sub(lambda match: _indented(PORTS, len(match["indent"])), text)
    text = LABELS.sub(lambda match: _block(match["indent"], "", "podLabels"), text)
    text = BLOCK.sub(lambda match: _block(match["indent"], match["key"], match["value"]), text)
    return _scalars(text)


def _scalars(text: str) -> str:
    for mark, expression in SCALARS.items():
        text = text.replace(mark, expression)
    return text


def _block(indent: str, key: str, value: str) -> str:
    """A value of any shape under its key, or among its neighbours; nothing where it is empty."""
    depth = len(indent) + (2 if key else 0)
    lines = [f"{{{{- with .Values.{value} }}}}", *([f"{key}:"] if key else [])]
    lines += [f"{'  ' if key else ''}{{{{- toYaml . | nindent {depth} }}}}", "{{- end }}"]
    return _indented("\n".join(lines) + "\n", len(indent))


def _indented(text: str, depth: int) -> str:
    return "".join(f"{' ' * depth}{line}\n" for line in text.splitlines())


NOTES = """\
Trainmaster runs in namespace {{ .Release.Namespace }}{{ with .Values.watchNamespace }} for jobs in {{ . }}{{ end }}.

  kubectl -n {{ .Release.Namespace }} rollout status deployment/trainmaster
"""
README = """\
<!-- Generated by `make generate`; do not edit. -->
# Trainmaster

One operator for every training framework. See `docs/install.md` for what is installed, and `docs/upgrade.md` for taking
over from other operators.

    helm install trainmaster deploy/helm/trainmaster --namespace trainmaster-system --create-namespace

With default values this installs what `trainmaster manifests` prints. CRDs that an older operator has left belong to no
release: `--take-ownership` (Helm 3.17) makes them this one's, or `--set crds.install=false` leaves them to
`kubectl apply --server-side --force-conflicts -k deploy/kustomize/crds`.

{table}"""
