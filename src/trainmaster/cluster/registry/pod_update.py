"""What may change in a pod once it exists, and what a deletion of one means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry.status_error import Cause, forbidden_field, invalid_value

_FORBIDDEN = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)"
)


def check_pod_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    if len(spec.get("containers") or ()) != len(before.get("containers") or ()):
        return [forbidden_field("spec.containers", "pod updates may not add or remove containers")]
    causes = _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    if _comparable(spec, before) != before:
        changed = sorted(key for key in {*spec, *before} if _comparable(spec, before).get(key) != before.get(key))
        causes.append(forbidden_field("spec", f"{_FORBIDDEN}\n  changed: {', '.join(changed)}"))
    return causes


def _deadline(new: int | None, old: int | None) -> list[Cause]:
    field = "spec.activeDeadlineSeconds"
    if old is not None and new is None:
        return [invalid_value(field, None, "must not update from a positive integer to nil value")]
    if old is not None and new is not None and new > old:
        return [invalid_value(field, new, "must be less than or equal to previous value")]
    return []


def _comparable(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The new spec with every permitted change undone: what still differs was not permitted."""
    made = dict(spec)
    for key in ("containers", "initContainers"):
        if key in spec and key in before and len(spec[key]) == len(before[key]):
            made[key] = [_with_image(new, old) for new, old in zip(spec[key], before[key], strict=True)]
    _undo(made, before, "activeDeadlineSeconds")
    old_tolerations = before.get("tolerations") or []
    if all(toleration in (spec.get("tolerations") or []) for toleration in old_tolerations):
        _undo(made, before, "tolerations")
    return made


def _with_image(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    return {**new, "image": old["image"]} if new.get("image") and "image" in old else dict(new)


def _undo(made: dict[str, Any], before: Mapping[str, Any], key: str) -> None:
    made.pop(key, None)
    if key in before:
        made[key] = before[key]


def grace_of(pod: Mapping[str, Any], asked: int | None) -> int:
    """Seconds a pod gets to end: none if no kubelet has it or it is already over."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(spec.get("terminationGracePeriodSeconds") or 0)
