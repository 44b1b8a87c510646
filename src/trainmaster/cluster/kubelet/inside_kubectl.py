"""`kubectl exec` for pods whose image would have brought a kubectl: the one verb that launchers of MPI jobs need."""

from __future__ import annotations

import os
import signal
import sys

from trainmaster.cluster.kubelet import inside_api
from trainmaster.cluster.kubelet.inside_api import Api, Refused

_USAGE = "kubectl exec [-i] [-n NAMESPACE] POD [-c CONTAINER] -- COMMAND [ARGUMENT...]"
_VALUED = {"-n": "namespace", "--namespace": "namespace", "-c": "container", "--container": "container"}
_FLAGS = {"-i": "stdin", "--stdin": "stdin", "-t": "tty", "--tty": "tty", "-q": "quiet", "--quiet": "quiet"}


class Misuse(Exception):
    """For the user to read."""


class Order:
    """A plain class: `dataclasses` takes longer to import than all the rest."""

    def __init__(self) -> None:
        self.pod = self.namespace = self.container = ""
        self.command: tuple[str, ...] = ()
        self.is_fed = False


def parse(words: list[str]) -> Order:
    """What comes after `--` is the command; without it, what comes after the pod's name, as old releases had it."""
    order, verb, rest = Order(), "", list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            order.command = tuple(rest)
            break
        if word.startswith("-") and word != "-":
            _option(order, word, rest)
        elif not verb:
            verb = word
        elif not order.pod:
            order.pod = word.removeprefix("pods/").removeprefix("pod/")
        else:
            order.command = (word, *rest)
            break
    if verb != "exec":
        raise Misuse(f"this kubectl, which the cluster gives to its pods, knows `exec` alone, not {verb!r}: {_USAGE}")
    if not order.pod or not order.command:
        raise Misuse(f"{'command' if order.pod else 'pod'} is missing: {_USAGE}")
    return order


def _option(order: Order, word: str, rest: list[str]) -> None:
    name, equals, value = word.partition("=")
    if name in _VALUED:
        if not equals and not rest:
            raise Misuse(f"{name} needs a value: {_USAGE}")
        setattr(order, _VALUED[name], value if equals else rest.pop(0))
    elif word[:2] in ("-n", "-c") and len(word) > 2:
        setattr(order, _VALUED[word[:2]], word[2:])
    elif name in _FLAGS:
        order.is_fed = order.is_fed or (_FLAGS[name] == "stdin" and value != "false")
    elif not word.startswith("--") and set(word[1:]) <= set("itq"):
        order.is_fed = order.is_fed or "i" in word
    else:
        raise Misuse(f"there is no option {word}: {_USAGE}")


def run(order: Order, directory: str) -> int:
    api = Api(directory)
    namespace = order.namespace or api.namespace
    container = order.container
    if not container:
        container = inside_api.container_of(api.get(f"/api/v1/namespaces/{namespace}/pods/{order.pod}"))
    return api.run(namespace, order.pod, container, order.command, 0 if order.is_fed else None)


def main() -> int:
    """The first argument is the directory of an account, for pods that have none of their own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    spare, *words = sys.argv[1:]
    own = inside_api.account()
    try:
        return run(parse(words), own if os.access(os.path.join(own, "token"), os.R_OK) else spare)
    except Misuse as error:
        sys.stderr.write(f"error: {error}\n")
    except Refused as error:
        sys.stderr.write(f"Error from server: {error}\n")
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    return 1
