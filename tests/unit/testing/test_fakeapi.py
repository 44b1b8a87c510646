"""The fake API server keeps the promises of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from trainmaster.kube import errors
from trainmaster.kube.client import Client, WatchEvent
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, PODS, PRIORITY_CLASSES, SERVICES, Resource
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi, Fault

JOBS = Resource("example.com", "v1", "jobs", "Job")
run = clock.run


async def no_sleep(seconds: float) -> None: ...


def connect(**options: Any) -> tuple[FakeApi, Client]:
    api = FakeApi([JOBS], **options)
    return api, Client(api, sleep=no_sleep)


def an_object(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more.pop("metadata", {})}, **more}


def owned_by(owner: dict[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {"ownerReferences": [{"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}]}


def names(items: Any) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def test_create_fills_in_what_the_server_owns() -> None:
    async def main() -> None:
        _, client = connect(clock=lambda: 60.0)

        job = await client.create(JOBS, an_object("a", spec={"x": 1}, status={"lies": True}), "default")

        assert job == {
            "apiVersion": "example.com/v1",
            "kind": "Job",
            "metadata": {
                "name": "a",
                "namespace": "default",
                "uid": "uid-1",
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": "1970-01-01T00:01:00Z",
            },
            "spec": {"x": 1},
        }

    run(main())


def test_pods_begin_pending_and_services_get_an_address() -> None:
    async def main() -> None:
        _, client = connect()

        pod = await client.create(PODS, an_object("p"), "default")
        service = await client.create(SERVICES, an_object("s"), "default")
        headless = await client.create(SERVICES, an_object("h", spec={"clusterIP": "None"}), "default")

        assert pod["status"] == {"phase": "Pending"}
        assert service["spec"]["clusterIP"].startswith("10.96.")
        assert headless["spec"]["clusterIP"] == "None"

    run(main())


def test_name_is_taken_once() -> None:
    async def main() -> None:
        _, client = connect()
        await client.create(PODS, an_object("a"), "default")

        with pytest.raises(errors.AlreadyExists):
            await client.create(PODS, an_object("a"), "default")
        await client.create(PODS, an_object("a"), "elsewhere")

    run(main())


def test_generated_names_differ() -> None:
    async def main() -> None:
        api, client = connect()

        for _ in range(2):
            await client.create(EVENTS, {"metadata": {"generateName": "e-"}}, "default")

        assert names(api.objects(EVENTS)) == ["e-00001", "e-00002"]

    run(main())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param({"metadata": {}}, errors.Invalid, id="no-name"),
        pytest.param(an_object("a", metadata={"namespace": "other"}), errors.BadRequest, id="other-namespace"),
        pytest.param(an_object("a", metadata={"resourceVersion": "1"}), errors.ServerError, id="with-version"),
        pytest.param(b"[]", errors.Undecodable, id="not-an-object"),
    ],
)
def test_bad_creates_are_refused(body: Any, kind: type[Exception]) -> None:
    async def main() -> None:
        _, client = connect()

        with pytest.raises(kind):
            await client.create(PODS, body, "default")

    run(main())


def test_stale_update_conflicts() -> None:
    async def main() -> None:
        _, client = connect()
        first = await client.create(JOBS, an_object("a", spec={"x": 1}), "default")
        await client.update(JOBS, {**first, "spec": {"x": 2}})

        with pytest.raises(errors.Conflict):
            await client.update(JOBS, {**first, "spec": {"x": 3}})

    run(main())


def test_update_of_a_namesake_conflicts() -> None:
    async def main() -> None:
        _, client = connect()
        pod = await client.create(PODS, an_object("a"), "default")
        del pod["metadata"]["resourceVersion"]
        pod["metadata"]["uid"] = "another"

        with pytest.raises(errors.Conflict):
            await client.update(PODS, pod)

    run(main())


def test_custom_resource_is_not_updated_blindly() -> None:
    async def main() -> None:
        _, client = connect()
        await client.create(JOBS, an_object("a"), "default")

        with pytest.raises(errors.Invalid):
            await client.update(JOBS, an_object("a", spec={}), "default")

    run(main())


def test_main_and_status_do_not_touch_each_other() -> None:
    async def main() -> None:
        _, client = connect()
        job = await client.create(JOBS, an_object("a", spec={"x": 1}), "default")

        job = await client.update(JOBS, {**job, "spec": {"x": 9}, "status": {"y": 1}}, subresource="status")
        after_status = (job["spec"], job["status"], job["metadata"]["generation"])
        job = await client.update(JOBS, {**job, "spec": {"x": 2}, "status": {"y": 9}})

        assert after_status == ({"x": 1}, {"y": 1}, 1)
        assert (job["spec"], job["status"], job["metadata"]["generation"]) == ({"x": 2}, {"y": 1}, 2)

    run(main())


def test_update_that_changes_nothing_is_no_write() -> None:
    async def main() -> None:
        api, client = connect()
        job = await client.create(JOBS, an_object("a", spec={"x": 1}), "default")

        again = await client.update(JOBS, job)

        assert again == job
        assert api.resource_version == "1"

    run(main())


def test_merge_patch_merges_and_removes() -> None:
    async def main() -> None:
        _, client = connect()
        await client.create(JOBS, an_object("a", spec={"x": {"y": 1, "z": 2}, "w": [1]}), "default")

        job = await client.patch(JOBS, "a", {"spec": {"x": {"y": None, "v": 3}, "w": [2, 3]}}, "default")
        status = await client.patch(JOBS, "a", {"spec": {}, "status": {"ok": True}}, "default", "status")

        assert job["spec"] == {"x": {"z": 2, "v": 3}, "w": [2, 3]}
        assert job["metadata"]["generation"] == 2
        assert (status["spec"], status["status"]) == (job["spec"], {"ok": True})

    run(main())


def test_patch_with_a_stale_version_conflicts() -> None:
    async def main() -> None:
        _, client = connect()
        await client.create(JOBS, an_object("a"), "default")
        patch = {"metadata": {"resourceVersion": "99"}, "spec": {"x": 1}}

        with pytest.raises(errors.Conflict):
            await client.patch(JOBS, "a", patch, "default")

    run(main())


def test_other_patches_are_not_understood() -> None:
    async def main() -> None:
        _, client = connect()

        with pytest.raises(errors.ApiError) as caught:
            await client.patch(PODS, "a", b"{}", "default", content_type="application/json-patch+json")

        assert caught.value.status == 415

    run(main())


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resource_version": "99"}])
def test_delete_respects_preconditions(precondition: dict[str, Any]) -> None:
    async def main() -> None:
        api, client = connect()
        await client.create(PODS, an_object("a"), "default")

        with pytest.raises(errors.Conflict):
            await client.delete(PODS, "a", "default", **precondition)

        assert names(api.objects(PODS)) == ["a"]

    run(main())


def test_deleted_object_is_gone() -> None:
    async def main() -> None:
        api, client = connect()
        await client.create(JOBS, an_object("a"), "default")

        answer = await client.delete(JOBS, "a", "default")

        assert answer is None
        assert api.objects(JOBS) == []
        with pytest.raises(errors.NotFound):
            await client.delete(JOBS, "a", "default")

    run(main())


def test_finalizers_hold_an_object_until_they_are_removed() -> None:
    async def main() -> None:
        api, client = connect()
        await client.create(JOBS, an_object("a", metadata={"finalizers": ["x/y"]}), "default")

        marked = await client.delete(JOBS, "a", "default")
        held = names(api.objects(JOBS))
        await client.patch(JOBS, "a", {"metadata": {"finalizers": None}}, "default")

        assert marked is not None
        assert marked["metadata"]["deletionTimestamp"]
        assert held == ["a"]
        assert api.objects(JOBS) == []

    run(main())


def test_graceful_pod_stays_until_the_kubelet_is_done() -> None:
    async def main() -> None:
        api, client = connect(graceful=True, clock=lambda: 0.0)
        await client.create(PODS, an_object("a"), "default")

        marked = await client.delete(PODS, "a", "default")
        again = await client.delete(PODS, "a", "default")
        held = names(api.objects(PODS))
        api.finish_deletion("default", "a")

        assert marked is not None
        assert marked["metadata"]["deletionTimestamp"] == "1970-01-01T00:00:30Z"
        assert again == marked
        assert held == ["a"]
        assert api.objects(PODS) == []

    run(main())


@pytest.mark.parametrize(("phase", "grace"), [("Running", 0), ("Succeeded", None), ("Failed", None)])
def test_forced_or_finished_pods_go_at_once(phase: str, grace: int | None) -> None:
    async def main() -> None:
        api, client = connect(graceful=True)
        await client.create(PODS, an_object("a"), "default")
        api.set_pod_phase("default", "a", phase)

        answer = await client.delete(PODS, "a", "default", grace_seconds=grace)

        assert answer is None
        assert api.objects(PODS) == []

    run(main())


def test_dependents_go_with_their_last_owner() -> None:
    async def main() -> None:
        api, client = connect()
        job = await client.create(JOBS, an_object("j"), "default")
        other = await client.create(JOBS, an_object("other"), "default")
        pod = await client.create(PODS, an_object("p", metadata=owned_by(job)), "default")
        await client.create(CONFIG_MAPS, an_object("grandchild", metadata=owned_by(pod)), "default")
        both = {"ownerReferences": owned_by(job)["ownerReferences"] + owned_by(other)["ownerReferences"]}
        await client.create(PODS, an_object("shared", metadata=both), "default")

        await client.delete(JOBS, "j", "default")

        assert names(api.objects(PODS)) == ["shared"]
        assert api.objects(CONFIG_MAPS) == []
        assert len(api.object(PODS, "default", "shared")["metadata"]["ownerReferences"]) == 1

    run(main())


def test_orphans_stay() -> None:
    async def main() -> None:
        api, client = connect()
        job = await client.create(JOBS, an_object("j"), "default")
        await client.create(PODS, an_object("p", metadata=owned_by(job)), "default")

        await client.delete(JOBS, "j", "default", propagation="Orphan")

        assert names(api.objects(PODS)) == ["p"]

    run(main())


def test_child_of_a_dead_owner_is_collected() -> None:
    async def main() -> None:
        api, client = connect()
        job = await client.create(JOBS, an_object("j"), "default")
        await client.delete(JOBS, "j", "default")

        await client.create(PODS, an_object("late", metadata=owned_by(job)), "default")

        assert api.objects(PODS) == []

    run(main())


def test_lists_are_filtered_and_sorted() -> None:
    async def main() -> None:
        api, client = connect()
        for name, namespace, labels in (("b", "y", {"app": "1"}), ("c", "x", {"app": "2"}), ("a", "x", {})):
            api.put(PODS, an_object(name, metadata={"namespace": namespace, "labels": labels}))

        async def listed(namespace: str = "", **selectors: Any) -> list[str]:
            return names((await client.list(PODS, namespace, **selectors)).items)

        assert await listed() == ["a", "c", "b"]
        assert await listed("x") == ["a", "c"]
        assert await listed(label_selector="app=1") == ["b"]
        assert await listed(label_selector="app in (1, 2)") == ["c", "b"]
        assert await listed(label_selector="app notin (1)") == ["a", "c"]
        assert await listed(label_selector="app,app!=1") == ["c"]
        assert await listed(label_selector="!app") == ["a"]
        assert await listed(field_selector="metadata.name=c,metadata.namespace!=y") == ["c"]
        with pytest.raises(errors.BadRequest):
            await listed(label_selector="app is 1")

    run(main())


def test_pages_are_of_one_snapshot() -> None:
    async def main() -> None:
        api, client = connect()
        for name in "abcde":
            api.put(PODS, an_object(name))

        first = await client.list(PODS, limit=2)
        api.put(PODS, an_object("bb"))
        second = await client.list(PODS, limit=2, continue_=first.continue_)
        third = await client.list(PODS, limit=2, continue_=second.continue_)

        assert [names(page.items) for page in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
        assert {page.resource_version for page in (first, second, third)} == {"5"}
        assert (first.remaining, third.remaining, third.continue_) == (3, None, "")

    run(main())


def test_compaction_ends_lists_under_way() -> None:
    async def main() -> None:
        api, client = connect()
        for name in "ab":
            api.put(PODS, an_object(name))
        page = await client.list(PODS, limit=1)
        api.compact()

        with pytest.raises(errors.Gone):
            await client.list(PODS, limit=1, continue_=page.continue_)

    run(main())


async def heard(events: AsyncIterator[WatchEvent[dict[str, Any]]], count: int) -> list[tuple[str, str, str]]:
    told = []
    for _ in range(count):
        event = await anext(events)
        name = event.object["metadata"]["name"] if event.object is not None else ""
        told.append((event.type, name, event.resource_version))
    return told


def test_watch_replays_history_and_goes_on() -> None:
    async def main() -> None:
        api, client = connect()
        for name in "ab":
            api.put(PODS, an_object(name))

        async with aclosing(client.watch(PODS, resource_version="1", timeout_seconds=60)) as events:
            past = await heard(events, 1)
            api.set_pod_phase("default", "a", "Running")
            api.remove(PODS, "default", "b")
            api.put(CONFIG_MAPS, an_object("of-another-kind"))
            api.put(PODS, an_object("c"))
            present = await heard(events, 3)

        assert past == [("ADDED", "b", "2")]
        assert present == [("MODIFIED", "a", "3"), ("DELETED", "b", "4"), ("ADDED", "c", "6")]

    run(main())


def test_watch_without_a_version_begins_with_what_there_is() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))
        api.put(PODS, an_object("b", metadata={"labels": {"app": "x"}}))

        async with aclosing(
            client.watch(PODS, resource_version="0", timeout_seconds=60, label_selector="app")
        ) as events:
            told = await heard(events, 1)

        assert told == [("ADDED", "b", "2")]

    run(main())


def test_object_that_leaves_the_selector_is_told_as_deleted() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a", metadata={"labels": {"app": "x"}}))

        async with aclosing(
            client.watch(PODS, resource_version="1", timeout_seconds=60, label_selector="app=x")
        ) as events:
            api.put(PODS, an_object("a", metadata={"labels": {"app": "y"}}))
            api.put(PODS, an_object("a", metadata={"labels": {"app": "x"}}))
            told = await heard(events, 2)

        assert told == [("DELETED", "a", "2"), ("ADDED", "a", "3")]

    run(main())


def test_watch_ends_with_its_timeout_and_a_bookmark() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))

        events = [e async for e in client.watch(PODS, resource_version="1", timeout_seconds=60)]
        bare = [e async for e in client.watch(PODS, resource_version="1", timeout_seconds=60, bookmarks=False)]

        assert events == [WatchEvent("BOOKMARK", None, "1")]
        assert bare == []
        assert asyncio.get_running_loop().time() == 120.0
        assert api.watching == 0

    run(main())


def test_watch_from_before_the_compaction_is_gone() -> None:
    async def main() -> None:
        api, client = connect()
        for name in "ab":
            api.put(PODS, an_object(name))
        api.compact()

        with pytest.raises(errors.Gone):
            await anext(client.watch(PODS, resource_version="1", timeout_seconds=60))
        events = [e async for e in client.watch(PODS, resource_version="2", timeout_seconds=60, bookmarks=False)]

        assert events == []

    run(main())


def test_dropped_watch_loses_what_it_had_not_delivered() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))

        async with aclosing(client.watch(PODS, resource_version="0", timeout_seconds=60)) as events:
            await heard(events, 1)
            api.put(PODS, an_object("b"))
            api.drop_watches()
            rest = [event async for event in events]

        assert rest == []

    run(main())


def test_broken_watch_is_unreachable() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))

        async with aclosing(client.watch(PODS, resource_version="0", timeout_seconds=60)) as events:
            await heard(events, 1)
            api.drop_watches(broken=True)
            with pytest.raises(errors.Unreachable):
                await anext(events)

    run(main())


def test_held_watches_deliver_later() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))
        api.hold_watches()

        async with aclosing(client.watch(PODS, resource_version="0", timeout_seconds=60)) as events:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await anext(events)
        api.hold_watches(False)
        async with aclosing(client.watch(PODS, resource_version="0", timeout_seconds=60)) as events:
            told = await heard(events, 1)

        assert told == [("ADDED", "a", "1")]

    run(main())


def test_bookmarks_are_sent_on_demand() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))

        async with aclosing(client.watch(PODS, resource_version="0", timeout_seconds=60)) as events:
            await heard(events, 1)
            api.put(CONFIG_MAPS, an_object("c"))
            api.send_bookmarks()
            told = await heard(events, 1)

        assert told == [("BOOKMARK", "", "2")]

    run(main())


def test_refused_request_has_no_effect_and_a_lost_answer_has() -> None:
    async def main() -> None:
        api, _ = connect()
        client = Client(api, sleep=no_sleep, max_retries=0)
        api.fail_next("POST */pods", 503)
        api.fail_next("POST */pods", Fault())
        api.fail_next("POST */pods", Fault(after_effect=True))

        with pytest.raises(errors.ServerError):
            await client.create(PODS, an_object("a"), "default")
        with pytest.raises(errors.Unreachable):
            await client.create(PODS, an_object("a"), "default")
        without = api.objects(PODS)
        with pytest.raises(errors.Unreachable):
            await client.create(PODS, an_object("a"), "default")

        assert without == []
        assert names(api.objects(PODS)) == ["a"]
        assert api.faults == []

    run(main())


def test_callback_decides_over_each_request() -> None:
    async def main() -> None:
        api, client = connect()
        api.on_request(lambda method, path, body: 403 if b"secret" in body else None)

        await client.create(PODS, an_object("plain"), "default")
        with pytest.raises(errors.Forbidden):
            await client.create(PODS, an_object("secret"), "default")

        assert names(api.objects(PODS)) == ["plain"]

    run(main())


def test_fault_strikes_where_a_function_says_and_carries_retry_after() -> None:
    async def main() -> None:
        api, _ = connect()
        client = Client(api, max_retries=0)
        api.fail_next(lambda method, path, body: method == "GET", Fault(429, retry_after=7))

        with pytest.raises(errors.TooManyRequests) as caught:
            await client.list(PODS)

        assert caught.value.retry_after == 7.0

    run(main())


def test_requests_are_logged_and_writes_told_from_reads() -> None:
    async def main() -> None:
        api, client = connect()
        await client.list(PODS)
        await client.create(PODS, an_object("a"), "default")
        await client.create(EVENTS, an_object("e"), "default")

        assert api.requests[0] == ("GET", "/api/v1/pods")
        assert api.writes() == [
            ("POST", "/api/v1/namespaces/default/pods"),
            ("POST", "/api/v1/namespaces/default/events"),
        ]
        assert api.writes(without=[EVENTS]) == [("POST", "/api/v1/namespaces/default/pods")]

    run(main())


def test_kind_that_is_not_installed_is_a_page_not_found() -> None:
    async def main() -> None:
        api, client = connect()
        api.resources.discard(JOBS)

        with pytest.raises(errors.NotFound, match="page not found"):
            await client.list(JOBS)

    run(main())


def test_cluster_wide_kinds_have_no_namespace() -> None:
    async def main() -> None:
        api = FakeApi([PRIORITY_CLASSES])
        client = Client(api)

        created = await client.create(PRIORITY_CLASSES, an_object("high"))

        assert "namespace" not in created["metadata"]
        assert (await client.get(PRIORITY_CLASSES, "high"))["metadata"]["name"] == "high"

    run(main())


def test_collection_of_all_namespaces_takes_no_creates() -> None:
    async def main() -> None:
        _, client = connect()

        with pytest.raises(errors.NotFound):
            await client.create(PODS, an_object("a"))

    run(main())


def test_pod_phase_reads_like_a_kubelets() -> None:
    api = FakeApi()
    api.put(PODS, an_object("a", spec={"containers": [{"name": "main"}, {"name": "side"}]}))

    running = api.set_pod_phase("default", "a", "Running")["status"]
    failed = api.set_pod_phase("default", "a", "Failed", "side", 137, reason="OOMKilled", restart_count=2)["status"]

    assert running["conditions"] == [{"type": "Ready", "status": "True"}]
    assert running["podIP"] == failed["podIP"]
    assert failed["reason"] == "OOMKilled"
    assert [status["state"]["terminated"]["exitCode"] for status in failed["containerStatuses"]] == [0, 137]
    assert [status["restartCount"] for status in failed["containerStatuses"]] == [0, 2]


def test_put_of_another_uid_is_another_object() -> None:
    api = FakeApi()
    api.put(PODS, an_object("a", metadata={"uid": "one"}))

    api.put(PODS, an_object("a", metadata={"uid": "two"}))

    assert api.object(PODS, "default", "a")["metadata"]["uid"] == "two"
    assert api.resource_version == "3"
    with pytest.raises(KeyError):
        api.object(PODS, "default", "b")


def test_logs_are_served() -> None:
    async def main() -> None:
        api, client = connect()
        api.put(PODS, an_object("a"))
        api.logs["default", "a"] = b"one\n\ntwo"

        async with await client.open(PODS.path("default", "a", "log")) as response:
            lines = [line async for line in response.lines()]

        assert lines == [b"one", b"", b"two"]

    run(main())


def test_version_is_served() -> None:
    async def main() -> None:
        _, client = connect()

        assert b"gitVersion" in await client.request("GET", "/version")

    run(main())
