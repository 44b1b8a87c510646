# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A rank that MPI started: adds up with the others, over and over, until the first one finds /gate/open.

Rank r brings BASE * 10**r, so the sum says who took part. The first rank speaks for all, because mpirun may mix up what
several print at once.
"""

import os
import socket
import time
from array import array

from mpi4py import MPI  # type: ignore[import-not-found]  # in its environment only

BASE = int(os.environ["BASE"])
GATE = os.environ["GATE"]
PAUSE = 0.05
"""Ranks that wait in MPI keep a core busy, and there may be more ranks than cores."""


def main():
    world = MPI.COMM_WORLD
    rank, steps, is_open = world.Get_rank(), 0, False
    places = sorted(set(world.gather(os.environ.get("PLACE") or socket.gethostname()) or ()))
    if rank == 0:
        library, *_ = MPI.Get_library_version().splitlines()
        print(f"this is {library.rstrip(chr(0))}", flush=True)
    own, total = array("q", [BASE * 10**rank]), array("q", [0])
    while not is_open:
        world.Allreduce(own, total)
        if rank == 0 and not steps:
            print(f"ranks on {' '.join(places)} have sum {total[0]}", flush=True)
        time.sleep(PAUSE)
        is_open = world.bcast(os.path.exists(f"{GATE}/open"))
        steps += 1
    if rank == 0:
        print(f"all done with sum {total[0]}", flush=True)


main()
