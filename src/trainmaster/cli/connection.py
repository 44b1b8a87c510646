"""The cluster that a verb speaks to, and how its errors are told.

Looked for in this order: --kubeconfig and --context, $KUBECONFIG, the cluster that `trainmaster up` runs on this
machine, then where kubectl looks (the pod we run in, ~/.kube/config). `carry_out` runs a verb in a `Session` and turns
whatever goes wrong into a sentence and an exit code: 1 it failed, 2 bad input or usage.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from trainmaster.cli.catalog import Catalog
from trainmaster.cli.documents import BadDocument
from trainmaster.cli.home import default_home, running_in
from trainmaster.cli.watching import Outage
from trainmaster.cluster.storage.private import UntrustedError
from trainmaster.kube import config as kubeconfig
from trainmaster.kube import errors
from trainmaster.kube.client import Client
from trainmaster.kube.config import Config
from trainmaster.kube.errors import ApiError, ConfigError, KubeError
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import Resource

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class Failure(Exception):
    """Tells the user what went wrong with which object, and what to do."""

    code = FAILED


class NoCluster(Failure):
    """None is configured at all."""


class Misuse(Failure):
    """What was asked for makes no sense; nothing was done."""

    code = BAD_INPUT


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cluster, and where in it; empty is whatever is current."""

    namespace: str = ""
    everywhere: bool = False
    context: str = ""
    kubeconfig: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A verb's work on one cluster."""

    client: Client
    catalog: Catalog
    namespace: str = "default"
    everywhere: bool = False
    now: Callable[[], float] = time.time
    outage: Outage = field(default_factory=Outage)

    def scope(self, resource: Resource) -> str:
        """The namespace to look in; empty is all of them."""
        return self.namespace if resource.namespaced and not self.everywhere else ""

    def place(self, resource: Resource) -> str:
        """In words, for errors."""
        scope = self.scope(resource)
        return f" in namespace {scope}" if scope else ""


Work: TypeAlias = Callable[[Session], Awaitable[int]]


def config_of(choice: Choice, environ: Mapping[str, str] = os.environ) -> Config:
    home = default_home()
    is_named = bool(choice.kubeconfig or choice.context or environ.get("KUBECONFIG"))
    if not is_named and _is_up(home):
        return kubeconfig.load(str(home / "kubeconfig"), None, environ)
    try:
        return kubeconfig.load(choice.kubeconfig or None, choice.context or None, environ)
    except ConfigError as error:
        if "no cluster is configured" not in str(error):
            raise
        raise NoCluster(_nowhere(choice, environ)) from error


def _is_up(home: Path) -> bool:
    try:
        return running_in(home) is not None
    except UntrustedError as error:
        raise Failure(error.explained("name your cluster's kubeconfig with --kubeconfig FILE")) from error


def _nowhere(choice: Choice, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "~")
    if choice.context:
        return (
            f"--context {choice.context}: there is no kubeconfig that could have it: $KUBECONFIG is not set, and there "
            f"is no {home}/.kube/config. Name the file with --kubeconfig FILE"
        )
    return (
        "there is no cluster to speak to: none was named, $KUBECONFIG is not set, `trainmaster up` runs none on this "
        f"machine, and there is no {home}/.kube/config. Start one with: trainmaster up -d; or name yours with "
        "--kubeconfig FILE"
    )


def carry_out(verb: str, choice: Choice, work: Work) -> int:
    """The exit code."""
    try:
        return asyncio.run(_in_session(choice, work))
    except (Failure, BadDocument, KubeError, ExceptionGroup) as error:
        return tell(verb, error)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _in_session(choice: Choice, work: Work) -> int:
    config = config_of(choice)
    client = Client(HttpTransport(config))
    try:
        return await work(
            Session(client, Catalog(client), choice.namespace or config.namespace, everywhere=choice.everywhere)
        )
    finally:
        await client.close()


def tell(verb: str, error: Exception) -> int:
    """Prints a known error and gives its exit code; raises any other."""
    while isinstance(error, ExceptionGroup):  # of the task group that it came through
        error = error.exceptions[0]
    if isinstance(error, Failure):
        return _said(verb, str(error), error.code)
    if isinstance(error, BadDocument):
        return _said(verb, str(error), BAD_INPUT)
    if isinstance(error, KubeError):
        return _said(verb, in_words(error), FAILED)
    raise error


def _said(verb: str, message: str, code: int) -> int:
    print(f"trainmaster {verb}: {message}", file=sys.stderr)
    return code


def in_words(error: KubeError) -> str:
    """The server's own words, its reason, and what to do about it."""
    match error:
        case errors.NotFound():
            return f"{_message(error)}; list what is there with: trainmaster get KIND -A"
        case errors.Unauthorized():
            return (
                "the cluster does not accept who you are (401): your credentials may have expired; log in again, or "
                "check the user of your kubeconfig's context"
            )
        case errors.Forbidden():
            return f"{_message(error)}; ask the cluster's owner for that right, or choose another --context"
        case errors.Conflict():
            return f"{_message(error)}; someone else changed it meanwhile, so try again"
        case ApiError():
            return _message(error)
        case errors.Unreachable():
            return f"{error}; is the cluster up? Of the one on this machine, `trainmaster status` knows"
        case _:
            return str(error)


def _message(error: ApiError) -> str:
    return f"{error.message} ({error.status} {error.reason})" if error.message else str(error)
