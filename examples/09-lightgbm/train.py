"""Boosted trees with LightGBM's data-parallel learner, over sockets.

LightGBM wants the address and port of every rank, and finds itself in that list. An XGBoostJob names them all."""

import os
import socket
import time
import zlib

import lightgbm
import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def address_of(name, patience=60):
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.gethostbyname(name)
        except OSError:  # the other pod has no address yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def machines():
    names = [os.environ["MASTER_ADDR"], *os.environ["WORKER_ADDRS"].split(",")]
    ports = [os.environ["MASTER_PORT"], *[os.environ["WORKER_PORT"]] * (WORLD - 1)]
    return [f"{address_of(name)}:{port}" for name, port in zip(names, ports, strict=True)]


def rows():
    dice = np.random.default_rng(RANK)
    inputs = dice.normal(size=(1000, 6))
    return inputs, 3 * inputs[:, 0] + np.sin(2 * inputs[:, 1])


def main():
    everyone = machines()
    settings = {
        "objective": "regression",
        "metric": "l2",
        "tree_learner": "data",
        "machines": ",".join(everyone),
        "num_machines": WORLD,
        "local_listen_port": int(everyone[RANK].rpartition(":")[2]),
        "pre_partition": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    errors, data = {}, lightgbm.Dataset(*rows(), params=settings)
    grown = lightgbm.train(
        settings, data, num_boost_round=15, valid_sets=[data], callbacks=[lightgbm.record_evaluation(errors)]
    )
    first, *_, last = errors["training"]["l2"]
    trees = grown.model_to_string().partition("\nparameters:")[0]  # after it, each has its own port
    print(f"rank {RANK} loss {first:.5f} final loss {last:.5f} trees {zlib.crc32(trees.encode()):08x}", flush=True)


main()
