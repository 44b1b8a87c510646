# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A node of an MSJob without MindSpore: it joins its scheduler, comes back to one that was lost, and ends at the gate.

A scheduler says who has joined, and never ends by itself, unless ENDS gives it an exit code: then it does when its last
worker has left. The others wait until their gate is open.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time

ROLE, NAME = os.environ["MS_ROLE"], os.environ["MS_NODE_ID"]
PLACE = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
EXPECTED = int(os.environ["MS_WORKER_NUM"]) + int(os.environ["MS_SERVER_NUM"])


def join(patience=150.0):
    """Whoever has lost a scheduler may call before the next one listens; a call that is not answered is made again."""
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            scheduler = stack.enter_context(socket.create_connection(PLACE, 5))
            scheduler.sendall(f"{NAME}\n".encode())
            if scheduler.recv(1):
                stack.pop_all()
                return scheduler
        assert time.monotonic() < deadline, f"nobody at {PLACE}"
        time.sleep(0.05)


def work():
    scheduler = join()
    print(f"{NAME} has joined", flush=True)
    while not os.path.exists(os.environ["GATE"]):
        if select.select([scheduler], [], [], 0.05)[0] and not scheduler.recv(1):
            scheduler.close()
            scheduler = join()
            print(f"{NAME} has come back", flush=True)


def schedule():
    guests: dict[str, socket.socket] = {}
    with socket.create_server(PLACE) as door:
        while len(guests) < EXPECTED:
            guest, _ = door.accept()
            if name := guest.makefile().readline().strip():
                guests[name] = guest  # the last of its calls: it has given up the others
                print("called by", name, flush=True)
    for guest in guests.values():
        guest.sendall(b".")
    print("joined by", *sorted(guests), flush=True)
    if "ENDS" in os.environ:
        for guest in guests.values():
            guest.recv(1)
        sys.exit(int(os.environ["ENDS"]))
    signal.pause()


schedule() if ROLE == "MS_SCHED" else work()
