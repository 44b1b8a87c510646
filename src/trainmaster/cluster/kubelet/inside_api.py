"""The API server as the cluster's own tools inside pods reach it: a request, and a command in another pod.

One such tool is started for every rank of a job, so it has to be there at once: this speaks HTTP and WebSocket itself
and imports little of the standard library and nothing else.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would take as long to import as half of the rest
    from collections.abc import Sequence
    from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_BLOCK = 1 << 16
_SECONDS = 20.0
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_CONTINUED, _BINARY, _BYE, _PING, _PONG = 0, 2, 8, 9, 10


class Refused(Exception):
    """The API server said no, or cannot be reached: then the code is 0."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """One connection; `run` uses it up."""

    def __init__(self, directory: str) -> None:
        """The directory has `token` and `ca.crt` as every pod has them, `namespace`, and perhaps `server`."""
        self._token = _read(directory, "token")
        self._host, self._port = _address(directory)
        self.namespace = _read(directory, "namespace")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(os.path.join(directory, "ca.crt"))
        try:
            plain = socket.create_connection((self._host, self._port), timeout=_SECONDS)
            self._tls = context.wrap_socket(plain, server_hostname=self._host)
        except OSError as error:
            raise Refused(0, f"cannot reach the API server at {self._host}:{self._port}: {error}") from error
        self._rest = b""

    def get(self, path: str) -> Any:
        self._send(path, ())
        code, headers = self._head()
        body = json.loads(self._body(headers))
        if code != 200:
            raise Refused(code, str(body.get("message", "")))
        return body

    def run(self, namespace: str, pod: str, container: str, command: Sequence[str], stdin: int | None) -> int:
        """The exit code of a command in a pod, our own streams being its own; `stdin` is what it reads, if anything.

        When this process ends, so does the command: the API server sees the connection go.
        """
        query = [("stdout", "true"), ("stderr", "true"), ("container", container)]
        query += [("stdin", "true")] if stdin is not None else []
        query += [("command", word) for word in command]
        text = "&".join(f"{name}={_quoted(value)}" for name, value in query)
        upgrade = (
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dHJhaW5tYXN0ZXItcG9kcw==",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        )
        self._send(f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{text}", upgrade)
        code, headers = self._head()
        if code != 101:
            raise Refused(code, str(json.loads(self._body(headers)).get("message", "")))
        return _Exchange(self._tls, self._rest, stdin).carry()

    def _send(self, path: str, headers: Sequence[str]) -> None:
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Authorization: Bearer {self._token}",
            "Accept: application/json",
            *headers,
        )
        try:
            self._tls.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        except OSError as error:
            raise Refused(0, f"the API server does not listen: {error}") from error

    def _head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        named = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in named}

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "") != "chunked":
            return self._take(int(headers.get("content-length", "0")))
        body = b""
        while size := int(self._line(), 16):
            body += self._take(size)
            self._line()
        self._line()
        return body

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self._more()
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._more()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _more(self) -> None:
        try:
            data = self._tls.recv(_BLOCK)
        except OSError as error:
            raise Refused(0, f"the API server does not answer: {error}") from error
        if not data:
            raise Refused(0, "the API server closed the connection")
        self._rest += data


class _Exchange:
    """A command's streams in one WebSocket. Neither side waits for the other: what cannot be sent yet is kept."""

    def __init__(self, tls: ssl.SSLSocket, received: bytes, stdin: int | None) -> None:
        tls.setblocking(False)
        self._tls = tls
        self._stdin = stdin
        self._received = received
        self._unsent = b""
        self._channel = -1
        self._status = b""
        self._is_over = False

    def carry(self) -> int:
        """The exit code; Refused where the connection broke before there was one."""
        self._parse()
        while not self._is_over:
            is_blocked = self._flush()
            if self._tls.pending() or self._wait(is_blocked):
                self._receive()
        return _code_of(self._status)

    def _wait(self, is_blocked: bool) -> bool:
        """Until something can be done; whether that is with the server. Input waits until there is room for it."""
        poll = select.poll()
        poll.register(self._tls, select.POLLIN | (select.POLLOUT if is_blocked else 0))
        if self._stdin is not None and not is_blocked:
            poll.register(self._stdin, select.POLLIN)
        ready = [fd for fd, _ in poll.poll()]
        if self._stdin in ready:
            self._feed()
        return self._tls.fileno() in ready

    def _feed(self) -> None:
        assert self._stdin is not None
        data = _read_now(self._stdin)
        if data:
            self._queue(_BINARY, bytes((_STDIN,)) + data)
        elif data is not None:
            self._stdin = None
            self._queue(_BINARY, bytes((_CLOSE, _STDIN)))

    def _queue(self, kind: int, data: bytes) -> None:
        """A client's frames are masked; with zeros, for no proxy that could be confused is on this way."""
        size = len(data)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2) if size < 65536 else b""
        self._unsent += bytes((0x80 | kind,)) + (length or b"\xff" + size.to_bytes(8)) + b"\0\0\0\0" + data

    def _flush(self) -> bool:
        """Whether something is left that cannot be sent now."""
        while self._unsent:
            try:
                self._unsent = self._unsent[self._tls.send(self._unsent) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return True
            except OSError:
                self._is_over = True
                return False
        return False

    def _receive(self) -> None:
        try:
            data = self._tls.recv(_BLOCK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        self._is_over = self._is_over or not data
        self._received += data
        self._parse()

    def _parse(self) -> None:
        while (frame := _frame(self._received)) is not None:
            kind, data, self._received = frame
            if kind == _PING:
                self._queue(_PONG, data)
            elif kind == _BYE:
                self._is_over = True
            elif kind in (_BINARY, _CONTINUED):
                self._deliver(kind, data)

    def _deliver(self, kind: int, data: bytes) -> None:
        if kind == _BINARY:
            self._channel, data = data[0] if data else -1, data[1:]
        if self._channel in (_STDOUT, _STDERR):
            _write_all(self._channel, data)
        elif self._channel == _ERROR:
            self._status += data


def container_of(pod: dict[str, Any]) -> str:
    """The one that is meant where none is named."""
    chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    return str(chosen or pod["spec"]["containers"][0]["name"])


def account() -> str:
    """The pod's service account, wherever this machine could put it."""
    return os.environ.get("TRAINMASTER_SERVICE_ACCOUNT") or ACCOUNT


def _address(directory: str) -> tuple[str, int]:
    told = _read(directory, "server", "")
    if not told:
        told = f"{os.environ.get('KUBERNETES_SERVICE_HOST', '')}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    host, _, port = told.rpartition(":")
    return host, int(port)


def _read(directory: str, name: str, default: str | None = None) -> str:
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read().strip()
    except OSError as error:
        if default is not None:
            return default
        raise Refused(0, f"the pod has no service account: {error}") from error


def _quoted(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(text))


def _frame(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The first whole frame of what has come, and the rest."""
    if len(data) < 2:
        return None
    size, start = data[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        size = int.from_bytes(data[2:start])
    if len(data) < start + size:
        return None
    return data[0] & 0x0F, data[start : start + size], data[start + size :]


def _read_now(fd: int) -> bytes | None:
    """None when nothing is there yet: somebody else may have read it, and made the file non-blocking."""
    try:
        return os.read(fd, _BLOCK - 1)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            room = select.poll()
            room.register(fd, select.POLLOUT)
            room.poll()


def _code_of(status: bytes) -> int:
    if not status:
        raise Refused(0, "the connection to the pod was lost")
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0
    for cause in (told.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise Refused(int(told.get("code") or 0), str(told.get("message", "")))
