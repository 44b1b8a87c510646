"""Boosted trees over rows that are spread over the ranks.

XGBoost needs a tracker to bring its workers together. The job names a master: it runs the tracker at the address and
port that all ranks are told."""

import os
import socket
import time
import warnings
import zlib

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def address_of(name, patience=60):
    """The tracker takes numbers only, and a name may not be known at once."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.gethostbyname(name)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def rows():
    dice = np.random.default_rng(RANK)
    inputs = dice.normal(size=(1000, 6))
    return inputs, 3 * inputs[:, 0] + np.sin(2 * inputs[:, 1])


def main():
    address, tracker = address_of(MASTER), None
    if RANK == 0:
        tracker = RabitTracker(n_workers=WORLD, host_ip=address, port=PORT, sortby="task", timeout=120)
        tracker.start()
    # A worker may come before the tracker. XGBoost warns, and tries again by itself; what fails for good is an error.
    warnings.filterwarnings("ignore", r"(?s).*(Failed to connect to|Retrying connection to)")
    meeting = {"dmlc_tracker_uri": address, "dmlc_tracker_port": PORT, "dmlc_task_id": f"{RANK:04}"}
    with collective.CommunicatorContext(**meeting, dmlc_retry=10, dmlc_timeout=60):
        print(f"rank {collective.get_rank()} of {collective.get_world_size()} has joined", flush=True)
        data, errors = xgboost.DMatrix(*rows()), {}
        trees = xgboost.train(
            {"max_depth": 4, "nthread": 1},
            data,
            num_boost_round=15,
            evals=[(data, "rows")],
            evals_result=errors,
            verbose_eval=False,
        )
        first, *_, last = errors["rows"]["rmse"]
        print(f"rank {RANK} loss {first:.5f} final loss {last:.5f} trees {zlib.crc32(trees.save_raw('json')):08x}")
    if tracker is not None:
        tracker.wait_for()


main()
