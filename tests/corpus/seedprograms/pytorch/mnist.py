# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A rank of a PyTorchJob: meets the others at MASTER_ADDR and MASTER_PORT, as `init_process_group` does."""

import argparse
import os

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

flags = argparse.ArgumentParser()
flags.add_argument("--backend", choices=("gloo", "mpi"), required=True)
backend = flags.parse_args().backend
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert os.environ["PET_NNODES"] == str(world)
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
total = meeting.agree(master, rank, world)
print(f"rank {rank} of {world} has sum {total} by {backend}")
meeting.part(master, rank, world)
