"""`ssh` to pods of this cluster, without a server, keys or a network: the command is started there by the kubelet.

It understands ssh's command line as programs such as mpirun write it and does not mind what only matters to a
connection. A host that is no pod is left to the ssh of this machine.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from trainmaster.cluster.kubelet import inside_api
from trainmaster.cluster.kubelet.inside_api import Api, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would take as long to import as half of the rest
    from collections.abc import Iterator
    from typing import Any

_VALUED = "BbcDEeFIiJLlmOopQRSWw"
_PLAIN = "1246AaCfGgKkMNnqsTtVvXxYy"
_NOT_CONNECTED = 255
_NOT_YET = (400, 404)


class Stranger(Exception):
    """The host is none of ours."""


class Order:
    """A plain class: `dataclasses` takes longer to import than all the rest."""

    def __init__(self) -> None:
        self.host = ""
        self.command: tuple[str, ...] = ()
        self.is_fed = True
        self.attempts = 1
        self.unknown: list[str] = []


def parse(words: list[str]) -> Order:
    """Options may stand before and after the host, as ssh has it; the first other word begins the command."""
    order, rest = Order(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            continue
        if word.startswith("-") and len(word) > 1:
            _options(order, word[1:], rest)
        elif not order.host:
            order.host = word.removeprefix("ssh://").rpartition("@")[2]
        else:
            order.command = (word, *rest)
            break
    return order


def _options(order: Order, letters: str, rest: list[str]) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter in _VALUED:
            value = letters or (rest.pop(0) if rest else "")
            _setting(order, letter, value)
            return
        if letter == "n":
            order.is_fed = False
        elif letter not in _PLAIN:
            order.unknown.append(f"-{letter}")


def _setting(order: Order, letter: str, value: str) -> None:
    name, _, given = value.replace("=", " ", 1).partition(" ")
    if letter != "o":
        return
    if name.lower() == "connectionattempts" and given.strip().isdigit():
        order.attempts = int(given)
    elif name.lower() == "stdinnull" and given.strip().lower() == "yes":
        order.is_fed = False


def names_of(host: str, own: str) -> Iterator[tuple[str, str]]:
    """(namespace, pod) that a name may stand for; `own` is our namespace. None for names of the world outside."""
    host = host.lower().rstrip(".").removesuffix(".cluster.local")
    first, *rest = host.split(".")
    if rest and rest[-1] == "svc":
        rest = rest[:-1]
        if rest:
            yield rest[-1], first
    elif len(rest) <= 2:
        yield own, first
        if rest:
            yield rest[-1], first


def is_named(pod: dict[str, Any], host: str) -> bool:
    """Whether a host is this pod, by its name, its host name below its subdomain, or its address."""
    metadata, spec = pod["metadata"], pod["spec"]
    host = host.lower().rstrip(".").removesuffix(".cluster.local").removesuffix(".svc")
    if host == (pod.get("status") or {}).get("podIP"):
        return True
    hostname, subdomain = spec.get("hostname") or metadata["name"], spec.get("subdomain")
    bases = {metadata["name"], hostname}
    if subdomain:
        bases |= {f"{hostname}.{subdomain}", f"{metadata['name']}.{subdomain}"}
    return host in bases | {f"{base}.{metadata['namespace']}" for base in bases}


def find(api: Api, host: str) -> dict[str, Any]:
    """The pod; asked for by name first, which is all that is needed for almost every host."""
    for namespace, name in names_of(host, api.namespace):
        try:
            pod: dict[str, Any] = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except Refused as error:
            if error.code != 404:
                raise
        else:
            if is_named(pod, host):
                return pod
    listed = api.get("/api/v1/pods")["items"]
    mine = [pod for pod in listed if is_named(pod, host) and pod["status"].get("phase") == "Running"]
    mine.sort(key=lambda pod: pod["metadata"]["namespace"] != api.namespace)
    if not mine:
        raise Stranger
    found: dict[str, Any] = mine[0]
    return found


def run(order: Order, directory: str) -> int:
    api = Api(directory)
    pod = find(api, order.host)
    metadata = pod["metadata"]
    command = ("/bin/sh", "-c", " ".join(order.command)) if order.command else ("/bin/sh",)
    stdin = 0 if order.is_fed else None
    return api.run(metadata["namespace"], metadata["name"], inside_api.container_of(pod), command, stdin)


def persist(order: Order, directory: str) -> int:
    """As often as ConnectionAttempts says, a second apart, as ssh does: a pod may be there and not run yet."""
    while True:
        order.attempts -= 1
        try:
            return run(order, directory)
        except Refused as error:
            if order.attempts <= 0 or error.code not in _NOT_YET:
                raise
        time.sleep(1)


def other_ssh(account: str) -> str:
    """This machine's own, past the directory that we were found in, which is next to the account's."""
    ours = os.path.realpath(os.path.join(os.path.dirname(account), "bin"))
    for directory in os.get_exec_path():
        program = os.path.join(directory, "ssh")
        if os.path.realpath(directory) != ours and os.access(program, os.X_OK):
            return program
    return ""


def main() -> int:
    """The first argument is the directory of the account by which pods reach one another."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    directory, *words = sys.argv[1:]
    order = parse(words)
    try:
        if not order.host or order.unknown:
            raise Stranger
        return persist(order, directory)
    except Stranger:
        if program := other_ssh(directory):
            os.execv(program, ["ssh", *words])
        what = f"host {order.host!r} is no pod of this cluster" if order.host else "no host is given"
        sys.stderr.write(f"ssh: {what}, and this machine has no ssh of its own\n")
    except Refused as error:
        sys.stderr.write(f"ssh: connect to host {order.host}: {error}\n")
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    return _NOT_CONNECTED
