from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.cluster.controllers.garbage import GarbageCollector, Index, Place
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

MAPS = "v1/configmaps"


def play(scene: Any) -> None:
    stage.play(scene, lambda registry, now: [GarbageCollector(registry)])


def a_map(name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    references = {"ownerReferences": list(owners)} if owners else {}
    return {"metadata": {"name": name, "namespace": "default", **references, **metadata}}


def owned_by(obj: dict[str, Any], *, blocks: bool = False, uid: str = "") -> dict[str, Any]:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": uid or obj["metadata"]["uid"],
        **({"blockOwnerDeletion": True} if blocks else {}),
    }


def finalizers_of(stage: Stage, name: str) -> list[str]:
    obj = stage.get(MAPS, f"default/{name}")
    assert obj is not None
    return list(obj["metadata"].get("finalizers", []))


def test_dependents_of_a_deleted_owner_go_with_all_that_depends_on_them() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        child = await stage.create(MAPS, a_map("child", owned_by(owner)))
        await stage.create(MAPS, a_map("grandchild", owned_by(child)))
        await stage.create(MAPS, a_map("other"))

        await stage.delete(MAPS, "default/owner")

        await stage.until(lambda: stage.names(MAPS, "default") == ["other"])

    play(scene)


def test_an_object_made_for_an_owner_that_is_not_there_goes() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))

        await stage.create(MAPS, a_map("late", owned_by(owner, uid="of-an-earlier-owner")))

        await stage.until(lambda: stage.names(MAPS, "default") == ["owner"])

    play(scene)


def test_an_object_with_one_owner_left_stays_and_forgets_the_other() -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.create(MAPS, a_map("first"))
        second = await stage.create(MAPS, a_map("second"))
        await stage.create(MAPS, a_map("child", owned_by(first), owned_by(second)))

        await stage.delete(MAPS, "default/first")

        def has_one_owner() -> bool:
            child = stage.get(MAPS, "default/child")
            return child is not None and child["metadata"]["ownerReferences"] == [owned_by(second)]

        await stage.until(has_one_owner)
        await stage.passes(60)
        assert stage.names(MAPS, "default") == ["child", "second"]

    play(scene)


def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents() -> None:
    async def scene(stage: Stage) -> None:
        reference = {"apiVersion": "example.org/v1", "kind": "Unheard", "name": "x", "uid": "y"}

        await stage.create(MAPS, a_map("child", reference))

        await stage.passes(3600)
        assert stage.names(MAPS, "default") == ["child"]

    play(scene)


def test_an_owner_in_another_namespace_is_no_owner() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("v1/namespaces", {"metadata": {"name": "other"}})
        owner = await stage.create(MAPS, {"metadata": {"name": "owner", "namespace": "other"}})

        await stage.create(MAPS, a_map("child", owned_by(owner)))

        await stage.until(lambda: stage.names(MAPS, "default") == [])
        assert "owner" in stage.names(MAPS, "other")

    play(scene)


def test_a_cluster_wide_owner_owns_inside_namespaces() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create("v1/nodes", {"metadata": {"name": "machine"}})
        await stage.create(MAPS, a_map("child", owned_by(owner)))
        await stage.passes(60)
        assert stage.names(MAPS, "default") == ["child"]

        await stage.delete("v1/nodes", "machine")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_orphaned_dependents_stay_without_their_owner() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        await stage.create(MAPS, a_map("child", owned_by(owner)))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Orphan")

        await stage.until(lambda: stage.names(MAPS, "default") == ["child"])
        child = stage.get(MAPS, "default/child")
        assert child is not None
        assert "ownerReferences" not in child["metadata"]
        await stage.passes(60)
        assert stage.names(MAPS, "default") == ["child"]

    play(scene)


def test_in_the_foreground_an_owner_waits_for_dependents_that_block_it() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        await stage.create(MAPS, a_map("slow", owned_by(owner, blocks=True), finalizers=["example.org/busy"]))
        await stage.create(MAPS, a_map("quick", owned_by(owner, blocks=True)))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == ["owner", "slow"])
        await stage.passes(60)
        assert finalizers_of(stage, "owner") == ["foregroundDeletion"]
        slow = stage.get(MAPS, "default/slow")
        assert slow is not None
        assert slow["metadata"]["deletionTimestamp"]

        await stage.change(MAPS, "default/slow", metadata={"finalizers": []})

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_in_the_foreground_dependents_that_do_not_block_may_outlive_the_owner_for_a_while() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        await stage.create(MAPS, a_map("slow", owned_by(owner), finalizers=["example.org/busy"]))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == ["slow"])

    play(scene)


def test_an_owner_without_dependents_goes_at_once_in_the_foreground() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(MAPS, a_map("owner"))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_the_foreground_reaches_down_a_chain() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        child = await stage.create(MAPS, a_map("child", owned_by(owner, blocks=True)))
        busy = {"finalizers": ["example.org/busy"]}
        await stage.create(MAPS, a_map("grandchild", owned_by(child, blocks=True), **busy))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Foreground")

        def all_end() -> bool:
            return all("deletionTimestamp" in obj["metadata"] for obj in stage.all(MAPS, "default"))

        await stage.until(all_end)
        await stage.passes(60)
        assert stage.names(MAPS, "default") == ["child", "grandchild", "owner"]

        await stage.change(MAPS, "default/grandchild", metadata={"finalizers": []})

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_objects_that_own_each_other_do_not_wait_forever() -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.create(MAPS, a_map("first"))
        second = await stage.create(MAPS, a_map("second", owned_by(first, blocks=True)))
        await stage.change(MAPS, "default/first", metadata={"ownerReferences": [owned_by(second, blocks=True)]})

        await stage.delete(MAPS, "default/first", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_a_circle_of_objects_all_deleted_in_the_foreground_goes() -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.create(MAPS, a_map("first"))
        second = await stage.create(MAPS, a_map("second", owned_by(first, blocks=True)))
        third = await stage.create(MAPS, a_map("third", owned_by(second, blocks=True)))
        await stage.change(MAPS, "default/first", metadata={"ownerReferences": [owned_by(third, blocks=True)]})

        for name in ("first", "second", "third"):
            await stage.delete(MAPS, f"default/{name}", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


def test_a_terminating_dependent_keeps_its_own_finalizers() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        await stage.create(MAPS, a_map("child", owned_by(owner), finalizers=["example.org/busy"]))

        await stage.delete(MAPS, "default/owner")

        await stage.until(lambda: "deletionTimestamp" in (stage.get(MAPS, "default/child") or {})["metadata"])
        assert finalizers_of(stage, "child") == ["example.org/busy"]

    play(scene)


def test_custom_resources_own_as_soon_as_their_kind_is_served() -> None:
    async def scene(stage: Stage) -> None:
        reference = {"apiVersion": "example.org/v1", "kind": "Widget", "name": "gone", "uid": "gone"}
        await stage.create(MAPS, a_map("stranger", reference))
        await stage.create("apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
        await stage.until(lambda: stage.names(MAPS, "default") == [])

        widget = await stage.create("example.org/v1/widgets", {**a_map("widget"), **WIDGET})
        await stage.create(MAPS, a_map("child", owned_by(widget)))
        await stage.passes(60)
        assert stage.names(MAPS, "default") == ["child"]
        await stage.delete("example.org/v1/widgets", "default/widget")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


WIDGET = {"apiVersion": "example.org/v1", "kind": "Widget"}


def a_definition() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_what_lost_its_owner_while_nobody_collected_goes_at_the_start() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        await stage.create(MAPS, a_map("child", owned_by(owner)))
        await stage.delete(MAPS, "default/owner")

        async with asyncio.TaskGroup() as group:
            collector = group.create_task(GarbageCollector(stage.registry).run())
            await stage.until(lambda: stage.names(MAPS, "default") == [])
            collector.cancel()

    stage.play(scene, lambda registry, now: [])


def test_a_thousand_dependents_go_with_their_owner() -> None:
    async def scene(stage: Stage) -> None:
        owner = await stage.create(MAPS, a_map("owner"))
        for number in range(1000):
            await stage.create(MAPS, a_map(f"child-{number}", owned_by(owner, blocks=True)))

        await stage.delete(MAPS, "default/owner", propagationPolicy="Foreground")

        await stage.until(lambda: stage.names(MAPS, "default") == [])

    play(scene)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sets(st.integers(0, 7), max_size=3)),
        st.tuples(st.sampled_from(["Background", "Foreground", "Orphan"]), st.sets(st.integers(0, 7), max_size=1)),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_is_created_and_deleted_only_what_still_has_an_owner_or_never_had_one_is_left(
    steps: list[tuple[str, set[int]]],
) -> None:
    async def scene(stage: Stage) -> None:
        made: list[dict[str, Any]] = []
        for word, numbers in steps:
            chosen = [made[number] for number in sorted(numbers) if number < len(made)]
            if word == "create":
                made.append(await stage.create(MAPS, a_map(f"m{len(made)}", *(owned_by(each) for each in chosen))))
            for obj in chosen if word != "create" else ():
                with contextlib.suppress(ApiError):
                    await stage.delete(MAPS, f"default/{obj['metadata']['name']}", propagationPolicy=word)
        await stage.passes(300)

        left = {obj["metadata"]["uid"]: obj["metadata"] for obj in stage.all(MAPS, "default")}
        for metadata in left.values():
            assert "deletionTimestamp" not in metadata
            assert all(owner["uid"] in left for owner in metadata.get("ownerReferences", []))
        roots = {obj["metadata"]["uid"] for obj in made if not obj["metadata"].get("ownerReferences")}
        deleted = {made[n]["metadata"]["uid"] for word, ns in steps if word != "create" for n in ns if n < len(made)}
        assert roots - deleted <= set(left)

    play(scene)


@pytest.mark.parametrize("blocks", [True, False])
def test_the_index_forgets_what_no_longer_refers(blocks: bool) -> None:
    index = Index()
    child = Place("/configmaps", "default/child")

    index.put(child, [{"uid": "a", "blockOwnerDeletion": blocks}, {"uid": "b"}])
    index.put(child, [{"uid": "b"}])

    assert index.dependents("a") == []
    assert index.dependents("b") == [child]
    index.put(child, [])
    assert (index.dependents("b"), index.places()) == ([], [])
