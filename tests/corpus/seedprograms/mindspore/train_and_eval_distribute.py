# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Scheduler and workers of an MSJob: the scheduler deals out ranks and addresses, the workers share the data."""

import argparse
import os
import socket
from pathlib import Path

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

flags = argparse.ArgumentParser()
flags.add_argument("--device_target", choices=("CPU", "GPU"))
flags.add_argument("--epochs", type=int)
flags.add_argument("--data_path", type=Path)
flags.add_argument("--batch_size", type=int)
given = flags.parse_args()
role, own, world = os.environ["MS_ROLE"], os.environ["MS_NODE_ID"], int(os.environ["MS_WORKER_NUM"])
scheduler = (os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"]))
assert os.environ["MS_SERVER_NUM"] == "0"
assert own == socket.gethostname()

if role == "MS_SCHED":
    assert scheduler[0] == meeting.own_address(), scheduler
    with socket.create_server(scheduler) as door:
        nodes = meeting.gather(door, world, sorted)
        print(f"scheduler introduced {len(nodes)} workers")
        meeting.gather(door, world, sorted)
else:
    assert role == "MS_WORKER", role
    nodes = meeting.bring(scheduler, [own, [meeting.own_address(), 9000]])
    rank = [name for name, _ in nodes].index(own)
    numbers = [int(line) for line in (given.data_path / "numbers.txt").read_text().split()]
    meeting_place = nodes[0][1]
    total = meeting.agree(tuple(meeting_place), rank, world)
    shared = meeting.agree((meeting_place[0], 9001), rank, world, sum(numbers[rank::world]))
    assert shared == sum(numbers), shared
    meeting.bring(scheduler, own)
    print(f"worker {rank} of {world} has sum {total} and the data's sum {shared}")
