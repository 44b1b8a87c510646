# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A plane, fitted by as many ranks as Paddle's launcher starts, which starts them anew whenever that number changes.

What was learnt is kept in $GATE, so that training goes on where it was; the first rank tells through the pipe there how
many they are, at which step, and with which loss. All end when it finds the gate open, after some steps at least.
"""

import os
import time
from pathlib import Path

import numpy as np  # type: ignore[import-not-found]  # in its environment only
import paddle  # type: ignore[import-not-found]  # in its environment only
import paddle.distributed as dist  # type: ignore[import-not-found]  # in its environment only

GATE = Path(os.environ["GATE"])
KEPT = GATE / "kept"
LEAST, EVERY, PAUSE = 60, 5, 0.02
TRUTH = np.array([[3.0], [-2.0], [0.5], [1.0]], dtype=np.float32)


def main():
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    kept = paddle.load(str(KEPT)) if KEPT.exists() else {"step": 0}
    step = kept["step"]
    print(f"rank {rank} of {world} goes on from step {step}", flush=True)
    points = np.random.default_rng(rank).normal(size=(128, len(TRUTH))).astype(np.float32)
    points[:, rank] = 0  # it never sees this input: alone it could not learn its weight
    inputs, wanted = paddle.to_tensor(points), paddle.to_tensor(points @ TRUTH)
    paddle.seed(0)
    plane = paddle.nn.Linear(len(TRUTH), 1, bias_attr=False)
    if step:
        plane.set_state_dict(kept["plane"])
    parallel = paddle.DataParallel(plane)
    optimizer = paddle.optimizer.SGD(0.1, parameters=plane.parameters())
    is_over, first = False, step
    while not is_over:
        loss = paddle.nn.functional.mse_loss(parallel(inputs), wanted)
        loss.backward()  # here gradients are averaged over all ranks
        optimizer.step()
        optimizer.clear_grad()
        step += 1
        if rank == 0 and step % EVERY == 0:
            keep(plane, step)
            if step == first + EVERY:
                tell("trains", world, first, loss)
        time.sleep(PAUSE)
        over = paddle.to_tensor([float(step >= LEAST and (GATE / "open").exists())])
        dist.broadcast(over, 0)  # all ranks must end with the same step, so one decides
        is_over = bool(over.item())
    if rank == 0:
        tell("ends", world, step, loss)


def keep(plane, step):
    """Whole or not at all: it may be killed at any moment."""
    part = GATE / "part"
    paddle.save({"plane": plane.state_dict(), "step": step}, str(part))
    part.replace(KEPT)


def tell(what, world, step, loss):
    with open(GATE / "pipe", "w") as pipe:
        pipe.write(f"{what} {world} {step} {float(loss):.6f}\n")


main()
