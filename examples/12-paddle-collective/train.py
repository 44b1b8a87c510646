"""A plane is fitted data-parallel over gloo; Paddle's launcher has told this process its rank and its peers."""

import os

import numpy as np
import paddle
import paddle.distributed as dist

STEPS = int(os.environ.get("STEPS", "80"))
TRUTH = np.array([[3.0], [-2.0], [0.5], [1.0]], dtype=np.float32)


def main():
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} has joined", flush=True)
    points = np.random.default_rng(rank).normal(size=(128, len(TRUTH))).astype(np.float32)
    points[:, rank] = 0  # it never sees this input: alone it could not learn its weight
    inputs, wanted = paddle.to_tensor(points), paddle.to_tensor(points @ TRUTH)
    paddle.seed(0)
    plane = paddle.DataParallel(paddle.nn.Linear(len(TRUTH), 1, bias_attr=False))
    optimizer = paddle.optimizer.SGD(0.1, parameters=plane.parameters())
    for number in range(STEPS):
        loss = paddle.nn.functional.mse_loss(plane(inputs), wanted)
        loss.backward()  # here gradients are averaged over all ranks
        optimizer.step()
        optimizer.clear_grad()
        if rank == 0 and number % 20 == 0:
            print(f"step {number} loss {float(loss):.6f}", flush=True)
    weights = [round(float(weight), 3) for weight in plane.parameters()[0].flatten()]
    print(f"rank {rank} final loss {float(loss):.6f} weights {weights}", flush=True)


main()
