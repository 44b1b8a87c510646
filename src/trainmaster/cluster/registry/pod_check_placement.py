"""Whether what a pod says about where it may run makes sense: tolerations and node affinity, in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry.status_error import Cause, forbidden_field, invalid_value, required, unsupported
from trainmaster.cluster.registry.validation import label_key_problems, label_value_problems

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_placement(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    yield from _node_affinity(affinity, f"{path}.affinity.nodeAffinity")


def _toleration(toleration: Mapping[str, Any], at: str) -> Iterator[Cause]:
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator = toleration.get("operator") or "Equal"
    if key:
        yield from (invalid_value(f"{at}.key", key, problem) for problem in label_key_problems(key))
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{at}.operator", operator, detail)
    if operator == "Equal":
        yield from (invalid_value(f"{at}.operator", value, problem) for problem in label_value_problems(value))
    elif operator == "Exists" and value:
        yield invalid_value(f"{at}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    elif operator != "Exists":
        yield unsupported(f"{at}.operator", operator, ("Equal", "Exists"))
    if (effect := toleration.get("effect")) and effect not in _EFFECTS:
        yield unsupported(f"{at}.effect", effect, _EFFECTS)


def _node_affinity(affinity: Mapping[str, Any], at: str) -> Iterator[Cause]:
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or []
        if not terms:
            yield required(f"{at}.{_REQUIRED}.nodeSelectorTerms", "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _term(term, f"{at}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, wish in enumerate(affinity.get(_PREFERRED) or ()):
        place, weight = f"{at}.{_PREFERRED}[{index}]", wish.get("weight") or 0
        if not 1 <= weight <= 100:
            yield invalid_value(f"{place}.weight", weight, "must be in the range 1-100")
        yield from _term(wish.get("preference") or {}, f"{place}.preference")


def _term(term: Mapping[str, Any], at: str) -> Iterator[Cause]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _expression(expression, f"{at}.matchExpressions[{index}]")


def _expression(expression: Mapping[str, Any], at: str) -> Iterator[Cause]:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{at}.values", detail)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid_value(f"{at}.operator", operator, "not a valid selector operator")
    key = expression.get("key") or ""
    yield from (invalid_value(f"{at}.key", key, problem) for problem in label_key_problems(key))
