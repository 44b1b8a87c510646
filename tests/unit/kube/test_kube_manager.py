"""The manager: order of start, reverse order of stop, and what happens when a part fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from trainmaster.kube.lease import Lost
from trainmaster.kube.manager import LeaderLost, Manager, SyncTimeout
from trainmaster.testing import clock


class Diary(list[str]):
    """What happened, in order; `name+` and `name-` are beginnings and ends. `times` says when."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, float] = {}

    def note(self, what: str) -> None:
        self.append(what)
        self.times[what] = asyncio.get_running_loop().time()


async def until(event: asyncio.Event, breaks_after: float | None) -> None:
    """Waits for the event; raises OSError if that takes too long."""
    try:
        async with asyncio.timeout(breaks_after):
            await event.wait()
    except TimeoutError:
        raise OSError("broken") from None


class Server:
    name = "server"

    def __init__(self, diary: Diary, breaks_after: float | None = None) -> None:
        self.diary, self.breaks_after = diary, breaks_after
        self.ready = asyncio.Event()

    async def run(self) -> None:
        self.diary.note(f"{self.name}+")
        self.ready.set()
        try:
            await until(asyncio.Event(), self.breaks_after)
        finally:
            self.diary.note(f"{self.name}-")


class Late(Server):
    name = "late"


class Cache:
    def __init__(self, diary: Diary, syncs_after: float | None = 0, breaks_after: float | None = None) -> None:
        self.diary, self.syncs_after, self.breaks_after = diary, syncs_after, breaks_after
        self.synced = asyncio.Event()

    async def run(self) -> None:
        self.diary.note("cache+")
        if self.syncs_after is not None:
            asyncio.get_running_loop().call_later(self.syncs_after, self.synced.set)
        try:
            await until(asyncio.Event(), self.breaks_after)
        finally:
            self.diary.note("cache-")


class Elector:
    def __init__(self, diary: Diary, acquires_after: float = 0, loses_after: float | None = None) -> None:
        self.diary, self.acquires_after, self.loses_after = diary, acquires_after, loses_after
        self.is_leader = False

    async def acquire(self) -> None:
        await asyncio.sleep(self.acquires_after)
        self.is_leader = True
        self.diary.note("lease+")

    async def hold(self) -> None:
        try:
            await until(asyncio.Event(), self.loses_after)
        except OSError:
            self.is_leader = False
            raise Lost("taken by another") from None

    async def release(self) -> None:
        self.diary.note("lease-")


class Controller:
    name = "controller"

    def __init__(self, diary: Diary, drains_for: float = 0, breaks_after: float | None = None) -> None:
        self.diary, self.drains_for, self.breaks_after = diary, drains_for, breaks_after
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        self.diary.note("controller+")
        try:
            await until(self.stopped, self.breaks_after)
        finally:
            self.diary.note("controller-")

    async def stop(self, deadline: float) -> None:
        if not self.stopped.is_set():
            await asyncio.sleep(min(deadline, self.drains_for))
            self.stopped.set()


def a_manager(*parts: object, sync_timeout: float | None = None) -> Manager:
    manager = Manager(sync_timeout=sync_timeout)
    add: dict[type, Callable[..., None]] = {
        Server: manager.add_server,
        Cache: lambda cache: manager.add_cache("pods", cache),
        Elector: manager.set_elector,
        Controller: manager.add_controller,
    }
    for part in parts:
        add[type(part)](part)
    return manager


def run(manager: Manager, stop_after: float = 60) -> None:
    """The manager's whole life; asked to stop after so many seconds."""

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(stop_after, stop.set)
        await manager.run(stop)

    clock.run(main())


def test_parts_start_in_order_and_stop_in_reverse() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Elector(diary), Cache(diary), Server(diary))

    run(manager)

    assert diary == ["server+", "cache+", "lease+", "controller+", "controller-", "lease-", "cache-", "server-"]


def test_what_the_preparation_adds_starts_after_it_and_stops_before_the_first_servers() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Server(diary))

    async def prepare() -> None:
        diary.note("prepared")
        manager.add_server(Late(diary))
        manager.add_cache("pods", Cache(diary))

    manager.set_preparation(prepare)
    run(manager)

    assert diary == [
        *("server+", "prepared", "late+", "cache+", "controller+"),
        *("controller-", "cache-", "late-", "server-"),
    ]


def test_a_preparation_that_takes_long_is_left_when_told_to_stop() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Server(diary))
    manager.set_preparation(lambda: asyncio.sleep(3600))

    run(manager, stop_after=5)

    assert diary == ["server+", "server-"]
    assert diary.times["server-"] == 5


def test_a_preparation_that_fails_ends_the_manager_with_its_error() -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary))
    manager.set_preparation(lambda: until(asyncio.Event(), 1))

    with pytest.raises(OSError, match="broken"):
        run(manager)

    assert diary == ["server+", "server-"]


def test_controllers_wait_for_the_caches_and_the_lease() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Elector(diary, acquires_after=5), Cache(diary, syncs_after=7))

    run(manager)

    assert diary.times["lease+"] == 7 + 5
    assert diary.times["controller+"] == 7 + 5


def test_caches_wait_for_the_servers_to_be_ready() -> None:
    class SlowServer(Server):
        async def run(self) -> None:
            await asyncio.sleep(3)
            await super().run()

    diary = Diary()
    manager = a_manager(Cache(diary))
    manager.add_server(SlowServer(diary))

    run(manager)

    assert diary.times["cache+"] == 3


def test_a_manager_without_parts_runs_until_stopped() -> None:
    manager = Manager()

    run(manager, stop_after=5)

    assert manager.is_leader


def test_readiness_and_leadership_are_told() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Elector(diary, acquires_after=5), Cache(diary, syncs_after=7))
    told: list[tuple[bool, bool]] = []

    async def main() -> None:
        stop = asyncio.Event()
        for second in (3, 9, 15):
            asyncio.get_running_loop().call_later(second, lambda: told.append((manager.is_ready, manager.is_leader)))
        asyncio.get_running_loop().call_later(20, stop.set)
        await manager.run(stop)

    clock.run(main())

    assert told == [(False, False), (True, False), (True, True)]
    assert not manager.is_ready


def test_callbacks_run_between_sync_and_lease() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary), Elector(diary), Cache(diary, syncs_after=2))
    manager.on_synced(lambda: diary.note("callback"))

    run(manager)

    assert diary[:4] == ["cache+", "callback", "lease+", "controller+"]


def test_caches_that_take_long_are_named_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    diary = Diary()
    manager = a_manager(Cache(diary, syncs_after=25))
    manager.add_cache("services", Cache(diary, syncs_after=12))

    run(manager)

    warnings = [vars(record)["fields"] for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        {"waiting": ["pods", "services"], "seconds": 10},
        {"waiting": ["pods"], "seconds": 20},
    ]


def test_caches_that_never_sync_end_the_run_with_a_remedy() -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary, syncs_after=None), Controller(diary), sync_timeout=25)

    with pytest.raises(SyncTimeout, match=r"25 s of: pods\..*installed.*list and watch"):
        run(manager)

    assert diary == ["server+", "cache+", "cache-", "server-"]
    assert diary.times["cache-"] == 25


@pytest.mark.parametrize(
    ("cache", "elector"),
    [
        pytest.param({"syncs_after": None}, {}, id="while caches sync"),
        pytest.param({}, {"acquires_after": 1000}, id="while another leads"),
    ],
)
def test_a_stop_before_controllers_run_ends_what_was_started(
    cache: dict[str, float], elector: dict[str, float]
) -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary, **cache), Elector(diary, **elector), Controller(diary))

    run(manager, stop_after=30)

    assert diary == ["server+", "cache+", "cache-", "server-"]


def test_controllers_are_given_time_to_drain_while_the_lease_is_held() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary, drains_for=4), Elector(diary), Cache(diary))

    run(manager, stop_after=30)

    assert diary.times["controller-"] == 34
    assert diary.times["lease-"] == 34


def test_a_drain_ends_at_the_deadline() -> None:
    diary = Diary()
    manager = a_manager(Controller(diary, drains_for=1000))

    run(manager, stop_after=30)

    assert diary.times["controller-"] == 40


def test_a_lost_lease_stops_controllers_at_once() -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary), Elector(diary, loses_after=20), Controller(diary, drains_for=1000))

    with pytest.raises(LeaderLost, match="taken by another"):
        run(manager)

    assert diary[-4:] == ["controller-", "lease-", "cache-", "server-"]
    assert diary.times["server-"] == 20


def test_a_lease_lost_while_draining_ends_the_drain() -> None:
    diary = Diary()
    manager = a_manager(Elector(diary, loses_after=33), Controller(diary, drains_for=1000))

    with pytest.raises(LeaderLost):
        run(manager, stop_after=30)

    assert diary.times["controller-"] == 33


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda diary: a_manager(Server(diary, 9), Cache(diary), Controller(diary, 2)), id="server"),
        pytest.param(lambda diary: a_manager(Server(diary), Cache(diary, 0, 9), Controller(diary, 2)), id="cache"),
        pytest.param(lambda diary: a_manager(Server(diary), Cache(diary), Controller(diary, 2, 9)), id="controller"),
    ],
)
def test_a_part_that_breaks_stops_all_in_order_and_its_error_is_raised(broken: Callable[[Diary], Manager]) -> None:
    diary = Diary()

    with pytest.raises(OSError, match="broken"):
        run(broken(diary))

    assert sorted(diary[3:]) == ["cache-", "controller-", "server-"]
    assert diary.times["controller-"] <= 11
    assert max(diary.times.values()) == 11


def test_what_depends_on_a_broken_server_still_drains_first() -> None:
    diary = Diary()
    manager = a_manager(Server(diary, breaks_after=9), Elector(diary), Controller(diary, drains_for=2))

    with pytest.raises(OSError, match="broken"):
        run(manager)

    assert diary[-3:] == ["server-", "controller-", "lease-"]


def test_a_server_that_breaks_before_it_is_ready_ends_the_run() -> None:
    class Unbindable(Server):
        async def run(self) -> None:
            raise OSError("address in use")

    diary = Diary()
    manager = a_manager(Cache(diary))
    manager.add_server(Unbindable(diary))

    with pytest.raises(OSError, match="address in use"):
        run(manager)

    assert diary == []


def test_a_callback_that_raises_ends_the_run() -> None:
    def callback() -> None:
        raise KeyError("missing")

    diary = Diary()
    manager = a_manager(Cache(diary), Controller(diary))
    manager.on_synced(callback)

    with pytest.raises(KeyError, match="missing"):
        run(manager)

    assert diary == ["cache+", "cache-"]


@pytest.mark.parametrize(
    ("escape", "message"),
    [
        pytest.param(None, "ended by itself", id="returns"),
        pytest.param(asyncio.CancelledError(), "CancelledError escape", id="lets a stray cancellation through"),
    ],
)
def test_a_part_that_ends_unasked_is_an_error(escape: BaseException | None, message: str) -> None:
    class Quitter(Server):
        async def run(self) -> None:
            self.ready.set()
            if escape is not None:
                raise escape

    diary = Diary()
    manager = a_manager(Cache(diary), Controller(diary))
    manager.add_server(Quitter(diary))

    with pytest.raises(RuntimeError, match=message):
        run(manager)


def test_the_first_of_several_errors_is_raised_and_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    class BadStop(Controller):
        async def stop(self, deadline: float) -> None:
            self.stopped.set()
            raise ValueError("second")

    diary = Diary()
    manager = a_manager(Server(diary, breaks_after=9))
    manager.add_controller(BadStop(diary))

    with pytest.raises(OSError, match="broken"):
        run(manager)

    assert "failed while stopping" in [record.getMessage() for record in caplog.records]


def test_a_cancelled_run_ends_in_order_too() -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary), Elector(diary), Controller(diary, drains_for=1000))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await manager.run(asyncio.Event())

    clock.run(main())

    assert diary[-4:] == ["controller-", "lease-", "cache-", "server-"]
    assert diary.times["server-"] == 30


def test_no_task_is_left_behind() -> None:
    diary = Diary()
    manager = a_manager(Server(diary), Cache(diary), Elector(diary), Controller(diary))

    async def main() -> set[str]:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(10, stop.set)
        await manager.run(stop)
        return {task.get_name() for task in asyncio.all_tasks()}

    assert clock.run(main()) == {"main"}


def test_two_parts_of_one_name_are_refused() -> None:
    manager = a_manager(Cache(Diary()))

    with pytest.raises(ValueError, match="already one named 'pods'"):
        manager.add_cache("pods", Cache(Diary()))
