# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A rank that mpirun has started: learns of it where its peers listen, and agrees with them on a sum."""

import os
import socket
import sys

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

rank, world = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
with socket.create_server(("", 0)) as probe:
    port = probe.getsockname()[1]
peers = meeting.bring(meeting.place(os.environ["HOME_ADDRESS"]), [rank, [meeting.own_address(), port]])
assert len({tuple(peer) for peer in peers}) == world, peers
total = meeting.agree(tuple(peers[0]), rank, world)
print(f"rank {rank} of {world} on {socket.gethostname()} has sum {total}, flags {sys.argv[1:]}")
