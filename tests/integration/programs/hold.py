# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Ends well once /gate/open exists, and otherwise waits to be killed: whether it is there is looked up at the start."""

import os
import signal

is_open = os.path.exists("/gate/open")
print("is the gate open?", is_open, flush=True)
while not is_open:
    signal.pause()
