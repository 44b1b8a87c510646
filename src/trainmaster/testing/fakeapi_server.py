"""How `fakeapi` reads requests: which resource, and what to do with it. The rules of writing are `fakeapi_store`'s."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from trainmaster.kube.transport import Headers, Request, Response
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import PODS, Resource
from trainmaster.testing import fakeapi_selectors
from trainmaster.testing.fakeapi_store import Commit, Object, Place, Refusal, Store
from trainmaster.testing.fakeapi_watch import Watch

_PATH = re.compile(
    r"^/(?:api/(?P<core>[^/]+)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)
_JSON = Headers([("Content-Type", "application/json")])
_TEXT = Headers([("Content-Type", "text/plain")])


class _Target(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def is_sound(self) -> bool:
        """A namespace only where there are any, and always for a single object there."""
        if not self.resource.namespaced:
            return not self.namespace
        return bool(self.namespace) or not self.name

    @property
    def place(self) -> Place:
        return Place(self.resource, self.namespace, self.name)


class Server:
    def __init__(self, store: Store, resources: Iterable[Resource]) -> None:
        self.resources = set(resources)
        self.logs: dict[tuple[str, str], bytes] = {}
        self.watches: list[Watch] = []
        self.is_held = False
        self._store = store
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}  # the rest of lists begun, by continue token
        self._tokens = 0
        store.listeners.append(self._tell)

    def compact(self) -> None:
        self._store.compact()
        self._snapshots.clear()

    def answer(self, request: Request) -> Response:
        if request.path == "/version":
            return json_answer(200, {"major": "1", "minor": "30", "gitVersion": "v1.30.0-fake"})
        if request.method == "GET" and (listed := self._discovery(request.path)) is not None:
            return json_answer(200, listed)
        target = self._target(request.path)
        if target is None:
            return Response.whole(404, _TEXT, b"404 page not found\n")
        try:
            return self._handle(request, target)
        except Refusal as refusal:
            return json_answer(refusal.code, status(refusal.code, refusal.reason, refusal.message, refusal.details))

    def _discovery(self, path: str) -> Object | None:
        """The resources of one group and version; None where nothing of it is served."""
        api_version = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
        found = sorted(resource for resource in self.resources if resource.api_version == api_version)
        if not found:
            return None
        names = [{"name": r.plural, "kind": r.kind, "namespaced": r.namespaced} for r in found]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": names}

    def _target(self, path: str) -> _Target | None:
        match = _PATH.match(path)
        if match is None:
            return None
        group, version, plural = match["group"] or "", match["core"] or match["version"], match["plural"]
        for resource in self.resources:
            if (resource.group, resource.version, resource.plural) == (group, version, plural):
                target = _Target(resource, match["namespace"] or "", match["name"] or "", match["subresource"] or "")
                return target if target.is_sound else None
        return None

    def _handle(self, request: Request, target: _Target) -> Response:
        params = dict(request.params)
        if request.method == "GET" and target.subresource == "log" and target.resource == PODS:
            self._store.get(target.place)
            log = self.logs.get((target.namespace, target.name), b"")
            return Response.whole(200, _TEXT, log)
        if request.method == "GET" and target.name:
            return json_answer(200, self._store.get(target.place))
        if request.method == "GET":
            return self._watch(params, target) if params.get("watch") in ("true", "1") else self._list(params, target)
        return json_answer(*self._write(request, target))

    def _write(self, request: Request, target: _Target) -> tuple[int, Object]:
        body = _body(request)
        if request.method == "POST" and not target.name:
            if bool(target.namespace) != target.resource.namespaced:
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            return 201, self._store.create(target.resource, target.namespace, body)
        if target.name and request.method == "PUT":
            return 200, self._store.update(target.place, body, target.subresource)
        if target.name and request.method == "PATCH":
            if request.headers.get("Content-Type") != "application/merge-patch+json":
                raise Refusal(415, "UnsupportedMediaType", "only merge patches are understood here")
            return 200, self._store.patch(target.place, body, target.subresource)
        if target.name and request.method == "DELETE":
            return 200, self._store.delete(target.place, body)
        raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _list(self, params: Mapping[str, str], target: _Target) -> Response:
        token = params.get("continue", "")
        if token and token not in self._snapshots:
            raise Refusal(410, "Expired", "the provided continue parameter is too old to display a consistent list")
        if token:
            version, items = self._snapshots[token]
        else:
            matches = _matcher(params)
            version = self._store.version
            items = [item for item in self._store.all(target.resource, target.namespace) if matches(item)]
        limit = int(params.get("limit", 0)) or len(items)
        meta: Object = {"resourceVersion": str(version)}
        if rest := items[limit:]:
            self._tokens += 1
            meta |= {"continue": f"token-{self._tokens}", "remainingItemCount": len(rest)}
            self._snapshots[meta["continue"]] = (version, rest)
        resource = target.resource
        kind = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        return json_answer(200, {**kind, "metadata": meta, "items": items[:limit]})

    def _watch(self, params: Mapping[str, str], target: _Target) -> Response:
        since, seconds = params.get("resourceVersion", ""), params.get("timeoutSeconds")
        if since not in ("", "0") and int(since) < self._store.compacted:
            error = status(410, "Expired", f"too old resource version: {since} ({self._store.compacted})")
            return Response.whole(200, _JSON, msgspec.json.encode({"type": "ERROR", "object": error}) + b"\n")
        watch = Watch(
            target.resource,
            target.namespace,
            _matcher(params),
            bookmarks=params.get("allowWatchBookmarks") == "true",
            deadline=asyncio.get_running_loop().time() + float(seconds) if seconds else None,
            version=lambda: self._store.version,
        )
        watch.hold(self.is_held)
        for commit in self._missed(since, target):
            watch.see(commit)
        self.watches.append(watch)

        async def release() -> None:
            if watch in self.watches:
                self.watches.remove(watch)

        return Response(200, _JSON, watch.lines(), release)

    def _missed(self, since: str, target: _Target) -> list[Commit]:
        """What a watch hears at once: history since its version, or, without one, all there is."""
        if since not in ("", "0"):
            return [commit for commit in self._store.history if commit.version > int(since)]
        items = self._store.all(target.resource, target.namespace)
        places = [Place(target.resource, i["metadata"].get("namespace", ""), i["metadata"]["name"]) for i in items]
        return [Commit(0, place, None, item) for place, item in zip(places, items, strict=True)]

    def _tell(self, commit: Commit) -> None:
        for watch in self.watches:
            watch.see(commit)


def status(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Object:
    status = {"status": "Failure", "message": message, "reason": reason, "details": details or {}, "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **status}


def json_answer(code: int, body: Json, headers: Iterable[tuple[str, str]] = ()) -> Response:
    return Response.whole(code, Headers([("Content-Type", "application/json"), *headers]), msgspec.json.encode(body))


def _body(request: Request) -> Object:
    try:
        return msgspec.json.decode(request.body or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Refusal(400, "BadRequest", f"the object provided is unrecognized: {error}") from None


def _matcher(params: Mapping[str, str]) -> Callable[[Mapping[str, Any]], bool]:
    try:
        return fakeapi_selectors.matcher(params.get("labelSelector", ""), params.get("fieldSelector", ""))
    except ValueError as error:
        raise Refusal(400, "BadRequest", str(error)) from None


def plural_in(path: str) -> str:
    match = _PATH.match(path)
    return match["plural"] if match is not None else ""
