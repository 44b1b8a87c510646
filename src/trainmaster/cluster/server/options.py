"""The query parameters of a request, read as Kubernetes reads them, with its words for those that are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from trainmaster.cluster.registry.status_error import (
    ApiError,
    Cause,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    required,
    unsupported,
)
from trainmaster.objects.resource import Resource

Query = MultiMapping[str]
_MAX_MANAGER = 128


def flag(query: Query, name: str) -> bool:
    """Anything but a plain no is a yes, also a parameter without a value."""
    return name in query and query[name].lower() not in ("false", "0")


def integer(query: Query, name: str, default: int = 0) -> int:
    text = query.get(name, "")
    if not text:
        return default
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(digits) > 18:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def revision(query: Query, name: str = "resourceVersion") -> int | None:
    """None when it is not given."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(400, "BadRequest", f'{name}: Invalid value: "{text}": {why}')
    return int(text)


def is_dry_run(query: Query, options: str, body: Mapping[str, Any] | None = None) -> bool:
    """`options` names the options type in a refusal, such as CreateOptions; DELETE may say it in its body."""
    values = query.getall("dryRun", []) or (body or {}).get("dryRun") or []
    values = values if isinstance(values, list) else [values]
    if not values:
        return False
    if values != ["All"]:
        shown = "[]string{" + ", ".join(f'"{value}"' for value in values) + "}"
        cause = unsupported("dryRun", "", ["All"])
        detail = cause.detail.replace('""', shown, 1)
        raise invalid(_options(options), "", [type(cause)(cause.reason, cause.field, detail)])
    return True


def manager(request: web.BaseRequest, options: str) -> str:
    """Who the fields belong to: as the client says, else the name it goes by."""
    name = _named_manager(request.query, options)
    return name or request.headers.get("User-Agent", "").split("/")[0][:_MAX_MANAGER]


def applier(request: web.BaseRequest) -> str:
    """Whoever applies has to say who it is."""
    name = _named_manager(request.query, "PatchOptions")
    if not name:
        raise invalid(_options("PatchOptions"), "", [required("fieldManager", "is required for apply patch")])
    return name


def force(query: Query, *, is_apply: bool) -> bool:
    if "force" in query and not is_apply:
        raise invalid(
            _options("PatchOptions"), "", [forbidden_field("force", "may not be specified for non-apply patch")]
        )
    return flag(query, "force")


def _named_manager(query: Query, options: str) -> str:
    name = query.get("fieldManager", "")
    if len(name.encode()) > _MAX_MANAGER:
        cause = Cause("FieldValueTooLong", "fieldManager", f"Too long: must have at most {_MAX_MANAGER} bytes")
        raise invalid(_options(options), "", [cause])
    odd = next((place for place, char in enumerate(name) if not char.isprintable()), None)
    if odd is not None:
        why = f"invalid character U+{ord(name[odd]):04X} (at position {odd})"
        raise invalid(_options(options), "", [invalid_value("fieldManager", name, why)])
    return name


def check_list(query: Query) -> None:
    """Combinations of a list's options that make no sense."""
    match, asked = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    field, known = "resourceVersionMatch", ("Exact", "NotOlderThan", "")
    causes: list[Cause] = []
    if match and not asked:
        causes.append(forbidden_field(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    elif match and query.get("continue"):
        causes.append(forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided"))
    elif match not in known:
        causes.append(unsupported(field, match, known))
    elif match == "Exact" and asked == "0":
        causes.append(forbidden_field(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if causes:
        raise invalid(_options("ListOptions"), "", causes)
    if query.get("continue") and asked not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def deletion(query: Query, body: Mapping[str, Any]) -> dict[str, Any]:
    """DeleteOptions of the body, with what only the address says."""
    options = dict(body)
    if "gracePeriodSeconds" in query:
        options.setdefault("gracePeriodSeconds", integer(query, "gracePeriodSeconds"))
    if "propagationPolicy" in query:
        options.setdefault("propagationPolicy", query["propagationPolicy"])
    if "orphanDependents" in query:
        options.setdefault("orphanDependents", flag(query, "orphanDependents"))
    return options


def _options(kind: str) -> Resource:
    return Resource("meta.k8s.io", "v1", kind.lower(), kind)
