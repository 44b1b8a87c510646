"""Requests that nobody in their right mind would send: valid ones with something broken in them, and pure noise."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tests.kubernetes.specimens as specimens
import yaml
from tests.kubernetes.scenarios_custom import SCHEMA, SUBRESOURCES, WIDGETS, a_widget

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FROB")
PATHS = (
    specimens.PODS, specimens.SERVICES, specimens.CONFIG_MAPS, specimens.SECRETS, specimens.CLAIMS, specimens.EVENTS,
    specimens.ACCOUNTS, specimens.QUOTAS, specimens.VOLUMES, specimens.NAMESPACES, specimens.NODES, specimens.LEASES,
    specimens.PRIORITIES, specimens.DEPLOYMENTS, specimens.STATEFUL_SETS, specimens.BATCH_JOBS, specimens.ROLES,
    specimens.DEFINITIONS, specimens.JOBS, "/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/version", "/",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/test.example/v1/namespaces/{ns}/widgets", "/metrics", "/healthz", "/api/v1/watch/namespaces/{ns}/pods",
)  # fmt: skip
PARTS = (
    "one",
    "p",
    "none",
    "",
    "%00",
    "%FF",
    "..",
    "a%2Fb",
    "\u00e4",
    "status",
    "scale",
    "log",
    "exec",
    "x" * 300,
    "{}",
)
ENDINGS = ("status", "scale", "binding", "eviction", "log", "exec", "attach", "portforward", "finalize", "token")
OPTIONS = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
    "watch", "allowWatchBookmarks", "dryRun", "fieldManager", "force", "pretty", "propagationPolicy", "includeObject",
    "gracePeriodSeconds", "orphanDependents", "fieldValidation", "container", "tailLines", "command",
    "sendInitialEvents",
)  # fmt: skip
WORDS = (
    "", "1", "0", "-1", "true", "false", "x", "a=b", "a in (b", "metadata.name=p", "!", "All", "Exact", "9" * 40, "1e9",
    "%00", "%F0%9F%98%80", "a" * 200, "NaN", "..", "Orphan", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "{}", "=", ",,",
    "(", "1" * 5000,
)  # fmt: skip
CONTENT_TYPES = (
    "application/json", specimens.MERGE, specimens.JSON_PATCH, specimens.STRATEGIC, specimens.APPLY, "application/yaml",
    "application/vnd.kubernetes.protobuf", "text/plain", "", "/", "application/json; charset=utf-16",
    "multipart/form-data",
)  # fmt: skip
ACCEPTS = (
    "application/json", "*/*", specimens.TABLE, "", ";", "application/yaml", "application/vnd.kubernetes.protobuf",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9", "a/b;q=x",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;stream=watch",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, -(10**30), 1e308, "", "x", "\u0000", "\ud800", "\u202e", "😀" * 50, "x" * 5000,
    [], {},
    [[]], [None], {"": None}, {"a": {"b": []}}, "2020-01-01T00:00:00Z", "1Gi", "-5", ["x", 5], {"$patch": "delete"},
)  # fmt: skip
PLACES: dict[str, Callable[[], dict[str, Any]]] = {
    specimens.PODS: lambda: specimens.a_pod("one"),
    specimens.SERVICES: lambda: specimens.a_service("one"),
    specimens.CONFIG_MAPS: lambda: specimens.a_config_map("one"),
    specimens.SECRETS: lambda: specimens.a_secret("one"),
    specimens.CLAIMS: lambda: specimens.a_claim("one"),
    specimens.VOLUMES: lambda: specimens.a_volume("one"),
    specimens.LEASES: lambda: specimens.a_lease("one"),
    specimens.EVENTS: lambda: specimens.an_event("one"),
    specimens.DEPLOYMENTS: lambda: specimens.a_deployment("one"),
    specimens.BATCH_JOBS: lambda: specimens.a_batch_job("one"),
    specimens.NAMESPACES: lambda: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}},
    WIDGETS: lambda: a_widget("one", tags=["a"], parts=[{"id": "a"}], free={"x": 1}, port=5, one={"a": "1"}),
    specimens.DEFINITIONS: lambda: specimens.a_definition("gadgets", "Gadget", SCHEMA, subresources=SUBRESOURCES),
}
"""Where something is at home, and a good one to begin with."""


@dataclass(frozen=True, slots=True)
class Nonsense:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_stream(self) -> bool:
        """Whether an answer without an end may be the right one."""
        return "watch" in self.path or "follow" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path[:200]} {self.headers} {self.body[:300]!r}"


def make(dice: random.Random) -> Nonsense:
    """Half of them are right but for one thing or two; the others are wild."""
    return _nearly_right(dice) if dice.random() < 0.6 else _wild(dice)


def _wild(dice: random.Random) -> Nonsense:
    headers = {"Content-Type": dice.choice(CONTENT_TYPES), "Accept": dice.choice(ACCEPTS)}
    body = dice.choice(_BODY_MAKERS)(dice)
    return _request(dice.choice(METHODS), _path(dice) + _query(dice), headers, body)


def _nearly_right(dice: random.Random) -> Nonsense:
    path = dice.choice(list(PLACES))
    body: Any = PLACES[path]()
    method, content_type = dice.choice(_WRITES)
    for _ in range(dice.choice((0, 1, 1, 2))):
        _break(dice, body)
    if content_type == specimens.JSON_PATCH:
        body = [{"op": "replace", "path": f"/{key}", "value": value} for key, value in body.items() if key != "kind"]
    if method != "POST":
        path += "/one" + dice.choice(("", "", "", "/status", "/scale"))
    query = "?fieldManager=fuzz&force=true" if content_type == specimens.APPLY else dice.choice(("", _query(dice)))
    headers = {"Content-Type": content_type, "Accept": dice.choice(("application/json", specimens.TABLE))}
    return _request(method, path + query, headers, json.dumps(body).encode())


def _request(method: str, path: str, headers: dict[str, str], body: bytes) -> Nonsense:
    path = path.replace("{ns}", "default").replace(" ", "%20")
    return Nonsense(method, path, headers, body.replace(b"{ns}", b"default"))


def _path(dice: random.Random) -> str:
    parts = [dice.choice(PATHS)]
    if dice.random() < 0.6:
        parts.append(dice.choice(PARTS))
    if dice.random() < 0.3:
        parts.append(dice.choice((*ENDINGS, *PARTS)))
    path = "/".join(parts)
    if dice.random() < 0.1:
        path = path.replace("v1", dice.choice(("v2", "", "%20", "v1beta1")), 1)
    return "".join(char if char.isascii() else "%C3%A4" for char in path)


def _query(dice: random.Random) -> str:
    pairs = [f"{dice.choice(OPTIONS)}={dice.choice(WORDS)}" for _ in range(dice.choice((0, 0, 1, 2, 3)))]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _broken(dice: random.Random) -> Any:
    body = dice.choice(list(PLACES.values()))()
    for _ in range(dice.randint(0, 3)):
        _break(dice, body)
    if dice.random() < 0.1:
        return [
            body,
            {"op": "replace", "path": dice.choice(("", "/spec", "/metadata/name/x", "~")), "value": body},
        ]
    return body


def _break(dice: random.Random, node: Any) -> None:
    """Goes down a random way and puts something else there."""
    while isinstance(node, (dict, list)) and node:
        key = dice.choice(list(node)) if isinstance(node, dict) else dice.randrange(len(node))
        if dice.random() < 0.35 or not isinstance(node[key], (dict, list)):
            node[key] = copy.deepcopy(dice.choice(VALUES))
            if isinstance(node, dict) and dice.random() < 0.2:
                odd = dice.choice(("", "x", "\u0000", "$patch", "metadata", "kind"))
                node[odd] = copy.deepcopy(dice.choice(VALUES))
            return
        node = node[key]


def _json(dice: random.Random) -> bytes:
    return json.dumps(_broken(dice)).encode()


def _patch(dice: random.Random) -> bytes:
    ops = ("add", "remove", "replace", "move", "copy", "test", "frob", None)
    places = (
        "/metadata/labels",
        "/spec/containers/0",
        "/spec/containers/-",
        "/x/y/z",
        "",
        "/",
        "x",
        "/metadata/name",
        5,
    )
    rows = [
        {"op": dice.choice(ops), "path": dice.choice(places), "from": dice.choice(places), "value": dice.choice(VALUES)}
        for _ in range(dice.randint(1, 3))
    ]
    return json.dumps(rows).encode()


def _cut(dice: random.Random) -> bytes:
    whole = _json(dice)
    return whole[: dice.randrange(len(whole))]


def _yaml(dice: random.Random) -> bytes:
    try:
        return yaml.safe_dump(_broken(dice)).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        return b"a: &a [*a]"


def _noise(dice: random.Random) -> bytes:
    start = dice.choice((b"", b"k8s\x00", b"{", b"\xef\xbb\xbf{}", b"&a [*a, *a]", b"!!python/object:os.system x"))
    return start + dice.randbytes(dice.choice((0, 1, 30, 3000)))


def _deep(dice: random.Random) -> bytes:
    depth = dice.choice((100, 5000, 200_000))
    if dice.random() < 0.5:
        return b"[" * depth + b"]" * depth
    return b'{"a":' * depth + b"1" + b"}" * depth


def _number(dice: random.Random) -> bytes:
    number = dice.choice((b"1e400", b"9" * 400, b"-0", b"1e-400", b"NaN", b"Infinity", b"0x10", b"1.0", b"9" * 5000))
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","generation":%b},"x":%b}'
    return body % (number, number)


def _nothing(dice: random.Random) -> bytes:
    return b""


_WRITES = (
    ("POST", "application/json"),
    ("POST", "application/json"),
    ("PUT", "application/json"),
    ("PATCH", specimens.MERGE),
    ("PATCH", specimens.JSON_PATCH),
    ("PATCH", specimens.STRATEGIC),
    ("PATCH", specimens.APPLY),
    ("DELETE", "application/json"),
)
_BODY_MAKERS = (_json, _json, _json, _json, _patch, _cut, _yaml, _noise, _deep, _number, _nothing)

HEAD = "{method} /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
RAW: dict[str, bytes] = {
    "truncated chunk": b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n20\r\n{",
    "bad chunk size": b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    "negative length": b"Content-Length: -5\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}",
    "short body": b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{}",
    "huge length": b"Content-Type: application/json\r\nContent-Length: 99999999999999\r\n\r\n{}",
    "long header": b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    "header without colon": b"nonsense\r\n\r\n",
    "null in a header": b"X-Null: a\x00b\r\n\r\n",
    "upgrade to nothing": b"Connection: Upgrade\r\nUpgrade: nothing\r\n\r\n",
    "websocket without key": b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "expect": b"Expect: 200-frob\r\nContent-Length: 2\r\n\r\n{}",
    "bad encoding": b"Content-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nxxxx",
}
