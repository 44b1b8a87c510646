"""`trainmaster up`, `down` and `status`: an embedded cluster that stays, in the foreground or as a daemon.

A cluster lives in a directory, of which `home` knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from trainmaster.cli.documents import BadDocument
from trainmaster.cli.embedded import EmbeddedOptions, embedded
from trainmaster.cli.errors import unwrapped
from trainmaster.cli.home import default_home, running_in, start_of
from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError

PATIENCE = 30.0


def up(options: EmbeddedOptions, *, detach: bool) -> int:
    home = Path(options.home) if options.home else default_home()
    known = running_in(home)
    if known is not None:
        print(f"a cluster is already up in {home} (process {known.pid}):\n{_export(home)}", file=sys.stderr)
        return 1
    chosen = replace(options, home=str(home))
    return _detached(chosen, home) if detach else _foreground(chosen, home)


def down(home: Path) -> int:
    known = running_in(home)
    if known is None:
        print(f"no cluster is up in {home}")
        return 0
    os.kill(known.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while known.is_alive:
        if time.monotonic() > deadline:
            print(f"process {known.pid} did not end within {PATIENCE:g} s; see {_log_file(home)}", file=sys.stderr)
            return 1
        time.sleep(0.05)
    print(f"the cluster in {home} is down; its objects are kept")
    return 0


def status(home: Path) -> int:
    known = running_in(home)
    if known is None:
        print(f"no cluster is up in {home}; start one with trainmaster up")
        return 1
    print(f"up in {home} (process {known.pid})\n{_export(home)}")
    return 0


def _foreground(options: EmbeddedOptions, home: Path) -> int:
    logs.setup("info", "auto")
    try:
        with unwrapped():
            asyncio.run(_serve(options, home))
    except BadDocument as error:
        print(error, file=sys.stderr)
        return 2
    except KubeError as error:
        print(f"trainmaster up: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: EmbeddedOptions, home: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with embedded(options, Path(), announce=False):
        record = home / "cluster.json"
        record.write_text(json.dumps({"pid": os.getpid(), "started": start_of(os.getpid())}))
        print(f"the cluster is up; in another terminal:\n{_export(home)}", flush=True)
        try:
            await stop.wait()
        finally:
            record.unlink(missing_ok=True)


def _detached(options: EmbeddedOptions, home: Path) -> int:
    """A child in a session of its own goes on; this process waits until it is ready, then leaves."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = _log_file(home).stat().st_size if _log_file(home).exists() else 0  # by clusters before this one
    child = os.fork()
    if child == 0:
        os.setsid()
        with _log_file(home).open("ab") as log, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os._exit(_foreground(options, home))
    deadline = time.monotonic() + PATIENCE
    while running_in(home) is None:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended or time.monotonic() > deadline:
            tail = _log_file(home).read_bytes()[said:].decode(errors="replace").splitlines()[-5:]
            print("the cluster did not come up:\n" + "\n".join(tail), file=sys.stderr)
            return os.waitstatus_to_exitcode(code) if ended else 1
        time.sleep(0.05)
    print(f"the cluster is up:\n{_export(home)}")
    return 0


def _export(home: Path) -> str:
    return f"  export KUBECONFIG={home / 'kubeconfig'}"


def _log_file(home: Path) -> Path:
    return home / "cluster.log"
