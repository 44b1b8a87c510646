"""What the differential test against a real API server found, held here without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.server.auth import ADMIN
from trainmaster.cluster.storage.store import Store
from trainmaster.objects import yamldocument
from trainmaster.testing import clock

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
CONFIGS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}


def a_pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", **spec.pop("container", {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    return {**body, "spec": {"containers": [container], **spec}}


def a_definition(schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    whole = {"type": "object", "properties": {"spec": schema}}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}, **version}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "test.example", "scope": "Namespaced", "names": names, "versions": [one]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**body, "metadata": {"name": "widgets.test.example"}, "spec": spec}


KEPT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        named = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        async with self._session.request(method, path, data=data, headers=named) as response:
            return response.status, msgspec.json.decode(await response.read())


@asynccontextmanager
async def serving() -> AsyncIterator[Client]:
    store = await Store.open(None)
    registry = Registry(store, now=clock.Clock().now)
    await registry.start()
    server = ApiServer(registry, runtime=None, tokens={"secret": ADMIN}, tls=None)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run())
        await server.ready.wait()
        headers = {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession(server.url, headers=headers, auto_decompress=False) as session:
            yield Client(session)
        running.cancel()
    await store.close()


def talk(use: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with serving() as send:
            return await use(send)

    return clock.run(main())


def answer(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    async def use(send: Client) -> Any:
        await send("POST", CONFIGS, CONFIG)
        await send("POST", PODS, a_pod())
        return await send(method, path, body, **headers)

    status, said = talk(use)
    return status, said.get("message", said)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        pytest.param(
            ("PATCH", f"{CONFIGS}/c", CONFIG, APPLY), 422, "is required for apply patch", id="apply-by-nobody"
        ),
        pytest.param(
            ("PATCH", f"{CONFIGS}/c?force=true", {}, MERGE),
            422,
            "may not be specified for non-apply",
            id="forced-merge",
        ),
        pytest.param(
            ("PATCH", f"{CONFIGS}/c", {"data": 5}, MERGE), 422, "patch: Invalid value", id="patch-to-something-else"
        ),
        pytest.param(("POST", "/api/v1", {}, "application/json"), 405, "does not allow this method", id="post-to-api"),
        pytest.param(
            ("GET", f"{CONFIGS}?resourceVersionMatch=Exact", None, ""),
            422,
            "unless resourceVersion",
            id="match-nothing",
        ),
        pytest.param(
            ("POST", f"{PODS}/p/binding", {"metadata": {"name": "q"}, "target": {"name": "n"}}, "application/json"),
            400,
            "name in URL does not match",
            id="binding-of-another",
        ),
        pytest.param(
            ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "q"}}, "application/json"),
            400,
            "name in URL does not match",
            id="eviction-of-another",
        ),
        pytest.param(
            ("DELETE", f"{CONFIGS}/c", {"propagationPolicy": "Orphan", "orphanDependents": True}, "application/json"),
            422,
            "cannot be both set",
            id="two-propagations",
        ),
    ],
)
def test_nonsense_is_refused_as_by_a_real_server(request_, status, words):
    method, path, body, content_type = request_

    code, message = answer(method, path, body, Content_Type=content_type)

    assert code == status
    assert words in message


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(a_pod(tolerations=[{"key": "a", "operator": "Like"}]), "tolerations[0].operator", id="toleration"),
        pytest.param(
            a_pod(container={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.x"}}}]}),
            "field label not supported: metadata.x",
            id="field",
        ),
        pytest.param(
            a_pod(container={"livenessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}}),
            "more than 1 handler",
            id="two-probes",
        ),
        pytest.param(a_pod(volumes=[{"name": "v", "hostPath": {"path": "/a/../b"}}]), "must not contain '..'", id="up"),
    ],
)
def test_pods_that_cannot_be_meant_are_refused(pod, words):
    status, message = answer("POST", f"{PODS}?dryRun=All", pod)

    assert status == 422
    assert words in message


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        pytest.param(a_definition({"type": "array"}), "items: Required value", id="list-of-nothing"),
        pytest.param(a_definition({"type": "integer", "default": "x"}), "default: Invalid value", id="bad-default"),
        pytest.param(a_definition({"type": "string", "pattern": "("}), "valid regular expression", id="bad-pattern"),
        pytest.param(
            a_definition({"type": "object"}, additionalPrinterColumns=[{"name": "X", "type": "odd"}]),
            "must be one of",
            id="bad-column",
        ),
        pytest.param(
            a_definition({"type": "object"}, subresources={"scale": {}}), "specReplicasPath: Required", id="bad-scale"
        ),
    ],
)
def test_definitions_that_could_not_be_served_are_refused(definition, words):
    status, message = answer("POST", DEFINITIONS, definition)

    assert status == 422
    assert words in message


def test_a_custom_resource_that_was_stored_before_a_rule_can_still_be_given_a_status_and_let_go():
    widgets = "/apis/test.example/v1/namespaces/default/widgets"
    widget = {"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": "w", "finalizers": ["a.b/c"]}}
    loose, strict = ({"type": "string"} | bound for bound in ({}, {"maxLength": 3}))

    async def use(send: Client) -> Any:
        served: Any = {"subresources": {"status": {}}}
        definition = a_definition(loose, **served)
        versions = definition["spec"]["versions"]
        versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"] = KEPT
        await send("POST", DEFINITIONS, definition)
        await send("POST", widgets, {**widget, "spec": "1" * 200_000})
        versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = strict
        change = {"spec": {"versions": versions}}
        await send("PATCH", f"{DEFINITIONS}/widgets.test.example", change, Content_Type=MERGE)
        steps = (
            (f"{widgets}/w/status", {"status": {"phase": "Failed"}}),
            (f"{widgets}/w", {"spec": "2" * 200_000}),
            (f"{widgets}/w", {"metadata": {"finalizers": None}}),
        )
        return [(await send("PATCH", path, change, Content_Type=MERGE))[0] for path, change in steps]

    assert talk(use) == [200, 422, 200]


def test_a_body_that_cannot_be_unpacked_is_the_clients_mistake():
    status, message = answer("POST", CONFIGS, b"xxxx", Content_Encoding="gzip")

    assert status == 400
    assert "could not be read" in message


def test_creating_what_is_being_deleted_says_so():
    async def use(send: Client) -> Any:
        held = {**CONFIG, "metadata": {"name": "c", "finalizers": ["example.org/x"]}}
        await send("POST", CONFIGS, held)
        await send("DELETE", f"{CONFIGS}/c")
        return await send("POST", CONFIGS, CONFIG)

    status, said = talk(use)

    assert status == 409
    assert said["message"] == 'object is being deleted: configmaps "c" already exists'


def test_a_watcher_that_loses_sight_of_an_object_is_told_what_it_knew():
    async def use(send: Client) -> Any:
        _, made = await send("POST", CONFIGS, {**CONFIG, "metadata": {"name": "c", "labels": {"k": "1"}}})
        change = {"metadata": {"labels": None}, "data": {"a": "2"}}
        await send("PATCH", f"{CONFIGS}/c", change, Content_Type=MERGE)
        version = made["metadata"]["resourceVersion"]
        return await send("GET", f"{CONFIGS}?watch=1&timeoutSeconds=1&labelSelector=k&resourceVersion={version}")

    _, event = talk(use)

    assert (event["type"], event["object"]["data"]) == ("DELETED", {"a": "1"})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i)
                     for i in range(24)), id="bomb"),
        pytest.param(b"&a [*a]", id="itself"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep"),
    ],
)  # fmt: skip
def test_yaml_that_would_take_the_server_down_is_refused(body):
    with pytest.raises(ValueError, match="aliasing|itself|depth"):
        yamldocument.document(body)
