"""Says the same to two API servers and finds where the answers differ.

A scenario talks to one server through `Api`, which keeps every exchange. `differences_of` holds the exchanges of two
such talks against one another, after `Masks` has put names in the place of what can never be equal: uids, times,
resource versions, addresses, generated names.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.testing.patience import PATIENCE

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"^(<invalid>|\d+(s|m\d*s?|h))$")
_VERSIONS = ("resourceVersion", "continue")
_ABSENT = "(absent)"
CONTROLLERS = ("kube-controller-manager", "kube-apiserver")
"""Who else writes on a real control plane, and when it likes to."""


@dataclass(frozen=True, slots=True)
class Exchange:
    label: str
    status: int
    content_type: str
    body: Any


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One field of one answer: what the real server says and what ours says."""

    scenario: str
    step: str
    field: str
    real: Any
    ours: Any

    def __str__(self) -> str:
        where = f"{self.scenario} / {self.step}\n    {self.field}"
        return f"{where}\n      real: {_short(self.real)}\n      ours: {_short(self.ours)}"


@dataclass
class Api:
    """One server, one namespace, and everything that was said."""

    url: str
    token: str
    namespace: str
    context: ssl.SSLContext | None = None
    exchanges: list[Exchange] = field(default_factory=list)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        label: str = "",
        content_type: str | None = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        is_kept: bool = True,
        arrange: Callable[[Any], Any] = lambda body: body,
    ) -> Any:
        """The answer's body. `{ns}` in path and body stands for the scenario's namespace; bytes go as they are."""
        target = path.replace("{ns}", self.namespace)
        content = body if isinstance(body, bytes) else b"" if body is None else self._encoded(body)
        sent = {"Authorization": f"Bearer {self.token}", "Accept": accept, "User-Agent": "differential/1.0"}
        if body is not None and content_type is not None:
            sent["Content-Type"] = content_type
        sent.update(headers or {})
        connection = self._connection()
        try:
            connection.request(method, target, content or None, {k: v for k, v in sent.items() if v})
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        kind = (response.getheader("Content-Type") or "").partition(";")[0]
        value = _decoded(answer, kind)
        if is_kept:
            self.exchanges.append(Exchange(label or f"{method} {path}", response.status, kind, arrange(value)))
        return value

    def watch(self, path: str, *, label: str = "", accept: str = "application/json") -> list[Any]:
        """All events until the server ends the watch; bookmarks come at times of the server's own choosing."""
        target = path.replace("{ns}", self.namespace)
        connection = self._connection()
        try:
            connection.request("GET", target, headers={"Authorization": f"Bearer {self.token}", "Accept": accept})
            response = connection.getresponse()
            lines = [json.loads(line) for line in response.read().splitlines() if line.strip()]
        finally:
            connection.close()
        events = [line for line in lines if line.get("type") != "BOOKMARK"]
        kind = (response.getheader("Content-Type") or "").partition(";")[0]
        self.exchanges.append(Exchange(label or f"WATCH {path}", response.status, kind, events))
        return lines

    def _encoded(self, body: Any) -> bytes:
        return json.dumps(body).replace("{ns}", self.namespace).encode()

    def _connection(self) -> http.client.HTTPConnection:
        where = urllib.parse.urlsplit(self.url)
        assert where.hostname is not None
        if self.context is not None:
            return http.client.HTTPSConnection(where.hostname, where.port, timeout=PATIENCE, context=self.context)
        return http.client.HTTPConnection(where.hostname, where.port, timeout=PATIENCE)


class Masks:
    """What is this server's own, and the same word for it on both sides. Learnt from the answers, in their order."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._step = ""

    def masked(self, exchange: Exchange) -> Exchange:
        self._step = exchange.label
        self._learn(exchange.body, "")
        body = _with_causes_by_field(self._mask(exchange.body, ""))
        return Exchange(exchange.label, exchange.status, exchange.content_type, body)

    def _learn(self, value: Any, key: str) -> None:
        if isinstance(value, dict):
            if isinstance(generated := value.get("generateName"), str) and isinstance(name := value.get("name"), str):
                self._know(name, f"{generated}<generated>")
            for name, inner in value.items():
                self._learn(inner, name)
        elif isinstance(value, list):
            for inner in value:
                self._learn(inner, key)
        elif isinstance(value, str) and key == "uid" and len(value) == 36:
            self._know(value, "<uid>")
        elif isinstance(value, str) and key in ("clusterIP", "clusterIPs") and value[:1].isdigit():
            self._know(value, "<address>")

    def _know(self, value: str, word: str) -> None:
        self._known.setdefault(value, f"{word} of '{self._step}'")

    def _mask(self, value: Any, key: str) -> Any:
        if key == "managedFields":
            return owners_of(value)
        if isinstance(value, dict):
            return {name: self._mask(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._mask(inner, key) for inner in value]
        if isinstance(value, str):
            return self._masked_text(value, key)
        return value

    def _masked_text(self, text: str, key: str) -> str:
        if key in _VERSIONS and text:
            return f"<{key}>"
        if key == "cells" and _AGE.match(text):
            return "<age>"
        for value, word in self._known.items():
            text = text.replace(value, word)
        return _TIME.sub("<time>", text)


def _with_causes_by_field(body: Any) -> Any:
    """Complaints come in any order, from a real server some of them twice, and all of them again in the message."""
    details = (body.get("details") if isinstance(body, dict) else None) or {}
    causes = details.get("causes")
    if not isinstance(causes, list):
        return body
    said = list(dict.fromkeys(f"{one.get('field', '')}: {one.get('message', '')}" for one in causes))
    told = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    by_field: dict[str, list[str]] = {}
    for cause in causes:
        by_field.setdefault(cause.get("field", ""), []).append(f"{cause.get('reason')}: {cause.get('message')}")
    ordered = {name: sorted(set(texts)) for name, texts in by_field.items()}
    message = (body.get("message") or "").replace(told, "<causes>")
    return {**body, "message": message, "details": {**details, "causes": ordered}}


def owners_of(managed: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, bool]]:
    """Who owns which fields. 1.20 does not tell subresources apart and lets a writer own the status it cannot write."""
    found: dict[str, set[str]] = {}
    for entry in managed:
        paths = set(_leaves(entry.get("fieldsV1") or {}, ""))
        if entry["operation"] == "Update":
            paths = {path for path in paths if not path.startswith("/f:status")}
        if paths:
            found.setdefault(f"{entry['operation']} by {entry['manager']}", set()).update(paths)
    return {owner: dict.fromkeys(paths, True) for owner, paths in found.items() if not owner.endswith(CONTROLLERS)}


def _leaves(fields: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, inner in fields.items():
        if name != ".":
            yield from _leaves(inner, f"{path}/{name}") if set(inner) - {"."} else [f"{path}/{name}"]


def differences_of(scenario: str, real: Api, ours: Api) -> Iterator[Mismatch]:
    masks = Masks(), Masks()
    for theirs, own in zip(real.exchanges, ours.exchanges, strict=True):
        left, right = masks[0].masked(theirs), masks[1].masked(own)
        for path, one, other in _mismatches(left, right):
            yield Mismatch(scenario, left.label, path, one, other)


def _mismatches(real: Exchange, ours: Exchange) -> Iterator[tuple[str, Any, Any]]:
    """Field by field; where the codes differ there is no use in that."""
    if real.status != ours.status:
        yield "(answer)", _in_short(real), _in_short(ours)
        return
    if real.content_type != ours.content_type:
        yield "(content type)", real.content_type, ours.content_type
    yield from _compare(real.body, ours.body, "")


def _in_short(exchange: Exchange) -> str:
    body = exchange.body
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return f"{exchange.status} {body.get('kind') if isinstance(body, dict) else _short(body)}"
    return f"{exchange.status} {body.get('reason')}: {body.get('message')}"


def _compare(real: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(real, dict) and isinstance(ours, dict):
        for key in sorted({*real, *ours}):
            yield from _compare(real.get(key, _ABSENT), ours.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(real, list) and isinstance(ours, list):
        for index in range(max(len(real), len(ours))):
            one = real[index] if index < len(real) else _ABSENT
            other = ours[index] if index < len(ours) else _ABSENT
            yield from _compare(one, other, f"{path}[{index}]")
    elif real != ours or type(real) is not type(ours):
        yield path or "(body)", real, ours


def _decoded(body: bytes, content_type: str) -> Any:
    if content_type == "application/json" and body:
        return json.loads(body)
    return body.decode(errors="replace")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"
