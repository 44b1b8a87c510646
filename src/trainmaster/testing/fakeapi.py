"""A Kubernetes API server in memory: a transport for `kube.client` that keeps real semantics and tells no lies.

    api = FakeApi(resources=[jobs])
    client = Client(api)
    api.fail_next("POST */pods", Fault(503))              # the next create of a pod is refused
    api.fail_next("POST */pods", Fault(after_effect=True))  # carried out, but the answer is lost

Deterministic: uids, versions and generated names are counted, times come from the clock it is given, nothing sleeps.
Works under a virtual-time loop. What differs from a real server: no admission, no schemas; garbage is
collected at once; foreground deletion is background deletion; patches are merge patches. Next door: `fakeapi_store` has
the rules of writing, `fakeapi_server` reads requests, `fakeapi_watch` has the streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from trainmaster.kube import errors
from trainmaster.kube.transport import Request, Response
from trainmaster.objects.meta import Json, mutable
from trainmaster.objects.resource import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainmaster.testing.fakeapi_server import Server, json_answer, plural_in, status
from trainmaster.testing.fakeapi_store import Object, Place, Refusal, Store, merge

BUILT_IN = (
    *(PODS, SERVICES, EVENTS, LEASES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS),
    *(ROLES, ROLE_BINDINGS, JOBS),
)

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a request."""

    status: int | None = None
    """The answer; None: there is none (errors.Unreachable)."""
    reason: str = ""
    message: str = "injected fault"
    retry_after: int | None = None
    after_effect: bool = False
    """The request is carried out first."""


Callback: TypeAlias = Callable[[str, str, bytes], Fault | int | None]
"""Given method, path and body; says what goes wrong, if anything. May raise errors.Unreachable itself."""

Match: TypeAlias = str | Callable[[str, str, bytes], bool]
"""A glob over `METHOD /path`, such as "DELETE */pods/*", or a function of method, path and body."""


class FakeApi:
    def __init__(
        self,
        resources: Iterable[Resource] = (),
        *,
        clock: Callable[[], float] = lambda: 1_700_000_000.0,
        graceful: bool = False,
    ) -> None:
        """`graceful` pods outlive their deletion until `finish_deletion`."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of all that came, in order, faults included."""
        self.sent: list[Request] = []
        """The same in full."""
        self.faults: list[tuple[Match, Fault]] = []
        """Each strikes the first request that matches, once."""
        self._store = Store(clock, graceful=graceful)
        self._server = Server(self._store, (*BUILT_IN, *resources))
        self._callbacks: list[Callback] = []

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0)  # as over a network, others get their turn first
        self.sent.append(request)
        self.requests.append((request.method, request.path))
        fault = self._fault(request)
        if fault is not None and not fault.after_effect:
            return _failure(request, fault)
        response = self._server.answer(request)
        if fault is not None:
            await response.close()
            return _failure(request, fault)
        return response

    async def close(self) -> None:
        self.drop_watches()

    def fail_next(self, match: Match, fault: Fault | int, times: int = 1) -> None:
        self.faults += [(match, Fault(fault) if isinstance(fault, int) else fault)] * times

    def on_request(self, callback: Callback) -> None:
        """Asked about every request, before `faults` are."""
        self._callbacks.append(callback)

    def drop_watches(self, *, broken: bool = False) -> None:
        """Ends all streams; what they had not delivered yet is to be had by watching again."""
        for watch in self._server.watches:
            watch.end(broken=broken)
        self._server.watches.clear()

    def hold_watches(self, is_held: bool = True) -> None:
        """Nothing is delivered until this is called with False: caches grow stale."""
        self._server.is_held = is_held
        for watch in self._server.watches:
            watch.hold(is_held)

    def send_bookmarks(self) -> None:
        for watch in self._server.watches:
            watch.bookmark()

    def compact(self) -> None:
        """Forgets history: watches from before now, and lists begun before now, answer 410."""
        self._server.compact()

    @property
    def resources(self) -> set[Resource]:
        """What is served. Discard one, and its CRD is not installed."""
        return self._server.resources

    @property
    def logs(self) -> dict[tuple[str, str], bytes]:
        """What `pods/log` answers, by namespace and name."""
        return self._server.logs

    @property
    def resource_version(self) -> str:
        return str(self._store.version)

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._server.watches)

    def writes(self, without: Iterable[Resource] = ()) -> list[tuple[str, str]]:
        """The requests that are not reads; without those of some resources, say (EVENTS, LEASES)."""
        ignored = {resource.plural for resource in without}
        return [(method, path) for method, path in self.requests if method != "GET" and plural_in(path) not in ignored]

    def objects(self, resource: Resource, namespace: str = "") -> list[Object]:
        return [mutable(item) for item in self._store.all(resource, namespace)]

    def object(self, resource: Resource, namespace: str, name: str) -> Object:
        """KeyError when it is not there."""
        try:
            return mutable(self._store.get(Place(resource, namespace, name)))
        except Refusal as error:
            raise KeyError(error.message) from None

    def put(self, resource: Resource, item: Json) -> Object:
        """Creates or overwrites, status and uid included, past all checks; no namespace means "default"."""
        meta = item["metadata"]
        namespace = meta.get("namespace", "default") if resource.namespaced else ""
        return mutable(self._store.put(Place(resource, namespace, meta["name"]), mutable(item)))

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """At once, whatever finalizers say; dependents go too."""
        self._store.remove(Place(resource, namespace, name))

    def finish_deletion(self, namespace: str, name: str) -> None:
        """The kubelet has ended a terminating pod."""
        self._store.finish(Place(PODS, namespace, name))

    def set_pod_phase(
        self,
        namespace: str,
        name: str,
        phase: str,
        container: str | None = None,
        exit_code: int | None = None,
        *,
        reason: str = "",
        message: str = "",
        ready: bool | None = None,
        restart_count: int = 0,
    ) -> Object:
        """As a kubelet reports it. `container` is the one that `exit_code` is of; the others ended well."""
        place = Place(PODS, namespace, name)
        pod = self._store.get(place)
        is_ready = phase == "Running" if ready is None else ready
        address = pod.get("status", {}).get("podIP") or f"10.244.0.{self._store.version}"
        status = {
            "phase": phase,
            "reason": reason or None,
            "message": message or None,
            "podIP": None if phase == "Pending" else address,
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": _container_statuses(pod, phase, container, exit_code, is_ready, restart_count),
        }
        return mutable(self._store.put(place, merge(pod, {"status": status})))

    def _fault(self, request: Request) -> Fault | None:
        asked = (request.method, request.path, request.body)
        for callback in self._callbacks:
            fault = callback(*asked)
            if fault is not None:
                return Fault(fault) if isinstance(fault, int) else fault
        for index, (match, fault) in enumerate(self.faults):
            strikes = fnmatchcase(f"{asked[0]} {asked[1]}", match) if isinstance(match, str) else match(*asked)
            if strikes:
                del self.faults[index]
                return fault
        return None


def _failure(request: Request, fault: Fault) -> Response:
    if fault.status is None:
        raise errors.Unreachable(f"{request}: {fault.message}")
    reason = fault.reason or _REASONS.get(fault.status, "")
    headers = [] if fault.retry_after is None else [("Retry-After", str(fault.retry_after))]
    return json_answer(fault.status, status(fault.status, reason, fault.message), headers)


def _container_statuses(
    pod: Object, phase: str, named: str | None, exit_code: int | None, is_ready: bool, restart_count: int
) -> list[Object]:
    names = [container["name"] for container in pod.get("spec", {}).get("containers") or ()] or [named or "main"]
    named = named or names[0]
    code = (1 if phase == "Failed" else 0) if exit_code is None else exit_code
    return [
        {
            "name": name,
            "ready": is_ready,
            "restartCount": restart_count if name == named else 0,
            "state": _state(phase, code if name == named else 0),
        }
        for name in names
    ]


def _state(phase: str, exit_code: int) -> Object:
    if phase in ("Succeeded", "Failed"):
        return {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
    return {"running": {}} if phase == "Running" else {"waiting": {"reason": "ContainerCreating"}}
