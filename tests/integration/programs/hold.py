# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Ends well once /gate/open exists, and otherwise waits to be killed: whether it is there is looked up at the start."""

import os
import signal

print("is the gate open?", os.path.exists("/gate/open"), flush=True)
while not os.path.exists("/gate/open"):
    signal.pause()
