"""`trainmaster down`: ends the cluster of a directory, and waits as long as its containers may take.

A cluster that hangs hears no signal but one; whoever wants it down need not know how to find and kill a process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from trainmaster.cli.home import Running, ending_in_words, log_file, running_in
from trainmaster.cluster.storage.private import UntrustedError

PATIENCE = 30.0
"""Seconds for everything but containers, which say themselves how long they may take."""

INTERRUPTED = 130


def down(home: Path) -> int:
    try:
        known = running_in(home)
    except UntrustedError as error:
        print(f"trainmaster down: {error.explained('name your own cluster with --data-dir')}", file=sys.stderr)
        return 1
    if known is None:
        print(f"no cluster is up in {home}")
        return 0
    os.kill(known.pid, signal.SIGTERM)
    try:
        return _wait_for_end(known, home)
    except KeyboardInterrupt:
        return _hurry(known, home)


def _hurry(known: Running, home: Path) -> int:
    """The cluster takes the second signal for the end of its patience."""
    try:
        if known.is_alive:
            os.kill(known.pid, signal.SIGTERM)
        return _wait_for_end(known, home, is_told=True)
    except KeyboardInterrupt:
        print(f"interrupted: the cluster in {home} is ending without being waited for", file=sys.stderr)
        return INTERRUPTED


def _wait_for_end(known: Running, home: Path, *, is_told: bool = False) -> int:
    began = time.monotonic()
    patience = PATIENCE
    while known.is_alive:
        seen = running_in(home)
        if seen is not None and seen.containers and not is_told:
            is_told = True
            patience += seen.seconds
            words = ending_in_words(seen.containers, "Ctrl-C")
            print(f"{words}; otherwise it takes {seen.seconds:.0f} s at most", file=sys.stderr)
        if time.monotonic() - began > patience:
            return _kill(known, home, patience)
        time.sleep(0.05)
    print(f"the cluster in {home} is down; its objects are kept")
    return 0


def _kill(known: Running, home: Path, waited: float) -> int:
    """Its containers end with it; those of a machine without namespaces are ended by the next `up`."""
    print(f"process {known.pid} did not end within {waited:.0f} s; killing it; see {log_file(home)}", file=sys.stderr)
    with suppress(ProcessLookupError):
        os.kill(known.pid, signal.SIGKILL)
    began = time.monotonic()
    while known.is_alive:
        if time.monotonic() - began > PATIENCE:
            print(f"process {known.pid} cannot be killed: it waits for a disk or a device", file=sys.stderr)
            return 1
        time.sleep(0.05)
    print(f"the cluster in {home} is down; its objects are kept")
    return 0
