"""The API server over real sockets, on virtual time: answers, refusals, watches."""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.unit.cluster.serving import api_server

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.watching import WatchStream
from trainmaster.cluster.server import auth, negotiation, routes
from trainmaster.cluster.server.negotiation import Form
from trainmaster.cluster.server.routes import Target
from trainmaster.testing import clock

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def a_config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def a_pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Answer:
    status: int
    media: str
    body: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    def __init__(self, session: aiohttp.ClientSession, registry: Registry) -> None:
        self.session = session
        self.registry = registry

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        if data is not None:
            named.setdefault("Content-Type", "application/json")
        async with self.session.request(method, path, data=data, headers=named) as response:
            return Answer(response.status, response.content_type, await response.read(), response.headers)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.send("POST", path, body, **headers)


@asynccontextmanager
async def serving(token: str = "secret") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with api_server() as (server, registry), aiohttp.ClientSession(server.url, headers=headers) as session:
        yield Client(session, registry)


def with_client(use: Callable[[Client], Coroutine[Any, Any, None]], token: str = "secret") -> None:
    async def main() -> None:
        async with serving(token) as client:
            await use(client)

    clock.run(main())


@asynccontextmanager
async def watching(client: Client, path: str, **headers: str) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Any]]]:
    """A function that returns the next event; None when the stream has ended."""
    async with client.session.get(path, headers=headers) as response:
        assert response.status == 200

        async def event() -> Any:
            line = await response.content.readline()
            return msgspec.json.decode(line) if line else None

        yield event


@pytest.mark.parametrize(
    ("path", "target"),
    [
        pytest.param("/api/v1/pods", Target("", "v1", "", "pods"), id="all namespaces"),
        pytest.param("/api/v1/namespaces/a/pods/b", Target("", "v1", "a", "pods", "b"), id="one object"),
        pytest.param("/api/v1/namespaces/a/pods/b/log", Target("", "v1", "a", "pods", "b", "log"), id="subresource"),
        pytest.param("/api/v1/namespaces", Target("", "v1", "", "namespaces"), id="namespaces"),
        pytest.param("/api/v1/namespaces/a", Target("", "v1", "", "namespaces", "a"), id="one namespace"),
        pytest.param(
            "/api/v1/namespaces/a/status", Target("", "v1", "", "namespaces", "a", "status"), id="namespace status"
        ),
        pytest.param("/apis/apps/v1/deployments", Target("apps", "v1", "", "deployments"), id="named group"),
        pytest.param("/apis/apps/v1", Target("apps", "v1"), id="group and version"),
        pytest.param("/api/v1/watch/pods", Target("", "v1", "", "pods", is_watch=True), id="old watch"),
        pytest.param("/apis/apps", None, id="group alone"),
        pytest.param("/api/v1/namespaces/a/pods/b/c/d", None, id="too deep"),
        pytest.param("/api/v1//pods", None, id="empty part"),
        pytest.param("/healthz", None, id="not a resource"),
    ],
)
def test_path_is_read_into_its_parts(path: str, target: Target | None):
    assert routes.parse(path) == target


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        pytest.param("", Form(), id="nothing"),
        pytest.param("*/*", Form(), id="anything"),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", Form(), id="protobuf gets JSON"),
        pytest.param(TABLE, Form("Table"), id="table"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Form("PartialObjectMetadata"),
            id="metadata",
        ),
        pytest.param("application/json;as=Sofa;g=meta.k8s.io;v=v1,application/json", Form(), id="unknown form"),
        pytest.param("application/yaml", Form(is_yaml=True), id="yaml"),
        pytest.param("text/html", None, id="not to be had"),
    ],
)
def test_form_of_the_answer_follows_the_accept_header(accept: str, form: Form | None):
    assert negotiation.form_of(accept) == form


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_right_token_everything_is_refused(token: str):
    async def use(client: Client) -> None:
        refused = await client.get(PODS)
        public = await client.get("/version")

        assert (refused.status, refused.json["reason"]) == (401, "Unauthorized")
        assert public.status == (401 if token else 200)

    with_client(use, token)


def test_object_is_created_read_changed_and_deleted():
    async def use(client: Client) -> None:
        made = await client.post(CONFIGS, a_config("a", x="1"))
        read = await client.get(f"{CONFIGS}/a")
        changed = await client.send("PUT", f"{CONFIGS}/a", {**read.json, "data": {"x": "2"}})
        gone = await client.send("DELETE", f"{CONFIGS}/a")
        missing = await client.get(f"{CONFIGS}/a")

        assert made.status == 201
        assert read.json == made.json
        assert (changed.status, changed.json["data"]) == (200, {"x": "2"})
        assert (gone.status, gone.json["status"]) == (200, "Success")
        assert (missing.status, missing.json["reason"]) == (404, "NotFound")

    with_client(use)


def test_read_is_the_stored_bytes():
    async def use(client: Client) -> None:
        await client.post(CONFIGS, a_config("a"))
        kind = client.registry.kinds.lookup("", "v1", "configmaps")
        assert kind is not None

        read = await client.get(f"{CONFIGS}/a")

        assert read.body == client.registry.get(kind, "default", "a").raw

    with_client(use)


def test_list_has_pages_with_the_count_that_remains():
    async def use(client: Client) -> None:
        for name in "abc":
            await client.post(CONFIGS, a_config(name))

        first = (await client.get(f"{CONFIGS}?limit=2")).json
        token = first["metadata"]["continue"]
        second = (await client.get(f"{CONFIGS}?limit=2&continue={token}")).json

        assert (first["kind"], first["metadata"]["remainingItemCount"]) == ("ConfigMapList", 1)
        assert [item["metadata"]["name"] for item in first["items"] + second["items"]] == ["a", "b", "c"]
        assert "continue" not in second["metadata"]

    with_client(use)


def test_table_and_metadata_are_given_when_asked_for():
    async def use(client: Client) -> None:
        await client.post(PODS, a_pod("p"))

        listed = (await client.get(PODS, Accept=TABLE)).json
        single = (await client.get(f"{PODS}/p?includeObject=None", Accept=TABLE)).json
        meta = (await client.get(PODS, Accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")).json

        assert listed["kind"] == "Table"
        assert listed["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]
        assert listed["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert "object" not in single["rows"][0]
        assert meta["kind"] == "PartialObjectMetadataList"
        assert set(meta["items"][0]) == {"kind", "apiVersion", "metadata"}

    with_client(use)


def test_yaml_and_gzip_bodies_are_understood():
    async def use(client: Client) -> None:
        text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {when: 2024-01-01}\n"
        packed = gzip.compress(msgspec.json.encode(a_config("z")))

        from_yaml = await client.post(CONFIGS, text, Content_Type="application/yaml")
        from_gzip = await client.post(CONFIGS, packed, Content_Encoding="gzip")

        assert (from_yaml.status, from_yaml.json["data"]) == (201, {"when": "2024-01-01"})
        assert from_gzip.status == 201

    with_client(use)


def test_yaml_is_answered_when_asked_for():
    async def use(client: Client) -> None:
        await client.post(CONFIGS, a_config("a", x="1"))

        read = await client.get(f"{CONFIGS}/a", Accept="application/yaml")

        assert read.media == "application/yaml"
        assert b"\ndata:\n  x: '1'\n" in read.body

    with_client(use)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "reason"),
    [
        pytest.param("POST", CONFIGS, b"", {}, 400, "BadRequest", id="empty body"),
        pytest.param("POST", CONFIGS, b"{", {}, 400, "BadRequest", id="broken JSON"),
        pytest.param("POST", CONFIGS, b"[]", {}, 400, "BadRequest", id="not an object"),
        pytest.param("POST", CONFIGS, b"[" * 9999, {}, 400, "BadRequest", id="too deep"),
        pytest.param("POST", CONFIGS, b'{"kind":"Pod","apiVersion":"v1"}', {}, 400, "BadRequest", id="other kind"),
        pytest.param("POST", CONFIGS, b"a: [", {"Content_Type": "application/yaml"}, 400, "BadRequest", id="bad YAML"),
        pytest.param("POST", CONFIGS, b"x", {"Content_Type": "text/plain"}, 415, "UnsupportedMediaType", id="text"),
        pytest.param(
            "POST", CONFIGS, b"k8s\x00\xff", {"Content_Type": "application/vnd.kubernetes.protobuf"}, 400, "BadRequest",
            id="broken protobuf",
        ),
        pytest.param("PATCH", f"{CONFIGS}/a", b"{}", {}, 415, "UnsupportedMediaType", id="patch of no type"),
        pytest.param("PUT", CONFIGS, b"{}", {}, 405, "MethodNotAllowed", id="PUT to a collection"),
        pytest.param("POST", f"{CONFIGS}/a", b"{}", {}, 405, "MethodNotAllowed", id="POST to an object"),
        pytest.param("POST", "/api/v1/configmaps", b"{}", {}, 405, "MethodNotAllowed", id="POST without namespace"),
        pytest.param("GET", "/api/v1/sofas", None, {}, 404, "NotFound", id="unknown resource"),
        pytest.param("GET", "/apis/none/v1/sofas", None, {}, 404, "NotFound", id="unknown group"),
        pytest.param("GET", "/api/v1/namespaces/x/nodes", None, {}, 404, "NotFound", id="nodes in a namespace"),
        pytest.param("GET", f"{PODS}/a/sofa", None, {}, 404, "NotFound", id="unknown subresource"),
        pytest.param("GET", CONFIGS, None, {"Accept": "text/html"}, 406, "NotAcceptable", id="HTML wanted"),
        pytest.param("GET", f"{CONFIGS}?limit=x", None, {}, 400, "BadRequest", id="limit is no number"),
        pytest.param("GET", f"{CONFIGS}?resourceVersion=x", None, {}, 400, "BadRequest", id="revision is no number"),
        pytest.param("GET", f"{CONFIGS}?resourceVersion=999999", None, {}, 504, "Timeout", id="revision of the future"),
        pytest.param("GET", f"{CONFIGS}?labelSelector=a+in+b", None, {}, 400, "BadRequest", id="broken selector"),
        pytest.param("GET", f"{CONFIGS}?continue=zzz", None, {}, 400, "BadRequest", id="broken page"),
        pytest.param("POST", f"{CONFIGS}?dryRun=x", b"{}", {}, 422, "Invalid", id="unknown dry run"),
        pytest.param("DELETE", f"{CONFIGS}/a", b"[]", {}, 400, "BadRequest", id="delete options no object"),
        pytest.param("GET", "/apis/metrics.k8s.io/v1beta1/nodes", None, {}, 503, "ServiceUnavailable", id="metrics"),
        pytest.param("GET", f"{CONFIGS}?watch=1&labelSelector=a+in+b", None, {}, 400, "BadRequest", id="broken watch"),
    ],
)  # fmt: skip
def test_refusals_are_statuses_with_the_right_reason(
    method: str, path: str, body: bytes | None, headers: dict[str, str], status: int, reason: str
):
    async def use(client: Client) -> None:
        answer = await client.send(method, path, body, **headers)

        assert (answer.status, answer.json["kind"], answer.json["reason"]) == (status, "Status", reason)
        assert answer.json["code"] == status

    with_client(use)


def test_body_beyond_three_mebibytes_is_refused():
    async def use(client: Client) -> None:
        body = io.BytesIO(b" " * (negotiation.MAX_BODY + 1))
        headers = {"Content-Type": "application/json"}

        async with client.session.post(CONFIGS, data=body, headers=headers) as response:
            answer = await response.json()

        assert (response.status, answer["reason"]) == (413, "RequestEntityTooLarge")

    with_client(use)


def test_nonsense_on_the_wire_is_refused_and_not_logged(caplog: pytest.LogCaptureFixture):
    async def use(client: Client) -> None:
        url = client.session._base_url
        assert url is not None
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"SIT /here HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()

        assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))

    with_client(use)

    assert caplog.records == []


def test_integers_beyond_64_bits_do_not_break_the_answer():
    async def use(client: Client) -> None:
        answer = await client.post(CONFIGS, b'{"metadata":{"name":"a","generation":123456789012345678901234567890}}')

        assert answer.status in (201, 400)

    with_client(use)


@pytest.mark.parametrize("path", ["/foo", "/apis/none", "/openapi/v4", "/healthz/nothing", "/debug/pprof"])
def test_paths_of_no_api_are_not_found_in_plain_text(path: str):
    async def use(client: Client) -> None:
        answer = await client.get(path)

        assert (answer.status, answer.media, answer.body) == (404, "text/plain", b"404 page not found\n")

    with_client(use)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param("/api", "APIVersions", id="api"),
        pytest.param("/api/", "APIVersions", id="trailing slash"),
        pytest.param("/apis", "APIGroupList", id="groups"),
        pytest.param("/apis/apps", "APIGroup", id="group"),
        pytest.param("/api/v1", "APIResourceList", id="core"),
        pytest.param("/apis/apps/v1/", "APIResourceList", id="named group"),
    ],
)
def test_discovery_answers_with_and_without_a_trailing_slash(path: str, kind: str):
    async def use(client: Client) -> None:
        assert (await client.get(path)).json["kind"] == kind

    with_client(use)


def test_aggregated_discovery_names_its_media_type():
    async def use(client: Client) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

        answer = await client.get("/apis", Accept=accept)

        assert answer.headers["Content-Type"] == accept.split(",")[0]
        assert answer.json["kind"] == "APIGroupDiscoveryList"

    with_client(use)


def test_openapi_is_sent_once_and_then_known_by_its_tag():
    async def use(client: Client) -> None:
        index = await client.get("/openapi/v3")
        url = index.json["paths"]["apis/apps/v1"]["serverRelativeURL"]
        document = await client.get(url)
        again = await client.get(url, If_None_Match=document.headers["ETag"])
        proto = await client.get("/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        text = await client.get("/openapi/v2")

        assert document.json["openapi"] == "3.0.0"
        assert "immutable" in document.headers["Cache-Control"]
        assert (again.status, again.body) == (304, b"")
        assert proto.body.startswith(b"\n\x032.0")
        assert text.json["swagger"] == "2.0"

    with_client(use)


def test_health_version_and_metrics_answer():
    async def use(client: Client) -> None:
        healthy = await client.get("/readyz?verbose")
        version = await client.get("/version")
        metrics = await client.get("/metrics")

        assert b"readyz check passed" in healthy.body
        assert version.json["gitVersion"].startswith("v1.")
        assert b'apiserver_request_total{verb="GET",code="200"} 2' in metrics.body

    with_client(use)


def test_dry_run_changes_nothing():
    async def use(client: Client) -> None:
        answer = await client.post(f"{CONFIGS}?dryRun=All", a_config("a"))

        assert answer.status == 201
        assert (await client.get(f"{CONFIGS}/a")).status == 404

    with_client(use)


def test_reviews_allow_the_admin_and_know_tokens():
    async def use(client: Client) -> None:
        root = "/apis/authorization.k8s.io/v1"
        mine = await client.post(f"{root}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}})
        other = await client.post(f"{root}/subjectaccessreviews", {"spec": {"user": "eve"}})
        token = await client.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "secret"}})

        assert (mine.status, mine.json["status"]["allowed"]) == (201, True)
        assert other.json["status"]["allowed"] is False
        assert token.json["status"]["user"]["username"] == auth.ADMIN.user

    with_client(use)


def test_scale_is_read_and_written_as_a_scale():
    async def use(client: Client) -> None:
        path = "/apis/apps/v1/namespaces/default/deployments"
        template = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod("x")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await client.post(path, {"metadata": {"name": "d"}, "spec": spec})
        before = (await client.get(f"{path}/d/scale")).json

        after = await client.send("PUT", f"{path}/d/scale", {**before, "spec": {"replicas": 4}})

        assert (before["kind"], before["spec"], before["status"]["selector"]) == ("Scale", {"replicas": 1}, "a=b")
        assert after.json["spec"] == {"replicas": 4}
        assert (await client.get(f"{path}/d")).json["spec"]["replicas"] == 4

    with_client(use)


def test_binding_puts_a_pod_on_a_node():
    async def use(client: Client) -> None:
        await client.post(PODS, a_pod("p"))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "node-1"}}

        answer = await client.post(f"{PODS}/p/binding", binding)

        assert (answer.status, answer.json["status"]) == (201, "Success")
        assert (await client.get(f"{PODS}/p")).json["spec"]["nodeName"] == "node-1"

    with_client(use)


def test_watch_without_a_revision_begins_with_what_is_there():
    async def use(client: Client) -> None:
        await client.post(CONFIGS, a_config("a"))
        async with watching(client, f"{CONFIGS}?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt") as event:
            first = await event()
            await client.post(CONFIGS, a_config("b"))
            second = await event()
            await client.send("DELETE", f"{CONFIGS}/a")
            third = await event()

        told = [(each["type"], each["object"]["metadata"]["name"]) for each in (first, second, third)]
        assert told == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]

    with_client(use)


def test_watch_from_a_revision_tells_only_what_came_later():
    async def use(client: Client) -> None:
        made = await client.post(CONFIGS, a_config("a"))
        await client.post(CONFIGS, a_config("b"))
        revision = made.json["metadata"]["resourceVersion"]

        async with watching(client, f"{CONFIGS}?watch=true&resourceVersion={revision}") as event:
            assert (await event())["object"]["metadata"]["name"] == "b"

    with_client(use)


def test_quiet_watch_gets_bookmarks_and_ends_in_time():
    async def use(client: Client) -> None:
        path = f"{CONFIGS}?watch=true&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        async with watching(client, f"{path}&allowWatchBookmarks=true&timeoutSeconds=70") as event:
            await client.post(PODS, a_pod("elsewhere"))
            revision = str(client.registry.store.revision)
            marks = [await event() for _ in range(3)]
            end = await event()

        assert [mark["type"] for mark in marks] == ["BOOKMARK"] * 3
        assert marks[0]["object"]["metadata"]["resourceVersion"] == revision
        assert end is None
        assert asyncio.get_running_loop().time() == pytest.approx(70, abs=1)

    with_client(use)


def test_watch_list_marks_the_end_of_the_initial_events():
    async def use(client: Client) -> None:
        path = f"{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        await client.post(PODS, a_pod("p"))
        async with watching(client, path) as event:
            first, mark = await event(), await event()

        assert first["type"] == "ADDED"
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    with_client(use)


def test_watch_from_a_forgotten_revision_is_told_so_and_ended():
    async def use(client: Client) -> None:
        client.registry.store.compacted = 5
        async with watching(client, f"{CONFIGS}?watch=true&resourceVersion=2") as event:
            told, end = await event(), await event()

        assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert end is None

    with_client(use)


def test_watch_from_the_future_is_told_to_list_again():
    async def use(client: Client) -> None:
        async with watching(client, f"{CONFIGS}?watch=true&resourceVersion=99999") as event:
            assert (await event())["object"]["code"] == 410

    with_client(use)


def test_watch_as_a_table_sends_rows():
    async def use(client: Client) -> None:
        await client.post(PODS, a_pod("p"))
        async with watching(client, f"{PODS}?watch=true", Accept=TABLE) as event:
            told = await event()

        assert (told["object"]["kind"], told["object"]["rows"][0]["cells"][0]) == ("Table", "p")

    with_client(use)


def test_watch_is_let_go_when_the_client_leaves(monkeypatch: pytest.MonkeyPatch):
    async def use(client: Client) -> None:
        closed = asyncio.Event()
        monkeypatch.setattr(WatchStream, "close", lambda stream: closed.set())

        async with watching(client, f"{CONFIGS}?watch=true"):
            pass

        async with asyncio.timeout(5):
            await closed.wait()

    with_client(use)


def test_fifty_watchers_all_hear_of_every_change():
    async def use(client: Client) -> None:
        revision = client.registry.store.revision

        async def heard() -> list[str]:
            async with watching(client, f"{CONFIGS}?watch=true&resourceVersion={revision}") as event:
                return [(await event())["object"]["metadata"]["name"] for _ in range(10)]

        async with asyncio.TaskGroup() as group:
            watchers = [group.create_task(heard()) for _ in range(50)]
            for number in range(10):
                await client.post(CONFIGS, a_config(f"c{number}"))

        assert {tuple(watcher.result()) for watcher in watchers} == {tuple(f"c{number}" for number in range(10))}

    with_client(use)
