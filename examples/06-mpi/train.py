"""A line is fitted by ranks that add up their gradients; mpirun has started them, and MPI tells each its place."""

import os

import numpy as np
from mpi4py import MPI

STEPS = int(os.environ.get("STEPS", "60"))
TRUTH = np.array([3.0, -2.0, 0.5])


def meet(world):
    """All ranks are there, and what they add up is right; the first one tells where they are."""
    rank, size = world.Get_rank(), world.Get_size()
    total = world.allreduce(rank)
    assert total == size * (size - 1) // 2, f"the ranks of {size} add up to {total}"
    hosts = world.gather(MPI.Get_processor_name())
    if rank == 0:
        print(f"{size} ranks on {', '.join(sorted(set(hosts)))}; their sum is {total}", flush=True)


def main():
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    print(f"rank {rank} of {size} has joined from {MPI.Get_processor_name()}", flush=True)
    meet(world)
    # Every rank has points of its own, and most never see one of the inputs: alone they could not learn its weight.
    points = np.random.default_rng(rank).normal(size=(64, len(TRUTH))) * (np.arange(len(TRUTH)) != rank)
    wanted = points @ TRUTH
    weights, gradient = np.zeros(len(TRUTH)), np.empty(len(TRUTH))
    for step in range(STEPS):
        errors = points @ weights - wanted
        world.Allreduce(2 * points.T @ errors / len(errors), gradient)
        loss = world.allreduce(errors @ errors / len(errors)) / size
        weights -= 0.1 * gradient / size
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
    # mpirun may mix up what several ranks print at once, so the first one tells it all.
    for other, found in enumerate(world.gather(weights.round(3).tolist()) or ()):
        print(f"rank {other} final loss {loss:.6f} weights {found}", flush=True)


main()
