"""A plane is fitted data-parallel on CPUs; scheduler and workers run this same file, and MS_ROLE tells them apart."""

import os

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

STEPS = int(os.environ.get("STEPS", "60"))
TRUTH = np.array([[3.0], [-2.0], [0.5], [1.0]], dtype=np.float32)


def train(rank, world):
    points = np.random.default_rng(rank).normal(size=(128, len(TRUTH))).astype(np.float32)
    points[:, rank] = 0  # it never sees this input: alone it could not learn its weight
    inputs, wanted = mindspore.Tensor(points), mindspore.Tensor(points @ TRUTH)
    plane = nn.Dense(len(TRUTH), 1, weight_init="zeros", has_bias=False)
    optimizer, error, together = nn.SGD(plane.trainable_params(), 0.1), nn.MSELoss(), ops.AllReduce()
    slopes = mindspore.value_and_grad(lambda: error(plane(inputs), wanted), None, optimizer.parameters)
    for step in range(STEPS):
        loss, gradients = slopes()
        optimizer(tuple(together(gradient) / world for gradient in gradients))
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {float(loss):.6f}", flush=True)
    mean = float(together(loss)) / world
    weights = [round(float(weight), 3) for weight in plane.weight.asnumpy().flatten()]
    print(f"rank {rank} final loss {mean:.6f} weights {weights}", flush=True)


def main():
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("CPU")
    print(f"{os.environ['MS_ROLE']} {os.environ['MS_NODE_ID']} joins {os.environ['MS_SCHED_HOST']}", flush=True)
    init()  # the scheduler stays in here as long as there are workers
    if os.environ["MS_ROLE"] == "MS_WORKER":
        rank, world = get_rank(), get_group_size()
        print(f"rank {rank} of {world} has joined", flush=True)
        train(rank, world)


main()
