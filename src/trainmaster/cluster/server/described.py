"""What the server says about itself: version, health, metrics, discovery, OpenAPI. Nothing here touches objects."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from trainmaster.cluster.registry.status_error import ApiError, unknown_path
from trainmaster.cluster.server.discovery import Discovery
from trainmaster.cluster.server.negotiation import JSON, Form, not_acceptable
from trainmaster.cluster.server.openapi import OpenApi
from trainmaster.cluster.server.resources import HEADERS, method_not_allowed

VERSION = "v1.32.0"
"""The Kubernetes release whose API this is; clients choose their ways by it."""

_PROTO_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Clients ask for it with an @ in its name, which newer ones cannot read in an answer."""

_HEALTH = ("/healthz", "/livez", "/readyz")
_ONE_YEAR = 31536000
_NO_METRICS = "the metrics API is not available: the embedded cluster does not measure pods or nodes yet"
PUBLIC = frozenset({*_HEALTH, "/version"})
"""Answered to anyone, as on a real cluster."""


class Described:
    def __init__(
        self, discovery: Discovery, openapi: OpenApi, revision: Callable[[], int], requests: Counter[Any]
    ) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._revision = revision
        self._requests = requests

    def answer(self, request: web.BaseRequest, form: Form | None) -> web.Response:
        path = request.path.rstrip("/") or "/"
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if path.startswith("/api"):
            return self._discover(path, form)
        if path.startswith("/openapi/"):
            return self._open_api(request, path)
        if path.startswith(_HEALTH):
            return _health(path, verbose="verbose" in request.query)
        if path == "/version":
            return _json(_version())
        if path == "/metrics":
            return _text(self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
        if path == "/":
            return _json({"paths": self._discovery.paths()})
        return not_found()

    def _discover(self, path: str, form: Form | None) -> web.Response:
        if form is None:
            raise not_acceptable()
        parts = path[1:].split("/")
        if parts in (["api"], ["apis"]):
            return self._roots(core=parts == ["api"], form=form)
        if parts[0] == "apis" and len(parts) == 2:
            group = self._discovery.group(parts[1])
            return not_found() if group is None else _json(group)
        within = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
        if parts[0] not in ("api", "apis") or len(within) != 2:
            return not_found()
        if within[0] == "metrics.k8s.io":
            raise no_metrics()
        resources = self._discovery.resource_list(*within)
        if resources is None:
            raise unknown_path()
        return _json(resources)

    def _roots(self, *, core: bool, form: Form) -> web.Response:
        if form.kind == "APIGroupDiscoveryList":
            media = f"{JSON};g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
            return _json(self._discovery.aggregated(core=core, version=form.version), media)
        return _json(self._discovery.versions() if core else self._discovery.group_list())

    def _open_api(self, request: web.BaseRequest, path: str) -> web.Response:
        accept = request.headers.get("Accept", "")
        parts = path[1:].split("/")[1:]
        if parts == ["v2"]:
            if "proto-openapi.spec.v2" in accept and accept.split(",")[0].strip().startswith("application/com.github"):
                return _document(request, self._openapi.v2_proto(), _PROTO_V2)
            return _document(request, self._openapi.v2(), JSON)
        if parts == ["v3"]:
            return _document(request, self._openapi.v3_index(), JSON)
        within = parts[2:] if parts[:2] == ["v3", "apis"] else ["", *parts[2:]]
        found = self._openapi.v3(*within) if parts[:1] == ["v3"] and len(within) == 2 else None
        return not_found() if found is None else _document(request, found, JSON)

    def _metrics(self) -> str:
        lines = ["# TYPE apiserver_request_total counter"]
        for (verb, code), count in sorted(self._requests.items()):
            lines.append(f'apiserver_request_total{{verb="{verb}",code="{code}"}} {count}')
        lines += ["# TYPE apiserver_storage_revision gauge", f"apiserver_storage_revision {self._revision()}"]
        return "\n".join(lines) + "\n"


def no_metrics() -> ApiError:
    return ApiError(503, "ServiceUnavailable", _NO_METRICS, {})


def not_found() -> web.Response:
    """Not a Status: paths that no API could ever have are not the API's to refuse."""
    return _text("404 page not found\n", status=404)


def _health(path: str, *, verbose: bool) -> web.Response:
    name, _, check = path[1:].partition("/")
    if check not in ("", "ping", "etcd", "log"):
        return not_found()
    return _text(f"[+]ping ok\n[+]log ok\n[+]store ok\n{name} check passed\n" if verbose else "ok")


def _version() -> dict[str, str]:
    major, minor = VERSION[1:].split(".")[:2]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": major,
        "minor": minor,
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2024-12-11T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": "trainmaster",
        "platform": f"{platform.system().lower()}/{machine}",
    }


def _document(request: web.BaseRequest, document: tuple[bytes, str], media: str) -> web.Response:
    """With a tag, so that a client which has it need not fetch it again; for ever if its address names the hash."""
    body, mark = document
    headers = {"Content-Type": media, "ETag": f'"{mark}"', "Vary": "Accept"}
    fixed = request.query.get("hash") == mark
    headers["Cache-Control"] = f"public, immutable, max-age={_ONE_YEAR}" if fixed else "no-cache, private"
    if mark in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


def _json(value: Any, media: str = JSON) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers={**HEADERS, "Content-Type": media})


def _text(text: str, media: str = "text/plain; charset=utf-8", *, status: int = 200) -> web.Response:
    headers = {"Content-Type": media, "Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
    return web.Response(body=text.encode(), headers=headers, status=status)
