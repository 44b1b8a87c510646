"""`trainmaster up` and `status`: an embedded cluster that stays, in the foreground or as a daemon.

A cluster lives in a directory, of which `home` knows; `down` ends it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trainmaster.cli import daemon, interruption
from trainmaster.cli.connection import Failure
from trainmaster.cli.daemon import Abandoned, Outcome
from trainmaster.cli.documents import BadDocument
from trainmaster.cli.embedded import EmbeddedOptions, embedded, explained
from trainmaster.cli.home import default_home, log_file, record_of, running_in, trouble_in, write_record
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.storage import private
from trainmaster.cluster.storage.private import UntrustedError
from trainmaster.cluster.storage.store import StoreError
from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError


def up(options: EmbeddedOptions, *, detach: bool) -> int:
    home = Path(options.home).absolute() if options.home else default_home()
    try:
        known = running_in(home)
    except UntrustedError as error:
        return _refused("up", error)
    if known is not None:
        print(f"a cluster is already up in {home} (process {known.pid}):\n{_export(home)}", file=sys.stderr)
        return 1
    chosen = replace(options, home=str(home))
    code, words = _detached(chosen, home) if detach else _cluster(chosen, home, functools.partial(_tell, home))
    if words:
        print(f"trainmaster up: {words}", file=sys.stderr)
    return code


def status(home: Path) -> int:
    try:
        known = running_in(home)
    except UntrustedError as error:
        return _refused("status", error)
    if known is None:
        print(f"no cluster is up in {home}; start one with trainmaster up")
        return 1
    print(f"up in {home} (process {known.pid})\n{_export(home)}")
    if trouble := trouble_in(home):
        print(f"trainmaster status: {trouble}", file=sys.stderr)
        return 1
    return 0


def _refused(verb: str, error: UntrustedError) -> int:
    print(f"trainmaster {verb}: {error.explained('choose another place with --data-dir')}", file=sys.stderr)
    return 1


def _warn_of_root() -> None:
    if os.geteuid() == 0:
        print(
            "trainmaster up: warning: you are root, and so are programs in pods, unless their securityContext says "
            "otherwise: they can read and change every file of this machine. Run the cluster as an ordinary user where "
            "you can",
            file=sys.stderr,
        )


def _tell(home: Path) -> None:
    _warn_of_root()
    print(f"the cluster is up; in another terminal:\n{_export(home)}", flush=True)


def _cluster(options: EmbeddedOptions, home: Path, announce: Callable[[], None]) -> Outcome:
    """From its start to its end; `announce` is called when it is up."""
    logs.setup("info", "auto")
    waits = functools.partial(write_record, home)
    try:
        interruption.run(lambda ending: _serve(options, home, announce, ending), waits)
    except interruption.Interrupted:
        return Outcome(0)
    except BadDocument as error:
        return Outcome(2, str(error))
    except (Failure, KubeError, StoreError, Abandoned) as error:
        return Outcome(1, str(error))
    return Outcome(0)


async def _serve(options: EmbeddedOptions, home: Path, announce: Callable[[], None], ending: Ending) -> None:
    with ExitStack() as stack:
        async with embedded(options, Path(), announce=False, ending=ending):
            stack.callback(record_of(home).unlink, missing_ok=True)  # while it ends, it is still there
            with explained(options, home):
                write_record(home)
            announce()
            await asyncio.Event().wait()


def _detached(options: EmbeddedOptions, home: Path) -> Outcome:
    try:
        with explained(options, home):
            for repaired in private.prepare(home):
                print(f"trainmaster up: {repaired}", file=sys.stderr)
            outcome = daemon.detach(functools.partial(_cluster, options, home), log_file(home))
    except Failure as error:
        return Outcome(error.code, str(error))
    if outcome.code == 0:
        _warn_of_root()
        print(f"the cluster is up:\n{_export(home)}")
    return outcome


def _export(home: Path) -> str:
    return f"  export KUBECONFIG={shlex.quote(str(home.absolute() / 'kubeconfig'))}"
