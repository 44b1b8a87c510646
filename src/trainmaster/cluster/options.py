"""The query parameters of a request, read as Kubernetes reads them, with its words for those that are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from trainmaster.cluster.status_error import ApiError, bad_request, invalid, invalid_value, unsupported
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
    name = request.query.get("fieldManager", "")
    if len(name) > _MAX_MANAGER or not name.isprintable():
        why = "should only contain printable characters, 128 at most"
        raise invalid(_options(options), "", [invalid_value("fieldManager", name, why)])
    return name or request.headers.get("User-Agent", "").split("/")[0][:_MAX_MANAGER]


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
