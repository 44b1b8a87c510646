"""Leader election by a Lease, compatible with client-go's: of several processes, one leads.

Two clocks, never compared with each other. Another's lease has expired when *we* have seen no change in it for its
duration; our own is good for its duration after we last *began* a renewal that succeeded. Both are measured on the
loop's monotonic clock. A process that was frozen therefore finds itself deposed before it acts, and wall clocks that
disagree do no harm: wall time is only written down, for people.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from trainmaster.kube import logs
from trainmaster.kube.errors import Conflict, KubeError, NotFound
from trainmaster.objects.meta import Json, mutable
from trainmaster.objects.resource import LEASES, Resource

log = logs.get(__name__)


class Lost(KubeError):
    """The lease is another's, or could not be renewed in time."""


class LeaseClient(Protocol):
    """The part of `kube.client.Client` that is needed here."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Any: ...
    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any: ...
    async def update(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any: ...


class LeaderElector:
    """`acquire`, then `hold` beside the work, then `release`. The identity must differ between processes."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_change: Callable[[bool], None] = lambda is_leader: None,
    ) -> None:
        if not lease_duration > renew_deadline > retry_period > 0:
            raise ValueError(
                f"lease duration ({lease_duration:g} s) must be longer than the renew deadline ({renew_deadline:g} s), "
                f"and that longer than the retry period ({retry_period:g} s)"
            )
        self._client = client
        self._name, self._namespace, self._identity = name, namespace, identity
        self._lease_duration, self._renew_deadline, self._retry_period = lease_duration, renew_deadline, retry_period
        self._now, self._sleep, self._on_change = now, sleep, on_change
        self._lease: Json = {}  # as last seen
        self._seen_at = -math.inf  # when its spec last changed before our eyes
        self._renewed_at: float | None = None
        self._complaint = ""

    @property
    def is_leader(self) -> bool:
        """Whether we may act now. True only for as long as nobody else can have judged our lease expired."""
        return self._renewed_at is not None and _clock() - self._renewed_at < self._lease_duration

    @property
    def holder(self) -> str:
        """Whose the lease was when last seen; empty for nobody's."""
        return str(_spec(self._lease).get("holderIdentity") or "")

    async def acquire(self) -> None:
        """Returns when the lease is ours, however long that takes."""
        waiting_for = ""
        while not (await self._try(self._renew_deadline) and self.is_leader):
            if self.holder and self.holder != waiting_for:
                waiting_for = self.holder
                log.info("waiting for the lease", lease=self._name, holder=waiting_for)
            await self._sleep(self._retry_period)
        log.info("became leader", lease=self._name, identity=self._identity)
        self._on_change(True)

    async def hold(self) -> None:
        """Renews the lease until that fails for too long, then raises Lost."""
        try:
            while True:
                await self._sleep(self._retry_period)
                await self._renew()
        finally:
            if not self.is_leader:
                self._step_down()

    async def release(self) -> None:
        """Gives a lease that is ours back, so that the next leader need not wait for it to expire."""
        if not self.is_leader:
            return
        self._step_down()
        try:
            # Not asyncio.timeout: before Python 3.11.3 it raises CancelledError in a task that was cancelled.
            await asyncio.wait_for(self._give_back(), self._renew_deadline)
        except (KubeError, TimeoutError) as error:
            log.warning("lease not released, it will expire", lease=self._name, error=str(error) or "timed out")
        else:
            log.info("lease released", lease=self._name)

    async def _give_back(self) -> None:
        # Read anew: a renewal that was cancelled on its way may have been carried out.
        lease = await self._client.get(LEASES, self._name, self._namespace)
        if _spec(lease).get("holderIdentity") != self._identity:
            return
        moment = _micro_time(self._now())
        given = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": moment, "acquireTime": moment}
        await self._client.update(LEASES, _with_spec(lease, given), self._namespace)

    async def _renew(self) -> None:
        """Tries until it succeeds or the deadline, counted from the last success, has passed."""
        assert self._renewed_at is not None, "hold() comes after acquire()"
        deadline = self._renewed_at + self._renew_deadline
        while (left := deadline - _clock()) > 0:
            if await self._try(left) and self.is_leader:  # an answer that took too long is as good as none
                return
            if self.holder not in ("", self._identity):
                self._renewed_at = None
                raise Lost(f"lease {self._namespace}/{self._name} was taken by {self.holder}")
            await self._sleep(min(self._retry_period, max(0.0, deadline - _clock())))
        self._renewed_at = None
        raise Lost(f"lease {self._namespace}/{self._name} was not renewed for {self._renew_deadline:g} s")

    async def _try(self, seconds: float) -> bool:
        """Whether we took or renewed the lease. Failures of the API are told once each, not once per attempt."""
        seconds = min(seconds, self._renew_deadline / 2)  # a request that hangs leaves time for another
        try:
            async with asyncio.timeout(seconds):
                taken = await self._take()
        except (KubeError, TimeoutError) as error:
            complaint = str(error) or f"no answer within {seconds:.1f} s"
            if complaint != self._complaint and not isinstance(error, Conflict):
                log.warning("lease not renewed", lease=self._name, error=complaint)
            self._complaint = complaint
            return False
        self._complaint = ""
        return taken

    async def _take(self) -> bool:
        # Counted from before the request: whoever watches sees the renewal later than that, never earlier.
        started = _clock()
        if self.is_leader:
            try:  # what we wrote last is most likely still there: one request instead of two
                self._observe(await self._client.update(LEASES, self._claim(), self._namespace))
            except (Conflict, NotFound):
                pass
            else:
                self._renewed_at = started
                return True
        if not await self._read():
            self._observe(await self._client.create(LEASES, self._claim(), self._namespace))
        elif self._is_taken():
            return False
        else:
            self._observe(await self._client.update(LEASES, self._claim(), self._namespace))
        self._renewed_at = started
        return True

    async def _read(self) -> bool:
        """Whether there is a lease."""
        try:
            self._observe(await self._client.get(LEASES, self._name, self._namespace))
        except NotFound:
            self._lease = {}
        return bool(self._lease)

    def _observe(self, lease: Json) -> None:
        if _spec(lease) != _spec(self._lease):
            self._seen_at = _clock()
        self._lease = lease

    def _is_taken(self) -> bool:
        """Whether the lease is another's and has changed before our eyes within its duration."""
        duration = float(_spec(self._lease).get("leaseDurationSeconds") or self._lease_duration)
        return self.holder not in ("", self._identity) and _clock() - self._seen_at < duration

    def _claim(self) -> Json:
        """The lease as it was last seen, with us as its holder."""
        old, moment = _spec(self._lease), _micro_time(self._now())
        claim: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._lease_duration)),
            "renewTime": moment,
        }
        if self.holder != self._identity:
            claim["acquireTime"] = moment
            claim["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + 1 if self._lease else 0
        if self._lease:
            return _with_spec(self._lease, claim)
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": claim}

    def _step_down(self) -> None:
        self._renewed_at = None
        self._on_change(False)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _spec(lease: Json) -> Json:
    spec: Json = lease.get("spec") or {}
    return spec


def _with_spec(lease: Json, changes: Json) -> Json:
    """The resourceVersion is kept: the server refuses the write if anyone else wrote in between."""
    body = mutable(lease)
    body["spec"] = {**_spec(lease), **changes}
    return body


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
