"""etcd forgets the history that the operator's watches stand in: lists make its caches true, and nobody notices."""

import asyncio
import signal

import pytest
from tests.kubernetes.cutting import is_of
from tests.kubernetes.fleet import Fleet
from tests.kubernetes.operators import bedded, staged

from trainmaster.objects.resource import PODS, SERVICES

WITHOUT_CACHE = "--watch-cache=false"
"""The API server then asks etcd itself for the history of every watch."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("compaction")) as running:
        yield running


async def lose_history(plane, *flags):
    """Whatever the API server itself remembers goes too."""
    await asyncio.to_thread(plane.compact)
    await asyncio.to_thread(plane.stop_apiserver, signal.SIGKILL)
    await asyncio.to_thread(plane.start_apiserver, *flags)
    await asyncio.to_thread(plane.compact)


@pytest.mark.parametrize("flags", [(), (WITHOUT_CACHE,)], ids=["the server's cache is new", "straight from etcd"])
def test_what_happened_in_a_forgotten_history_is_made_good(stage, flags):
    async def main():
        async with bedded(stage) as bed, bed.operating() as operator:
            jobs = Fleet(bed.mirror, bed.node, "etcd" if flags else "cache")
            client = bed.mirror.client
            await jobs.submit("still", "hurt", "gone")
            await jobs.running("still", "hurt", "gone")
            still, hurt = jobs.uids("still"), jobs.uids("hurt")
            before = len(bed.proxy.record)

            bed.proxy.hush()
            await client.delete(PODS, f"{jobs.name('hurt')}-worker-1", "default")
            await client.delete(SERVICES, f"{jobs.name('hurt')}-worker-0", "default")
            await jobs.delete("gone")
            await jobs.submit("new")
            await lose_history(stage.plane, *flags)
            bed.proxy.drop_watches()
            bed.proxy.speak()
            await jobs.replaced("hurt", hurt["-worker-1"])
            await jobs.running("still", "new")

            after = [exchange for exchange in bed.proxy.record[before:] if exchange.is_write]
            made = sorted(exchange.name for exchange in after if exchange.method == "POST" and exchange.took_effect)
            replaced = [f"{jobs.name('hurt')}-{one}" for one in ("worker-0", "worker-1")]
            fresh = [f"{jobs.name('new')}-{one}" for one in ("worker-0", "worker-1")] * 2
            assert bed.proxy.expirations > 0
            assert [name for name in made if not is_of(name, jobs.name("gone"))] == sorted(replaced + fresh)
            await jobs.gone("gone")  # Services may have come once more, before the news of their job; pods never do
            assert not [e for e in after if e.effect[1] == "pods" and is_of(e.name, jobs.name("gone"))]
            assert jobs.uids("still") == still
            assert jobs.uids("hurt")["-worker-0"] == hurt["-worker-0"]
            assert jobs.uids("hurt")["-worker-1"] != hurt["-worker-1"]
            assert not operator.has_ended
            await jobs.delete("still", "hurt", "new")

    asyncio.run(main())
