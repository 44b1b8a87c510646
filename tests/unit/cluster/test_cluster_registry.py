from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from trainmaster.cluster.registry import paging
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry, WatchStream
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import Store
from trainmaster.testing import clock

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
NOW = "2024-01-01T00:00:00Z"


def in_cluster(use: Callable[[Cluster], Awaitable[Any]], *, history: int = 10_000) -> Any:
    async def main() -> Any:
        store = await Store.open(None, history=history)
        registry = Registry(store, now=clock.Clock().now)
        await registry.start()
        try:
            return await use(Cluster(registry))
        finally:
            await store.close()

    return clock.run(main())


class Cluster:
    """The registry, spoken to in words as short as a test's."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def kind(self, path: str) -> Kind:
        group, version, plural = ("/v1/" + path if "/" not in path else path).split("/")
        found = self.registry.kinds.lookup(group, version, plural)
        assert found is not None, path
        return found

    async def create(self, path: str, obj: dict[str, Any], **options: Any) -> dict[str, Any]:
        return await self.registry.create(self.kind(path), self.space(path), obj, **options)

    async def update(self, path: str, name: str, obj: Any, **options: Any) -> dict[str, Any]:
        return (await self.registry.update(self.kind(path), self.space(path), name, obj, **options))[0]

    async def patch(self, path: str, name: str, patch: Any, type_: str = MERGE, **options: Any) -> dict[str, Any]:
        body = msgspec.json.encode(patch)
        return (await self.registry.patch(self.kind(path), self.space(path), name, body, type_, **options))[0]

    async def delete(self, path: str, name: str, **options: Any) -> dict[str, Any]:
        return await self.registry.delete(self.kind(path), self.space(path), name, options)

    def get(self, path: str, name: str) -> dict[str, Any]:
        return self.registry.get(self.kind(path), self.space(path), name).value

    def names(self, path: str, **options: Any) -> list[str]:
        items = self.registry.list(self.kind(path), self.space(path), **options).items
        return [entry.value["metadata"]["name"] for entry in items]

    def space(self, path: str) -> str:
        return "default" if self.kind(path).namespaced else ""


async def refusal(awaitable: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await awaitable
    return refused.value


def a_map(name: str = "m", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def a_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def a_definition(**version: Any) -> dict[str, Any]:
    fields = {"a": {"type": "string"}, "n": {"type": "integer", "default": 1}}
    spec = {"type": "object", "required": ["a"], "properties": fields}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    subresources = {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    first = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": subresources}
    names = {"plural": "foos", "kind": "Foo"}
    return {
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [{**first, **version}]},
    }


CRDS = "apiextensions.k8s.io/v1/customresourcedefinitions"
FOOS = "example.com/v1/foos"


def a_foo(name: str = "f", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {"a": "x", **spec}}


def test_a_new_cluster_has_its_namespaces_accounts_and_gang_kinds() -> None:
    async def use(cluster: Cluster) -> None:
        assert {"default", "kube-system", "kube-public"} <= set(cluster.names("namespaces"))
        assert cluster.names("serviceaccounts") == ["default"]
        assert cluster.get("scheduling.volcano.sh/v1beta1/queues", "default")["spec"] == {"weight": 1}
        assert cluster.kind("scheduling.x-k8s.io/v1alpha1/podgroups").status

    in_cluster(use)


def test_a_restart_over_a_full_store_writes_nothing() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create(CRDS, a_definition())
        before = cluster.registry.store.revision

        again = Registry(cluster.registry.store, now=clock.Clock().now)
        await again.start()

        assert cluster.registry.store.revision == before
        assert again.kinds.lookup("example.com", "v1", "foos") is not None

    in_cluster(use)


def test_a_created_object_gets_identity_and_the_caller_keeps_its_own() -> None:
    async def use(cluster: Cluster) -> None:
        given = a_map(data={"a": "b"}, bogus=1)

        made = await cluster.create("configmaps", given)

        assert made["metadata"]["uid"]
        assert made["metadata"]["creationTimestamp"] == NOW
        assert made["metadata"]["namespace"] == "default"
        assert "bogus" not in made
        assert made == cluster.get("configmaps", "m")
        assert given == a_map(data={"a": "b"}, bogus=1)

    in_cluster(use)


def test_reads_hand_out_what_is_stored_without_a_copy() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map())

        assert cluster.get("configmaps", "m") is cluster.get("configmaps", "m")

    in_cluster(use)


def test_a_generated_name_is_the_prefix_and_five_characters() -> None:
    async def use(cluster: Cluster) -> None:
        made = [await cluster.create("configmaps", {"metadata": {"generateName": "x-"}}) for _ in range(3)]

        names = {each["metadata"]["name"] for each in made}
        assert len(names) == 3
        assert all(name.startswith("x-") and len(name) == 7 for name in names)

    in_cluster(use)


@pytest.mark.parametrize(
    ("obj", "status", "reason", "message"),
    [
        pytest.param(a_map("taken"), 409, "AlreadyExists", 'configmaps "taken" already exists', id="exists"),
        pytest.param(
            {**a_map(), "apiVersion": "v2"}, 400, "BadRequest", 'ConfigMap in version "v2" cannot be', id="version"
        ),
        pytest.param({**a_map(), "kind": "Pod"}, 400, "BadRequest", 'Pod in version "v1" cannot be handled', id="kind"),
        pytest.param(a_map(data=[1]), 400, "BadRequest", 'ConfigMap in version "v1" cannot be handled', id="type"),
        pytest.param(
            {"metadata": {"name": "m", "namespace": "other"}},
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
            id="namespace",
        ),
        pytest.param(
            {"metadata": {}}, 422, "Invalid", 'ConfigMap "" is invalid: metadata.name: Required', id="no-name"
        ),
        pytest.param([], 400, "BadRequest", "the object provided is unrecognized", id="no-object"),
    ],
)
def test_a_create_that_cannot_be_is_refused(obj: Any, status: int, reason: str, message: str) -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map("taken"))

        refused = await refusal(cluster.create("configmaps", obj))

        assert (refused.status, refused.reason) == (status, reason)
        assert refused.message.startswith(message)

    in_cluster(use)


def test_a_namespace_must_exist_and_not_be_ending() -> None:
    async def use(cluster: Cluster) -> None:
        registry, maps = cluster.registry, cluster.kind("configmaps")
        await cluster.create("namespaces", {"metadata": {"name": "old"}})
        await cluster.delete("namespaces", "old")

        missing = await refusal(registry.create(maps, "nowhere", a_map()))
        ending = await refusal(registry.create(maps, "old", a_map()))

        assert (missing.status, missing.message) == (404, 'namespaces "nowhere" not found')
        assert ending.status == 403
        assert ending.details is not None
        assert ending.details["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace old is being terminated",
                "field": "metadata.namespace",
            }
        ]

    in_cluster(use)


def test_a_namespace_stays_until_it_is_finalized() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("namespaces", {"metadata": {"name": "old"}})

        ending = await cluster.delete("namespaces", "old")
        await cluster.update("namespaces", "old", {**ending, "spec": {"finalizers": []}}, subresource="finalize")
        immortal = await refusal(cluster.delete("namespaces", "default"))

        assert ending["status"] == {"phase": "Terminating"}
        assert "old" not in cluster.names("namespaces")
        assert immortal.status == 403

    in_cluster(use)


def test_an_update_of_an_older_state_conflicts() -> None:
    async def use(cluster: Cluster) -> None:
        first = await cluster.create("configmaps", a_map(data={"a": "1"}))
        second = await cluster.update("configmaps", "m", {**first, "data": {"a": "2"}})

        refused = await refusal(cluster.update("configmaps", "m", {**first, "data": {"a": "3"}}))

        assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        assert refused.status == 409
        assert refused.message == (
            'Operation cannot be fulfilled on configmaps "m": the object has been modified; please apply your changes '
            "to the latest version and try again"
        )

    in_cluster(use)


def test_an_update_without_a_version_replaces_what_there_is() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map(data={"a": "1"}))

        made = await cluster.update("configmaps", "m", a_map(data={"b": "2"}))

        assert made["data"] == {"b": "2"}

    in_cluster(use)


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    async def use(cluster: Cluster) -> None:
        made = await cluster.create("configmaps", a_map(data={"a": "1"}))
        before = cluster.registry.store.revision

        same = await cluster.update("configmaps", "m", made, manager="kubectl")

        assert same == made
        assert cluster.registry.store.revision == before

    in_cluster(use)


def test_only_some_kinds_are_created_by_an_update() -> None:
    async def use(cluster: Cluster) -> None:
        leases, maps = cluster.kind("coordination.k8s.io/v1/leases"), cluster.kind("configmaps")

        _, is_new = await cluster.registry.update(leases, "default", "l", {"metadata": {"name": "l"}})
        refused = await refusal(cluster.registry.update(maps, "default", "m", a_map()))

        assert is_new
        assert refused.status == 404

    in_cluster(use)


def test_racing_patches_all_take_effect() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map())
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(cluster.patch("configmaps", "m", {"data": {f"k{number}": "v"}}), name=str(number))

        assert len(cluster.get("configmaps", "m")["data"]) == 20

    in_cluster(use)


def test_status_and_spec_are_written_apart() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create(CRDS, a_definition())
        await cluster.create(FOOS, {**a_foo(), "status": {"n": 9}})

        main = await cluster.patch(FOOS, "f", {"spec": {"a": "y"}, "status": {"n": 5}})
        status = await cluster.patch(FOOS, "f", {"spec": {"a": "z"}, "status": {"n": 5}}, subresource="status")

        assert (main["spec"]["a"], main.get("status"), main["metadata"]["generation"]) == ("y", None, 2)
        assert (status["spec"]["a"], status["status"], status["metadata"]["generation"]) == ("y", {"n": 5}, 2)

    in_cluster(use)


def test_scale_changes_the_number_at_its_path() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create(CRDS, a_definition())
        await cluster.create(FOOS, a_foo())

        made = await cluster.patch(FOOS, "f", {"spec": {"replicas": 4}}, subresource="scale")

        assert made["spec"] == {"a": "x", "n": 4}

    in_cluster(use)


def test_a_custom_resource_is_pruned_defaulted_and_checked() -> None:
    async def use(cluster: Cluster) -> None:
        crd = await cluster.create(CRDS, a_definition())
        made = await cluster.create(FOOS, a_foo(extra=1))
        refused = await refusal(cluster.create(FOOS, a_foo("g", a=1)))
        unconditional = await refusal(cluster.update(FOOS, "f", a_foo()))

        established = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
        assert established == {"NamesAccepted": "True", "Established": "True"}
        assert made["spec"] == {"a": "x", "n": 1}
        assert refused.message == (
            'Foo.example.com "g" is invalid: spec.a: Invalid value: "integer": spec.a in body must be of type string: '
            '"integer"'
        )
        assert unconditional.message.endswith(
            "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
        )

    in_cluster(use)


def test_a_definition_takes_its_objects_with_it_once_they_let_go() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create(CRDS, a_definition())
        await cluster.create(FOOS, a_foo("plain"))
        await cluster.create(FOOS, {**a_foo("held"), "metadata": {"name": "held", "finalizers": ["a.io/b"]}})

        await cluster.delete(CRDS, "foos.example.com")
        left = cluster.names(FOOS)
        refused = await refusal(cluster.create(FOOS, a_foo("late")))
        await cluster.patch(FOOS, "held", {"metadata": {"finalizers": None}})

        assert left == ["held"]
        assert refused.status == 405
        assert "foos.example.com" not in cluster.names(CRDS)
        assert cluster.registry.kinds.lookup("example.com", "v1", "foos") is None

    in_cluster(use)


def test_versions_of_a_custom_resource_differ_only_in_their_name() -> None:
    async def use(cluster: Cluster) -> None:
        definition = a_definition()
        first = definition["spec"]["versions"][0]
        definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
        await cluster.create(CRDS, definition)

        made = await cluster.create("example.com/v2/foos", {**a_foo(), "apiVersion": "example.com/v2"})

        assert made["apiVersion"] == "example.com/v2"
        assert cluster.get(FOOS, "f")["apiVersion"] == "example.com/v1"
        assert cluster.get("example.com/v2/foos", "f")["apiVersion"] == "example.com/v2"

    in_cluster(use)


def test_a_plain_object_is_deleted_at_once_and_a_status_answers() -> None:
    async def use(cluster: Cluster) -> None:
        made = await cluster.create("configmaps", a_map())

        answer = await cluster.delete("configmaps", "m")

        assert answer == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "m", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        }
        assert (await refusal(cluster.delete("configmaps", "m"))).status == 404

    in_cluster(use)


def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", {"metadata": {"name": "m", "finalizers": ["a.io/b"]}})

        ending = await cluster.delete("configmaps", "m")
        added = await refusal(cluster.patch("configmaps", "m", {"metadata": {"finalizers": ["a.io/b", "c.io/d"]}}))
        await cluster.patch("configmaps", "m", {"metadata": {"finalizers": None}})

        assert ending["metadata"]["deletionTimestamp"] == NOW
        assert added.status == 422
        assert cluster.names("configmaps") == []

    in_cluster(use)


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [
        pytest.param("Foreground", ["a.io/b", "foregroundDeletion"], id="foreground"),
        pytest.param("Orphan", ["a.io/b", "orphan"], id="orphan"),
        pytest.param("Background", ["a.io/b"], id="background"),
    ],
)
def test_what_becomes_of_dependents_is_left_to_the_garbage_collector(policy: str, finalizers: list[str]) -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", {"metadata": {"name": "m", "finalizers": ["a.io/b"]}})

        ending = await cluster.delete("configmaps", "m", propagationPolicy=policy)

        assert ending["metadata"]["finalizers"] == finalizers

    in_cluster(use)


@pytest.mark.parametrize(
    ("precondition", "message"),
    [
        pytest.param({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record (", id="uid"),
        pytest.param(
            {"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match", id="version"
        ),
    ],
)
def test_a_deletion_of_another_state_conflicts(precondition: dict[str, str], message: str) -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map())

        refused = await refusal(cluster.delete("configmaps", "m", preconditions=precondition))

        assert refused.status == 409
        assert refused.message.startswith(f'Operation cannot be fulfilled on ConfigMap "m": {message}')

    in_cluster(use)


def test_a_bound_pod_gets_its_grace_and_goes_when_the_kubelet_says_so() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("pods", a_pod(terminationGracePeriodSeconds=9))
        await cluster.registry.bind("default", "p", {"target": {"name": "node"}})

        ending = await cluster.delete("pods", "p")
        shorter = await cluster.delete("pods", "p", gracePeriodSeconds=3)
        longer = await cluster.delete("pods", "p", gracePeriodSeconds=60)
        gone = await cluster.delete("pods", "p", gracePeriodSeconds=0)

        assert ending["metadata"]["deletionGracePeriodSeconds"] == 9
        assert ending["metadata"]["deletionTimestamp"] == "2024-01-01T00:00:09Z"
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 3
        assert longer["metadata"]["deletionGracePeriodSeconds"] == 3
        assert gone["kind"] == "Pod"
        assert cluster.names("pods") == []

    in_cluster(use)


def test_a_pod_on_no_node_goes_at_once() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("pods", a_pod())

        await cluster.delete("pods", "p")

        assert cluster.names("pods") == []

    in_cluster(use)


def test_a_pod_is_bound_once() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("pods", a_pod())

        answer = await cluster.registry.bind("default", "p", {"target": {"name": "one"}})
        again = await refusal(cluster.registry.bind("default", "p", {"target": {"name": "two"}}))
        nowhere = await refusal(cluster.registry.bind("default", "p", {"target": {}}))

        pod = cluster.get("pods", "p")
        assert answer["status"] == "Success"
        assert pod["spec"]["nodeName"] == "one"
        assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
        assert again.message == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "one"'
        )
        assert nowhere.status == 422

    in_cluster(use)


def test_an_eviction_asks_the_disruption_budgets() -> None:
    async def use(cluster: Cluster) -> None:
        budgets = cluster.kind("policy/v1/poddisruptionbudgets")
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
        await cluster.registry.create(budgets, "default", {"metadata": {"name": "b"}, "spec": spec})
        for name in ("p", "q"):
            await cluster.create("pods", {**a_pod(name), "metadata": {"name": name, "labels": {"a": "b"}}})
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await cluster.patch("pods", name, {"status": ready}, subresource="status")

        await cluster.registry.evict("default", "p", {"metadata": {"name": "p"}})
        refused = await refusal(cluster.registry.evict("default", "q", {"metadata": {"name": "q"}}))

        assert cluster.names("pods") == ["q"]
        assert (refused.status, refused.reason) == (429, "TooManyRequests")

    in_cluster(use)


def test_a_dry_run_answers_and_stores_nothing() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map("kept"))
        before = cluster.registry.store.revision
        maps = cluster.kind("configmaps")

        made = await cluster.create("configmaps", a_map(), dry_run=True)
        patched = await cluster.patch("configmaps", "kept", {"data": {"a": "b"}}, dry_run=True)
        await cluster.registry.delete(maps, "default", "kept", {}, dry_run=True)
        exists = await refusal(cluster.create("configmaps", a_map("kept"), dry_run=True))

        assert made["metadata"]["uid"]
        assert patched["data"] == {"a": "b"}
        assert exists.reason == "AlreadyExists"
        assert cluster.registry.store.revision == before

    in_cluster(use)


def test_a_refused_service_gives_its_address_back() -> None:
    async def use(cluster: Cluster) -> None:
        spec = {"clusterIP": "10.96.9.9", "ports": [{"port": 1}]}

        await cluster.create("services", {"metadata": {"name": "dry"}, "spec": spec}, dry_run=True)
        await cluster.create("services", {"metadata": {"name": "one"}, "spec": spec})
        await cluster.delete("services", "one")
        again = await cluster.create("services", {"metadata": {"name": "two"}, "spec": spec})

        assert again["spec"]["clusterIP"] == "10.96.9.9"

    in_cluster(use)


def test_a_collection_is_deleted_by_selector() -> None:
    async def use(cluster: Cluster) -> None:
        for name, label in (("a", "x"), ("b", "y")):
            await cluster.create("configmaps", {"metadata": {"name": name, "labels": {"l": label}}})

        await cluster.registry.delete_collection(cluster.kind("configmaps"), "default", labels="l=x")

        assert cluster.names("configmaps") == ["b"]

    in_cluster(use)


def test_pages_show_one_moment_while_the_world_goes_on() -> None:
    async def use(cluster: Cluster) -> None:
        maps = cluster.kind("configmaps")
        for name in "abcde":
            await cluster.create("configmaps", a_map(name))

        first = cluster.registry.list(maps, "default", limit=2)
        await cluster.delete("configmaps", "c")
        second = cluster.registry.list(maps, "default", limit=2, continue_=first.continue_)
        third = cluster.registry.list(maps, "default", limit=2, continue_=second.continue_)

        pages = [[entry.value["metadata"]["name"] for entry in page.items] for page in (first, second, third)]
        assert pages == [["a", "b"], ["c", "d"], ["e"]]
        assert [page.remaining for page in (first, second, third)] == [3, 1, None]
        assert first.revision == second.revision == third.revision
        assert third.continue_ == ""

    in_cluster(use)


def test_who_comes_back_too_late_is_told_and_may_go_on_inconsistently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_KEPT", 1)

    async def use(cluster: Cluster) -> None:
        maps = cluster.kind("configmaps")
        for name in "abc":
            await cluster.create("configmaps", a_map(name))
        first = cluster.registry.list(maps, "default", limit=1)
        await cluster.create("configmaps", a_map("d"))
        cluster.registry.list(maps, "default", limit=1)

        with pytest.raises(ApiError) as refused:
            cluster.registry.list(maps, "default", limit=1, continue_=first.continue_)
        token = str(refused.value.body()["metadata"]["continue"])
        rest = cluster.registry.list(maps, "default", continue_=token)

        assert (refused.value.status, refused.value.reason) == (410, "Expired")
        assert [entry.key for entry in rest.items] == ["default/b", "default/c", "default/d"]

    in_cluster(use)


async def told(stream: WatchStream, count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(5):
        events = [await anext(stream) for _ in range(count)]
    return [(event.type, event.value["metadata"]["name"]) for event in events]


def test_a_watch_from_nothing_begins_with_everything() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("configmaps", a_map("a"))
        stream = cluster.registry.watch(cluster.kind("configmaps"), "default", after=None)
        await cluster.create("configmaps", a_map("b"))
        await cluster.delete("configmaps", "a")

        assert await told(stream, 3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        stream.close()

    in_cluster(use)


def test_a_watch_sees_objects_enter_and_leave_its_selector() -> None:
    async def use(cluster: Cluster) -> None:
        kind = cluster.kind("configmaps")
        stream = cluster.registry.watch(kind, "default", after=cluster.registry.store.revision, labels="l=x")
        await cluster.create("configmaps", a_map("other"))
        await cluster.create("configmaps", a_map("m"))
        for label in ("x", "x", "y"):
            patch = {"metadata": {"labels": {"l": label}, "annotations": {label: "seen"}}}
            await cluster.patch("configmaps", "m", patch)
            await cluster.patch("configmaps", "m", {"data": {"n": label}})

        assert await told(stream, 3) == [("ADDED", "m"), ("MODIFIED", "m"), ("DELETED", "m")]
        stream.close()

    in_cluster(use)


def test_a_watch_of_one_name_and_namespace_sees_no_other() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create("namespaces", {"metadata": {"name": "n2"}})
        stream = cluster.registry.watch(cluster.kind("configmaps"), "default", after=None, name="m")
        await cluster.registry.create(cluster.kind("configmaps"), "n2", a_map("m"))
        await cluster.create("configmaps", a_map("other"))
        await cluster.create("configmaps", a_map("m"))

        events = await stream.batch()

        assert [(event.type, event.entry.key) for event in events] == [("ADDED", "default/m")]
        stream.close()

    in_cluster(use)


def test_a_watch_from_too_long_ago_is_gone() -> None:
    async def use(cluster: Cluster) -> None:
        for number in range(10):
            await cluster.create("configmaps", a_map(f"m{number}"))

        with pytest.raises(ApiError) as refused:
            cluster.registry.watch(cluster.kind("configmaps"), after=1)

        assert (refused.value.status, refused.value.reason) == (410, "Expired")

    in_cluster(use, history=5)


def test_apply_creates_then_changes_and_needs_a_manager() -> None:
    async def use(cluster: Cluster) -> None:
        maps = cluster.kind("configmaps")
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: b, c: d}\n"

        _, is_new = await cluster.registry.patch(maps, "default", "m", body, APPLY, manager="me")
        less = body.replace(b", c: d", b"")
        made, is_new_again = await cluster.registry.patch(maps, "default", "m", less, APPLY, manager="me")
        unnamed = await refusal(cluster.registry.patch(maps, "default", "m", body, APPLY))

        assert (is_new, is_new_again) == (True, False)
        assert made["data"] == {"a": "b"}
        assert unnamed.message == (
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        )

    in_cluster(use)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            b"kind: ConfigMap\nmetadata: {name: m}",
            "Incorrect version specified in apply patch. Specified patch version: , expected: v1",
            id="no-version",
        ),
        pytest.param(
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\nfoo: bar",
            "failed to create typed patch object: .foo: field not declared in schema",
            id="unknown-field",
        ),
        pytest.param(
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: q}",
            "the name of the object (q) does not match the name on the URL (m)",
            id="name",
        ),
        pytest.param(
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, managedFields: [{manager: x}]}",
            "metadata.managedFields must be nil",
            id="managed-fields",
        ),
    ],
)
def test_an_apply_that_cannot_be_is_a_bad_request(body: bytes, message: str) -> None:
    async def use(cluster: Cluster) -> None:
        maps = cluster.kind("configmaps")

        refused = await refusal(cluster.registry.patch(maps, "default", "m", body, APPLY, manager="me"))

        assert (refused.status, refused.message) == (400, message)

    in_cluster(use)


def test_a_patch_type_that_the_kind_does_not_take_is_refused() -> None:
    async def use(cluster: Cluster) -> None:
        await cluster.create(CRDS, a_definition())
        await cluster.create(FOOS, a_foo())

        strategic = await refusal(cluster.patch(FOOS, "f", {}, "application/strategic-merge-patch+json"))
        unknown = await refusal(cluster.patch("configmaps", "m", {}, "text/plain"))

        assert (strategic.status, unknown.status) == (415, 415)

    in_cluster(use)


def test_what_an_older_store_holds_can_be_changed_and_deleted_but_not_made_worse() -> None:
    """A rule that came later must not keep the finalizers of what was stored before it."""

    async def use(cluster: Cluster) -> tuple[list[str], str, list[str]]:
        made = await cluster.create("configmaps", {"metadata": {"name": "old", "finalizers": ["a.b/c"]}})
        kind, store = cluster.kind("configmaps"), cluster.registry.store
        entry = store.get(kind.prefix, "default/old")
        assert entry is not None
        await store.put(kind.prefix, entry.key, {**made, "data": {"..bad": ""}}, expect=entry.revision)
        with pytest.raises(ApiError) as refused:
            await cluster.patch("configmaps", "old", {"data": {"..worse": ""}})
        changed = await cluster.patch("configmaps", "old", {"data": {"good": ""}})
        await cluster.delete("configmaps", "old")
        await cluster.patch("configmaps", "old", {"metadata": {"finalizers": None}})
        return sorted(changed["data"]), refused.value.message, cluster.names("configmaps")

    keys, message, left = in_cluster(use)

    assert keys == ["..bad", "good"]
    assert message == 'ConfigMap "old" is invalid: data[..worse]: Invalid value: "..worse": must not start with \'..\''
    assert left == []
