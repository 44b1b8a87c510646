"""Leader election: who leads, for how long, and that nobody else does at the same time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from trainmaster.kube.errors import AlreadyExists, Conflict, NotFound, ServerError, Unreachable
from trainmaster.kube.lease import LeaderElector, LeaseClient, Lost
from trainmaster.objects.meta import mutable
from trainmaster.objects.resource import LEASES, Resource
from trainmaster.testing import clock

WALL = clock.Clock()


def now() -> float:
    return asyncio.get_running_loop().time()


class Api:
    """One lease, with optimistic concurrency, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.calls: list[str] = []

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def get(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound(404)
        return mutable(self.lease)

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists")
        return self.put(body)

    def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound(404)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict")
        return self.put(body)

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = mutable(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return mutable(self.lease)

    def edit(self, **spec: Any) -> None:
        """By someone else."""
        body = self.get()
        body["spec"] |= spec
        self.put(body)


class Client:
    """One process's way to the API: slow, cut or hanging when told so."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.is_cut = False
        self.latency = 0.0
        self.loses_answers = False

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
        assert (resource, name, namespace) == (LEASES, "leader", "system")
        return await self._call("get")

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
        return await self._call("create", body)

    async def update(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
        return await self._call("update", body)

    async def _call(self, verb: str, *args: Mapping[str, Any]) -> Any:
        self.api.calls.append(verb)
        if self.is_cut:
            raise Unreachable("connection refused")
        await asyncio.sleep(self.latency / 2)
        answer = getattr(self.api, verb)(*args)
        await asyncio.sleep(self.latency / 2)
        if self.loses_answers:
            raise Unreachable("connection reset")
        return answer


def an_elector(client: LeaseClient, identity: str = "me", **settings: Any) -> LeaderElector:
    return LeaderElector(client, name="leader", namespace="system", identity=identity, now=WALL.now, **settings)


async def holding(elector: LeaderElector, seconds: float) -> None:
    """Holds for so long, then stops holding without releasing: a crash."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(elector.hold(), name="hold")
        await asyncio.wait((task,), timeout=seconds)
        task.cancel()


def test_a_lease_that_does_not_exist_is_created() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        await elector.acquire()

        assert elector.is_leader

    clock.run(main())

    assert api.lease == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "system", "resourceVersion": "1"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2024-01-01T00:00:00.000000Z",
            "renewTime": "2024-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        },
    }


def test_a_held_lease_is_renewed_with_one_request_each_period() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        await elector.acquire()
        await holding(elector, 3600)

        assert elector.is_leader

    clock.run(main())

    assert api.spec["renewTime"] == "2024-01-01T00:59:58.000000Z"
    assert api.spec["acquireTime"] == "2024-01-01T00:00:00.000000Z"
    assert api.spec["leaseTransitions"] == 0
    assert api.calls == ["get", "create"] + ["update"] * 1799


def test_a_released_lease_is_taken_at_once() -> None:
    api = Api()
    first, second = an_elector(Client(api), "first"), an_elector(Client(api), "second")

    async def main() -> None:
        await first.acquire()
        await first.release()
        released = dict(api.spec)
        await asyncio.sleep(1)
        await second.acquire()

        assert released["holderIdentity"] == ""
        assert released["leaseDurationSeconds"] == 1
        assert (first.is_leader, second.is_leader, now()) == (False, True, 1)

    clock.run(main())

    assert api.spec["holderIdentity"] == "second"
    assert api.spec["leaseTransitions"] == 1
    assert api.spec["acquireTime"] == "2024-01-01T00:00:01.000000Z"


def test_a_standby_waits_while_the_leader_renews_and_takes_over_when_it_stops() -> None:
    api = Api()
    first, second = an_elector(Client(api), "first"), an_elector(Client(api), "second")

    async def main() -> float:
        await first.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(holding(first, 100), name="first")
            await second.acquire()
        return now()

    taken_at = clock.run(main())

    assert 98 + 15 <= taken_at <= 98 + 15 + 2 * 2
    assert api.spec["leaseTransitions"] == 1


@pytest.mark.parametrize("renew_time", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
def test_anothers_clock_does_not_matter(renew_time: str) -> None:
    api = Api()
    api.put({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "other", "renewTime": renew_time}})

    async def main() -> float:
        await an_elector(Client(api)).acquire()
        return now()

    assert 15 <= clock.run(main()) <= 17


def test_anothers_lease_lasts_for_the_duration_it_was_taken_for() -> None:
    api = Api()
    api.put({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}})

    async def main() -> float:
        await an_elector(Client(api)).acquire()
        return now()

    assert 60 <= clock.run(main()) <= 62


def test_a_process_that_comes_back_under_its_own_name_need_not_wait() -> None:
    api = Api()
    api.put({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me", "leaseTransitions": 4}})

    async def main() -> float:
        await an_elector(Client(api)).acquire()
        return now()

    assert clock.run(main()) == 0
    assert api.spec["leaseTransitions"] == 4


def test_an_outage_shorter_than_the_deadline_is_survived() -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def main() -> None:
        await elector.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(holding(elector, 60), name="hold")
            await asyncio.sleep(10.5)
            client.is_cut = True
            await asyncio.sleep(7)
            client.is_cut = False

        assert elector.is_leader

    clock.run(main())


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({"is_cut": True}, id="refused"),
        pytest.param({"latency": 1000}, id="hanging"),
    ],
)
def test_a_longer_outage_loses_the_lease_before_it_expires(trouble: dict[str, Any]) -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def main() -> float:
        await elector.acquire()
        vars(client).update(trouble)
        with pytest.raises(Lost, match="system/leader was not renewed for 10 s"):
            await elector.hold()
        assert not elector.is_leader
        return now()

    assert clock.run(main()) == 10


def test_one_request_that_hangs_leaves_time_for_another() -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def main() -> None:
        await elector.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(holding(elector, 60), name="hold")
            client.latency = 1000
            await asyncio.sleep(2.5)
            client.latency = 0

        assert elector.is_leader

    clock.run(main())


def test_answers_that_are_lost_do_not_lose_the_lease() -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def main() -> None:
        await elector.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(holding(elector, 60), name="hold")
            await asyncio.sleep(3)
            client.loses_answers = True
            await asyncio.sleep(6)
            client.loses_answers = False

        assert elector.is_leader

    clock.run(main())


def test_a_foreign_edit_is_kept_and_the_lease_with_it() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        await elector.acquire()
        body = api.get()
        body["metadata"]["labels"] = {"touched": "yes"}
        api.put(body)
        await holding(elector, 60)

        assert elector.is_leader

    clock.run(main())

    assert api.lease is not None
    assert api.lease["metadata"]["labels"] == {"touched": "yes"}


def test_a_deleted_lease_is_made_anew() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        await elector.acquire()
        api.lease = None
        await holding(elector, 60)

        assert elector.is_leader

    clock.run(main())

    assert api.spec["holderIdentity"] == "me"


def test_a_lease_taken_by_another_is_lost_at_once() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> float:
        await elector.acquire()
        api.edit(holderIdentity="thief")
        with pytest.raises(Lost, match="taken by thief"):
            await elector.hold()
        assert not elector.is_leader
        return now()

    assert clock.run(main()) == 2
    assert api.spec["holderIdentity"] == "thief"


def test_a_frozen_leader_finds_itself_deposed_before_it_acts() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        def freeze() -> None:
            clock.leap(30)
            assert not elector.is_leader

        await elector.acquire()
        api.calls.clear()
        asyncio.get_running_loop().call_later(1, freeze)
        with pytest.raises(Lost, match="not renewed"):
            await elector.hold()

        assert now() == 31

    clock.run(main())

    assert api.calls == []


def test_a_renewal_that_was_answered_during_a_freeze_does_not_count() -> None:
    class Freezing(Client):
        async def update(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
            answer = await super().update(resource, body, namespace)
            clock.leap(30)
            return answer

    elector = an_elector(Freezing(Api()))

    async def main() -> None:
        await elector.acquire()
        with pytest.raises(Lost, match="not renewed"):
            await elector.hold()

        assert now() == 2 + 30

    clock.run(main())


def test_a_process_frozen_while_it_acquires_starts_over() -> None:
    class Freezing(Client):
        async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
            answer = await super().create(resource, body, namespace)
            clock.leap(30)
            return answer

    api = Api()
    elector = an_elector(Freezing(api))

    async def main() -> None:
        await elector.acquire()

        assert elector.is_leader

    clock.run(main())

    assert api.calls == ["get", "create", "get", "update"]


def test_leadership_ends_by_itself_when_nobody_renews() -> None:
    elector = an_elector(Client(Api()))

    async def main() -> list[bool]:
        await elector.acquire()
        told = []
        for _ in range(4):
            told.append(elector.is_leader)
            await asyncio.sleep(5)
        return told

    assert clock.run(main()) == [True, True, True, False]


def test_release_leaves_a_lease_that_is_not_ours_alone() -> None:
    api = Api()
    elector = an_elector(Client(api))

    async def main() -> None:
        await elector.acquire()
        api.edit(holderIdentity="thief")
        await elector.release()
        await elector.release()

    clock.run(main())

    assert api.spec["holderIdentity"] == "thief"


def test_release_works_after_a_renewal_was_cancelled_on_its_way() -> None:
    api = Api()
    client = Client(api)
    elector = an_elector(client)

    async def main() -> None:
        await elector.acquire()
        client.latency = 1
        await holding(elector, 2.75)
        await elector.release()

    clock.run(main())

    assert api.spec["holderIdentity"] == ""


@pytest.mark.parametrize("trouble", [{"is_cut": True}, {"latency": 1000}])
def test_a_release_that_fails_is_told_and_not_raised(trouble: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def main() -> None:
        await elector.acquire()
        vars(client).update(trouble)
        await elector.release()

        assert not elector.is_leader

    clock.run(main())

    assert [record.getMessage() for record in caplog.records] == ["lease not released, it will expire"]


def test_a_release_by_a_cancelled_task_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(Api())
    elector = an_elector(client)

    async def lead(leads: asyncio.Event) -> None:
        await elector.acquire()
        client.latency = 1000
        leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            await elector.release()

    async def main() -> None:
        leads = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(lead(leads), name="leader")
            await leads.wait()
            leading.cancel()

    clock.run(main())

    assert [record.getMessage() for record in caplog.records] == ["lease not released, it will expire"]


def test_changes_are_told() -> None:
    api = Api()
    client = Client(api)
    changes: list[bool] = []
    elector = an_elector(client, on_change=changes.append)

    async def main() -> None:
        await elector.acquire()
        await elector.release()
        await elector.acquire()
        client.is_cut = True
        with pytest.raises(Lost):
            await elector.hold()
        await elector.release()

    clock.run(main())

    assert changes == [True, False, True, False]


def test_the_same_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Client):
        async def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
            if now() < 60:
                raise ServerError(500, "InternalError", "etcd is away")
            return await super().get(resource, name, namespace)

    elector = an_elector(Broken(Api()))

    clock.run(elector.acquire())

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["lease not renewed"]


@pytest.mark.parametrize("seed", range(10))
def test_there_is_never_more_than_one_leader(seed: int) -> None:
    chance = random.Random(seed)
    api = Api()
    clients = [Client(api) for _ in range(3)]
    electors = [an_elector(client, f"process-{number}") for number, client in enumerate(clients)]
    led: set[int] = set()

    async def process(elector: LeaderElector) -> None:
        for _ in range(30):
            await elector.acquire()
            try:
                async with asyncio.timeout(chance.uniform(1, 60)):
                    await elector.hold()
            except (Lost, TimeoutError):
                if chance.random() < 0.5:
                    await elector.release()
                    await asyncio.sleep(chance.uniform(0, 10))

    async def trouble() -> None:
        for _ in range(2000):
            client = chance.choice(clients)
            client.is_cut = chance.random() < 0.2
            client.loses_answers = chance.random() < 0.2
            client.latency = chance.choice((0, 0.01, 1, 8))
            await asyncio.sleep(chance.uniform(0.1, 3))

    async def watch() -> None:
        for _ in range(8000):
            leaders = {number for number, elector in enumerate(electors) if elector.is_leader}
            assert len(leaders) <= 1
            led.update(leaders)
            await asyncio.sleep(0.25)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            processes = [group.create_task(process(elector), name="process") for elector in electors]
            disturber = group.create_task(trouble(), name="trouble")
            await watch()
            for task in (*processes, disturber):
                task.cancel()

    clock.run(main())

    assert led == {0, 1, 2}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"lease_duration": 10.0}, id="deadline as long as the lease"),
        pytest.param({"retry_period": 10.0}, id="period as long as the deadline"),
        pytest.param({"retry_period": 0.0}, id="no period"),
    ],
)
def test_durations_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be longer than"):
        an_elector(Client(Api()), **settings)
