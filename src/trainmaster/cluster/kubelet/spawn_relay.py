"""Carries connections to the address of a service to the pod behind it. Runs inside the helper of `spawn`.

A process per service accepts in the cluster's own network and connects to the pod; the kernel moves the bytes. It
listens only while the pod does: who comes too early is refused, as on a cluster, and knows to try again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Sequence
from typing import NoReturn

_LOOK_MS = 50
_BLOCK = 1 << 20
_LISTENING = "0A"
_NO_LINGER = struct.pack("ii", 1, 0)


def open_tables() -> list[int]:
    """Descriptors that go on telling who listens in the network namespace this is called in."""
    found = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            found.append(os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC))
    return found


def run(address: str, target: str, ports: Sequence[tuple[int, int]], tables: list[int]) -> NoReturn:
    """In a forked process: until it is killed. `ports` are pairs of the service's and the pod's."""
    lock = threading.Lock()
    for port, own in ports:
        arguments = ((address, port), (target, own), tables, lock)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
    while True:
        signal.pause()


def _serve(door: tuple[str, int], target: tuple[str, int], tables: list[int], lock: threading.Lock) -> None:
    while True:
        while not _is_listening(target, tables, lock):
            select.poll().poll(_LOOK_MS)
        with socket.create_server(door, backlog=512) as server:
            while _carry(server.accept()[0], target):
                continue


def _is_listening(target: tuple[str, int], tables: list[int], lock: threading.Lock) -> bool:
    """Whether somebody in the pod would answer; asked without a connection, which could mislead a server."""
    own = f"{struct.unpack('=I', socket.inet_aton(target[0]))[0]:08X}"
    for table in tables:
        with lock:
            os.lseek(table, 0, os.SEEK_SET)
            lines = _read(table).splitlines()[1:]
        for line in lines:
            fields = line.split()
            host, _, port = fields[1].rpartition(":")
            is_reached = not host.strip("0") or host.endswith(own)
            if fields[3] == _LISTENING and int(port, 16) == target[1] and is_reached:
                return True
    return False


def _read(fd: int) -> str:
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b"".join(parts).decode()


def _carry(client: socket.socket, target: tuple[str, int]) -> bool:
    """False when the pod does not answer: then the client is cut off, and nobody else is let in for now."""
    try:
        pod = socket.create_connection(target)
    except OSError:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        client.close()
        return False
    for one, other in ((client, pod), (pod, client)):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pump, args=(one, other), daemon=True).start()
    return True


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """One direction, by the kernel alone; its end is passed on, and what breaks one side ends both."""
    reader, writer = os.pipe()
    try:
        while size := os.splice(source.fileno(), writer, _BLOCK):
            while size:
                size -= os.splice(reader, sink.fileno(), size)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(reader)
        os.close(writer)
