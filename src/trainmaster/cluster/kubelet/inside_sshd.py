"""Stands in for `sshd` in pods: commands come through the kubelet, so that all it has to do is to be there.

It listens where a real one would, since probes look for that, and lives until it is told to stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a program that every worker starts
    from collections.abc import Iterator

_DEFAULT = (22, 2222)
_VALUED = "CcEfghkopu"
_TESTS = "tTVG"


class Order:
    def __init__(self) -> None:
        self.ports: list[int] = []
        self.stays = self.is_test = False


def parse(words: list[str]) -> Order:
    order, rest = Order(), list(words)
    while rest:
        word = rest.pop(0)
        letters = word[1:] if word.startswith("-") else ""
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _TESTS:
                order.is_test = True
            elif letter in _VALUED:
                order.ports += _ports(letter, letters or (rest.pop(0) if rest else ""))
                break
            order.stays = order.stays or letter in "Dd"
    order.ports = order.ports or list(_DEFAULT)
    return order


def _ports(letter: str, value: str) -> list[int]:
    if letter == "p":
        return [int(value)] if value.isdigit() else []
    if letter == "o":
        return list(_configured([value]))
    if letter == "f":
        with contextlib.suppress(OSError), open(value) as file:
            return list(_configured(file.read().splitlines()))
    return []


def _configured(lines: list[str]) -> Iterator[int]:
    for line in lines:
        words = line.replace("=", " ", 1).split()
        if len(words) > 1 and words[0].lower() == "port" and words[1].isdigit():
            yield int(words[1])


def listen(ports: list[int]) -> list[socket.socket]:
    """Where pods share one network a port is another one, as the kubelet has told; one that is taken is left out."""
    dealt = os.environ.get("TRAINMASTER_PORTS", "")
    host = "127.0.0.1" if dealt else "0.0.0.0"
    found = []
    for port in ports:
        number = json.loads(dealt).get(str(port)) if dealt else port
        if number is None:
            continue
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen()
        except OSError as error:
            sys.stderr.write(f"sshd: port {port}: {error.strerror}\n")
            made.close()
        else:
            found.append(made)
    return found


def serve(doors: list[socket.socket]) -> None:
    poll = select.poll()
    for door in doors:
        poll.register(door, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        for door in doors:
            if door.fileno() in ready:
                with contextlib.suppress(OSError):
                    door.accept()[0].close()


def main() -> int:
    order = parse(sys.argv[2:])
    if order.is_test:
        return 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else _leave)
    doors = listen(order.ports)
    if not order.stays and os.fork():
        return 0
    serve(doors)
    return 0


def _leave(*_: object) -> None:
    os._exit(0)
