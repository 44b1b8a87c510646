# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Ends well once its gate is open, and otherwise waits to be killed: whether it is open is looked up at the start."""

import os
import signal

is_open = os.path.exists(os.environ["GATE"])
print("is the gate open?", is_open, flush=True)
while not is_open:
    signal.pause()
