# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A trainer of a PaddleJob in collective mode, started by the launcher: writes to its /dev/shm, and meets the other."""

import os
from pathlib import Path

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

rank, world = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
assert endpoints[rank] == os.environ["PADDLE_CURRENT_ENDPOINT"]
assert len(endpoints) == world
shared = Path("/dev/shm/batch")
assert not shared.exists(), "another pod's memory"
shared.write_text("images")
total = meeting.agree(meeting.place(endpoints[0]), rank, world)
print(f"trainer {rank} of {world} has sum {total}")
