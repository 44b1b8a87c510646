"""The REST verbs on resources: reads the request, asks the registry, writes the answer in the form that is wanted.

Reads are served from stored bytes. Writes are carried through by `complete` even if the client hangs up meanwhile: a
CustomResourceDefinition must not end up stored but not served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import yaml
from aiohttp import web

from trainmaster.cluster.registry import subresources
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Listing, Registry
from trainmaster.cluster.registry.status_error import ApiError, bad_request, expired, unknown_path
from trainmaster.cluster.server import negotiation, options, table
from trainmaster.cluster.server.discovery import SUBRESOURCES, subresources_of
from trainmaster.cluster.server.negotiation import JSON, Form
from trainmaster.cluster.server.routes import Target
from trainmaster.cluster.server.watches import Watches, wish_of
from trainmaster.cluster.streams import streams
from trainmaster.cluster.streams.session import Runtime

HEADERS = {"Content-Type": JSON, "Cache-Control": "no-cache, private"}
_YAML_HEADERS = {**HEADERS, "Content-Type": negotiation.YAML}
_PATCHES = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
_APPLY = "application/apply-patch+yaml"
_PATCH_TYPES = tuple(f"application/{name}" for name in _PATCHES)
_STREAMS = {
    "log": streams.handle_log,
    "exec": streams.handle_exec,
    "attach": streams.handle_attach,
    "portforward": streams.handle_port_forward,
}
_VERBS = {  # by method: on a collection, on one object
    "GET": ("list", "get"),
    "POST": ("create", ""),
    "PUT": ("", "update"),
    "PATCH": ("", "patch"),
    "DELETE": ("deletecollection", "delete"),
}
Complete = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


class Resources:
    """Everything below /api/VERSION/ and /apis/GROUP/VERSION/ that the registry knows."""

    def __init__(
        self,
        registry: Registry,
        watches: Watches,
        *,
        runtime: Runtime | None,
        complete: Complete,
    ) -> None:
        self._registry = registry
        self._watches = watches
        self._runtime = runtime
        self._complete = complete

    async def handle(self, request: web.Request, target: Target, form: Form) -> web.StreamResponse:
        kind = self._registry.kinds.lookup(target.group, target.version, target.plural)
        if kind is None or not _is_placed(kind, target):
            raise unknown_path()
        if target.subresource:
            return await self._subresource(request, kind, target, form)
        if request.method == "GET" and (target.is_watch or (not target.name and options.flag(request.query, "watch"))):
            if "watch" not in kind.verbs:
                raise method_not_allowed()
            return await self._watches.serve(request, wish_of(request, kind, target, form))
        verb = "" if target.is_watch else _VERBS.get(request.method, ("", ""))[bool(target.name)]
        if verb not in kind.verbs or (verb == "create" and kind.namespaced and not target.namespace):
            raise method_not_allowed()
        return await self._verbs[verb](self, request, kind, target, form)

    async def _get(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        entry = self._registry.get(kind, target.namespace, target.name)
        if form is negotiation.PLAIN and not request.query_string:
            return web.Response(body=entry.raw, headers=HEADERS)
        options.revision(request.query)  # any will do, but it has to be one
        if not form.kind:
            return _answer(request, msgspec.Raw(entry.raw), form)
        return _answer(request, self._formed(request, kind, [entry.value], form, entry.value), form)

    async def _list(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        listing = self._listing(request, kind, target)
        if not form.kind:
            return _answer(request, msgspec.Raw(_list_body(kind, listing)), form)
        metadata = _list_metadata(listing)
        items = [entry.value for entry in listing.items]
        if form.kind == "PartialObjectMetadata":
            return _answer(request, table.partial_list(items, metadata, version=form.version), form)
        return _answer(request, self._table(request, kind, items, form, metadata), form)

    def _listing(self, request: web.Request, kind: Kind, target: Target) -> Listing:
        query = request.query
        options.check_list(query)
        listing = self._registry.list(
            kind,
            target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            limit=options.integer(query, "limit"),
            continue_=query.get("continue", ""),
        )
        _check_revision(query, listing.revision)
        return listing

    async def _create(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        sent = await negotiation.read_object(request, kind.kind)
        if kind.kind == "Binding":
            return await self._bind(request, target, sent, form)
        made = await self._complete(
            self._registry.create(
                kind,
                target.namespace,
                sent,
                dry_run=options.is_dry_run(request.query, "CreateOptions"),
                manager=options.manager(request, "CreateOptions"),
            )
        )
        return self._answer_object(request, kind, made, form, 201)

    async def _update(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        sent = await negotiation.read_object(request, "Scale" if target.subresource == "scale" else kind.kind)
        made, created = await self._complete(
            self._registry.update(
                kind,
                target.namespace,
                target.name,
                sent,
                subresource=target.subresource,
                dry_run=options.is_dry_run(request.query, "UpdateOptions"),
                manager=options.manager(request, "UpdateOptions"),
            )
        )
        return self._answer_object(request, kind, made, form, 201 if created else 200)

    async def _patch(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        if request.content_type not in _PATCH_TYPES:
            accepted = ", ".join(_PATCH_TYPES)
            what = "the body of the request was in an unknown format - accepted media types include: "
            raise ApiError(415, "UnsupportedMediaType", what + accepted)
        is_apply = request.content_type == _APPLY
        made, created = await self._complete(
            self._registry.patch(
                kind,
                target.namespace,
                target.name,
                await negotiation.read(request),
                request.content_type,
                subresource=target.subresource,
                dry_run=options.is_dry_run(request.query, "PatchOptions"),
                manager=options.applier(request) if is_apply else options.manager(request, "PatchOptions"),
                force=options.force(request.query, is_apply=is_apply),
            )
        )
        return self._answer_object(request, kind, made, form, 201 if created else 200)

    async def _delete(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        sent = await _read_delete(request)
        dry_run = options.is_dry_run(request.query, "DeleteOptions", sent)
        wanted = options.deletion(request.query, sent)
        gone = await self._complete(self._registry.delete(kind, target.namespace, target.name, wanted, dry_run=dry_run))
        return self._answer_object(request, kind, gone, form, 200)

    async def _delete_all(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        if kind.namespaced and not target.namespace:
            raise method_not_allowed()
        sent = await _read_delete(request)
        gone = await self._complete(
            self._registry.delete_collection(
                kind,
                target.namespace,
                options.deletion(request.query, sent),
                labels=request.query.get("labelSelector", ""),
                fields=request.query.get("fieldSelector", ""),
                dry_run=options.is_dry_run(request.query, "DeleteOptions", sent),
            )
        )
        return _answer(request, msgspec.Raw(_list_body(kind, gone)), form)

    _verbs: dict[str, Callable[..., Awaitable[web.StreamResponse]]] = {
        "get": _get,
        "list": _list,
        "create": _create,
        "update": _update,
        "patch": _patch,
        "delete": _delete,
        "deletecollection": _delete_all,
    }

    async def _subresource(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        if target.subresource not in subresources_of(kind):
            raise unknown_path()
        verb = {**{method: verbs[1] for method, verbs in _VERBS.items()}, "POST": "create"}.get(request.method, "")
        if verb not in SUBRESOURCES[target.subresource].verbs:
            raise method_not_allowed()
        if target.subresource in _STREAMS:
            return await self._stream(request, kind, target)
        if verb == "create":
            return await self._post(request, kind, target, form)
        if verb == "get" and target.subresource == "scale":
            entry = self._registry.get(kind, target.namespace, target.name)
            return _answer(request, subresources.scale_of(kind, entry.value), form)
        return await self._verbs[verb](self, request, kind, target, form)

    async def _stream(self, request: web.Request, kind: Kind, target: Target) -> web.StreamResponse:
        self._registry.get(kind, target.namespace, target.name)  # 404 before anything about the kubelet
        if self._runtime is None:
            raise ApiError(
                503, "ServiceUnavailable", "this cluster runs no containers: it was started without a kubelet"
            )
        return await _STREAMS[target.subresource](request, self._runtime, target.namespace, target.name)

    async def _post(self, request: web.Request, kind: Kind, target: Target, form: Form) -> web.StreamResponse:
        """Binding and eviction: a question to an object, answered with a Status."""
        sent = await negotiation.read_object(request, SUBRESOURCES[target.subresource].kind)
        if target.subresource == "binding":
            return await self._bind(request, target, sent, form)
        dry_run = options.is_dry_run(request.query, "CreateOptions")
        made = await self._complete(self._registry.evict(target.namespace, target.name, sent, dry_run=dry_run))
        return _answer(request, made, form, 201)

    async def _bind(self, request: web.Request, target: Target, sent: dict[str, Any], form: Form) -> web.StreamResponse:
        """A Binding names its pod in its metadata when it is not posted to the pod itself."""
        metadata = sent.get("metadata")
        name = target.name or str((metadata if isinstance(metadata, dict) else {}).get("name") or "")
        dry_run = options.is_dry_run(request.query, "CreateOptions")
        made = await self._complete(self._registry.bind(target.namespace, name, sent, dry_run=dry_run))
        return _answer(request, made, form, 201)

    def _answer_object(
        self, request: web.Request, kind: Kind, made: dict[str, Any], form: Form, status: int
    ) -> web.Response:
        if request.path.endswith("/scale"):
            made = subresources.scale_of(kind, made) if made.get("kind") == kind.kind else made
        elif form.kind and made.get("kind") == kind.kind:
            made = self._formed(request, kind, [made], form, made)
        return _answer(request, made, form, status)

    def _formed(
        self, request: web.Request, kind: Kind, items: list[dict[str, Any]], form: Form, one: dict[str, Any]
    ) -> dict[str, Any]:
        """One object as a Table of one row, or as its metadata."""
        if form.kind == "PartialObjectMetadata":
            return table.partial(one, api_version=f"meta.k8s.io/{form.version}")
        metadata = {"resourceVersion": one["metadata"].get("resourceVersion", "")}
        return self._table(request, kind, items, form, metadata)

    def _table(
        self, request: web.Request, kind: Kind, items: list[dict[str, Any]], form: Form, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        include = request.query.get("includeObject", "Metadata")
        if include not in ("None", "Metadata", "Object"):
            raise bad_request(f'unrecognized includeObject value: "{include}"')
        return table.table(
            kind, items, now=self._registry.now(), metadata=metadata, version=form.version, include=include
        )


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def _is_placed(kind: Kind, target: Target) -> bool:
    """Whether the path names a namespace exactly where the kind has one; all namespaces together can only be listed."""
    if not kind.namespaced:
        return not target.namespace
    return bool(target.namespace) or not target.name


def _answer(request: web.Request, value: Any, form: Form, status: int = 200) -> web.Response:
    body = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    if form.is_yaml:
        text = yaml.safe_dump(msgspec.json.decode(body), sort_keys=False)
        return web.Response(body=text.encode(), headers=_YAML_HEADERS, status=status)
    if "pretty" in request.query and options.flag(request.query, "pretty"):
        body = msgspec.json.format(body, indent=2)
    return web.Response(body=body, headers=HEADERS, status=status)


async def _read_delete(request: web.BaseRequest) -> dict[str, Any]:
    """DeleteOptions, if any were sent. Their kind is of no interest, but nonsense is refused."""
    body = await negotiation.read(request)
    if not body:
        return {}
    try:
        media = request.content_type if "Content-Type" in request.headers else JSON
        value = negotiation.decode(body, media)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("couldn't get version/kind; json parse error: DeleteOptions must be an object")
    if value.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f'no kind "{value["kind"]}" is known as options of a deletion, only DeleteOptions')
    return value


def _check_revision(query: options.Query, current: int) -> None:
    """A list is always of now. Not older than some revision is fine; exactly an older one is gone."""
    asked = options.revision(query)
    match = query.get("resourceVersionMatch", "")
    if asked is None:
        return
    if asked > current:
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        message = f"Timeout: Too large resource version: {asked}, current: {current}"
        raise ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
    if match == "Exact" and asked != current:
        raise expired(f"The resourceVersion for the provided list is too old: {asked}, current: {current}")


def _list_metadata(listing: Listing) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(listing.revision)}
    if listing.continue_:
        metadata["continue"] = listing.continue_
        if listing.remaining is not None:
            metadata["remainingItemCount"] = listing.remaining
    return metadata


def _list_body(kind: Kind, listing: Listing) -> bytes:
    """A list put together from the stored bytes of its items."""
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": _list_metadata(listing)}
    return b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], b",".join([entry.raw for entry in listing.items]))
