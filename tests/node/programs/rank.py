"""A rank in plain Python: learns from its framework's variables where the others are, and adds up a number with them.

    rank.py pytorch|tensorflow|paddle|mindspore [FILE]

The first rank listens; each of the others gives it its number and gets the sum. Names are looked up until they are
known, as the frameworks themselves do. With FILE, the rank then waits for that file to appear.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

PATIENCE = 120.0


def pytorch():
    variables = ("RANK", "WORLD_SIZE", "MASTER_PORT")
    rank, world, port = (int(os.environ[name]) for name in variables)
    return rank, world, (os.environ["MASTER_ADDR"], port)


def tensorflow():
    config = json.loads(os.environ["TF_CONFIG"])
    tasks = [(role, index) for role in ("worker", "ps") for index in range(len(config["cluster"].get(role, ())))]
    rank = tasks.index((config["task"]["type"], config["task"]["index"]))
    return rank, len(tasks), endpoint(config["cluster"]["worker"][0])


def paddle():
    trainers, servers = (
        os.environ[name].split(",") for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_PSERVERS_IP_PORT_LIST")
    )
    is_server = os.environ["TRAINING_ROLE"] == "PSERVER"
    rank = int(os.environ["PADDLE_TRAINER_ID"]) + (len(trainers) if is_server else 0)
    return rank, len(trainers) + len(servers), endpoint(trainers[0])


def mindspore():
    """The scheduler is the first; who the others are, their names tell."""
    workers, servers = (int(os.environ[name]) for name in ("MS_WORKER_NUM", "MS_SERVER_NUM"))
    role, number = os.environ["MS_ROLE"], int(os.environ["MS_NODE_ID"].rpartition("-")[2])
    rank = {"MS_SCHED": 0, "MS_WORKER": 1 + number, "MS_PSERVER": 1 + workers + number}[role]
    return rank, 1 + workers + servers, (os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"]))


def endpoint(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def collect(world, port):
    """The first rank's part."""
    with socket.create_server(("", port)) as listening:
        listening.settimeout(PATIENCE)
        others = [listening.accept()[0] for _ in range(world - 1)]
    streams = [other.makefile("rw") for other in others]
    total = 1 + sum(int(stream.readline()) for stream in streams)
    for stream, other in zip(streams, others, strict=True):
        stream.write(f"{total}\n")
        stream.close()
        other.close()
    return total


def contribute(rank, meeting):
    """Everybody else's."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(meeting, timeout=PATIENCE) as connection:
                stream = connection.makefile("rw")
                stream.write(f"{rank + 1}\n")
                stream.flush()
                return int(stream.readline()), connection.getpeername()[0]
        except OSError:  # no such name yet, or nobody listens there yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main(framework, file=""):
    rank, world, meeting = {"pytorch": pytorch, "tensorflow": tensorflow, "paddle": paddle, "mindspore": mindspore}[
        framework
    ]()
    total, address = (collect(world, meeting[1]), "here") if rank == 0 else contribute(rank, meeting)
    if total != world * (world + 1) // 2:
        sys.exit(f"rank {rank} of {world}: the sum is {total}")
    where = f"met at {meeting[0]} ({address})"
    sys.stdout.write(f"rank {rank} of {world} on {socket.gethostname()}: {where}, sum {total}\n")
    sys.stdout.flush()
    while file and not Path(file).exists():
        time.sleep(0.2)


main(*sys.argv[1:])
