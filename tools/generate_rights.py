"""The chart's roles: which of their rules depend on which value, found by asking the installation.

Every rule is taken apart by resource, and every resource by the frameworks that need it: what all of them need stands
there plainly, the rest under a condition on the enabled kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tools.generate_text import yaml_text
from trainmaster.api.framework import Framework
from trainmaster.api.settings import Settings
from trainmaster.engine import gang
from trainmaster.objects.meta import Json
from trainmaster.operator.install import HOME, NAME, PARTS, Installation, manifests, rules

NAMESPACE, WATCHED = "HELM-NAMESPACE", "HELM-WATCHED"
PLACE: dict[str, Any] = {"namespace": NAMESPACE, "name_outside": f"{NAME}-{NAMESPACE}"}
SCHEDULERS = ("volcano", "kube-batch")
"""Those with PodGroups of their own; any other name is one of scheduler-plugins."""

HELPERS = """\
{{/* The image, by digest where one is given. */}}
{{- define "trainmaster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The name of what lies beyond the release's namespace, where it would meet what another release has there.
A namespace that ends like one of our names goes before a dot, which no namespace has in it. */}}
{{- define "trainmaster.nameOutside" -}}
{{- if eq .Release.Namespace "HELM-HOME" -}}
trainmaster
{{- else if regexMatch "(^|-)(HELM-PARTS)$" .Release.Namespace -}}
{{ .Release.Namespace }}.trainmaster
{{- else -}}
trainmaster-{{ .Release.Namespace }}
{{- end -}}
{{- end }}

{{/* Whether any of these kinds is enabled: (list . "TFJob" "PyTorchJob"). */}}
{{- define "trainmaster.runs" -}}
{{- $schemes := (first .).Values.schemes -}}
{{- $found := not $schemes -}}
{{- range rest . -}}
{{- if has . $schemes -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end }}
"""


def helpers(frameworks: tuple[Framework, ...]) -> str:
    outside = next(i for i in manifests(Installation(frameworks, watch_namespace=WATCHED)) if _is(i, "outside"))
    return "\n".join(
        (
            HELPERS.replace("HELM-HOME", HOME).replace("HELM-PARTS", "|".join(PARTS)),
            _pod_groups(),
            _define("rules", _rules_text(frameworks)),
            _define("outside", _conditional(frameworks, outside["rules"], "outside")),
        )
    )


def rights(frameworks: tuple[Framework, ...]) -> str:
    """All roles and bindings. Those of the operator are the cluster's, or the watched namespace's."""
    plain = [*_roles(Installation(frameworks, **PLACE))]
    confined = [*_roles(Installation(frameworks, **PLACE, watch_namespace=WATCHED))]
    ganged = [*_roles(Installation(frameworks, **PLACE, gang_scheduler_name=SCHEDULERS[0]))]
    main = [item for item in plain if _is(item, "")]
    return "".join(
        (
            "{{- if .Values.watchNamespace }}\n",
            *_documents((i for i in confined if _is(i, "")), include="rules"),
            "{{- if .Values.warnOutside }}\n",
            *_documents((i for i in confined if _is(i, "outside")), include="outside"),
            "{{- end }}\n",
            "{{- else }}\n",
            *_documents(main, include="rules"),
            "{{- end }}\n",
            "{{- if .Values.gangScheduler }}\n",
            *_documents(i for i in ganged if _is(i, "priorities")),
            "{{- end }}\n",
            *_documents(i for i in plain if _is(i, "leader-election")),
        )
    ).replace(WATCHED, "{{ .Values.watchNamespace }}")


def _roles(installation: Installation) -> Iterator[Json]:
    return (item for item in manifests(installation) if item["apiVersion"].startswith("rbac."))


def _is(item: Json, part: str) -> bool:
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    name = item["metadata"]["name"].replace(f"-{NAMESPACE}", "")
    return item["kind"] in kinds and name.partition("-")[2] == part


def _documents(items: Iterable[Json], include: str = "") -> Iterator[str]:
    for item in items:
        if include and "rules" in item:
            body = yaml_text({key: value for key, value in item.items() if key != "rules"})
            yield f'---\n{body}rules:\n{{{{- include "trainmaster.{include}" . }}}}\n'
        else:
            yield f"---\n{yaml_text(item)}"


def _define(name: str, body: str) -> str:
    return f'{{{{- define "trainmaster.{name}" }}}}\n{body}{{{{- end }}}}\n'


def _pod_groups() -> str:
    """The API group of the chosen scheduler's PodGroups."""
    known = " ".join(f'"{name}" "{_group_of(name)}"' for name in SCHEDULERS)
    chosen = f'get (dict {known}) (lower .Values.gangScheduler) | default "{_group_of("another")}"'
    return f'{{{{- define "trainmaster.podGroups" -}}}}\n{{{{- {chosen} -}}}}\n{{{{- end }}}}\n'


def _group_of(scheduler: str) -> str:
    resource = gang.resource_of(Settings(gang_scheduler=scheduler))
    assert resource is not None
    return resource.group


def _rules_text(frameworks: tuple[Framework, ...]) -> str:
    """With the rule for PodGroups where the installation has it."""
    ganged = rules(Installation(frameworks, gang_scheduler_name=SCHEDULERS[0]))
    group = gang.VOLCANO.group
    at = next(index for index, rule in enumerate(ganged) if rule["apiGroups"] == [group])
    before, after = ganged[:at], ganged[at + 1 :]
    pod_groups = yaml_text([ganged[at]]).replace(group, '{{ include "trainmaster.podGroups" . }}')
    return "".join(
        (
            _conditional(frameworks, before),
            "{{- if .Values.gangScheduler }}\n",
            pod_groups,
            "{{- end }}\n",
            _conditional(frameworks, after),
        )
    )


def _conditional(frameworks: tuple[Framework, ...], given: Iterable[Json], part: str = "") -> str:
    return "".join(_rule(frameworks, rule, part) for rule in given)


def _rule(frameworks: tuple[Framework, ...], rule: Json, part: str) -> str:
    """One rule, each of its resources under its own condition, all of it under that of any."""
    needed = {resource: _needing(frameworks, rule, resource, part) for resource in rule["resources"]}
    anybody = [f for f in frameworks if any(f in who for who in needed.values())]
    lines = ["- apiGroups:\n", f"  - {rule['apiGroups'][0] or chr(34) * 2}\n", "  resources:\n"]
    for resource, who in needed.items():
        lines += _under(frameworks, who if len(who) < len(anybody) else list(frameworks), f"  - {resource}\n")
    lines += ["  verbs:\n", *(f"  - {verb}\n" for verb in rule["verbs"])]
    return "".join(_under(frameworks, anybody, "".join(lines)))


def _under(frameworks: tuple[Framework, ...], who: list[Framework], text: str) -> Iterator[str]:
    if len(who) == len(frameworks):
        yield text
        return
    kinds = " ".join(dict.fromkeys(f'"{framework.kind}"' for framework in who))
    yield f'{{{{- if include "trainmaster.runs" (list . {kinds}) }}}}\n'
    yield text
    yield "{{- end }}\n"


def _needing(frameworks: tuple[Framework, ...], rule: Json, resource: str, part: str) -> list[Framework]:
    """The frameworks that have this right when they are alone."""
    return [f for f in frameworks if any(_grants(alone, rule, resource) for alone in _alone(f, part))]


def _alone(framework: Framework, part: str) -> list[Json]:
    if not part:
        return rules(Installation((framework,)))
    confined = _roles(Installation((framework,), watch_namespace=WATCHED))
    return [rule for item in confined if _is(item, part) for rule in item.get("rules", ())]


def _grants(alone: Json, rule: Json, resource: str) -> bool:
    same = alone["apiGroups"] == rule["apiGroups"] and alone["verbs"] == rule["verbs"]
    return same and resource in alone["resources"]
