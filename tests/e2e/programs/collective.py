# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A worker of Paddle: adds up with the others, over and over, until the first one finds /gate/open.

Rank r brings 10**r, so the sum says who took part.
"""

import os
import time

import paddle  # type: ignore[import-not-found]  # in its environment only
import paddle.distributed as dist  # type: ignore[import-not-found]  # in its environment only

PAUSE = 0.05


def main():
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, has_told, is_open = dist.get_rank(), False, paddle.zeros([1])
    while not is_open.item():
        total = paddle.to_tensor([10.0**rank])
        dist.all_reduce(total)
        if not has_told:
            print(f"rank {rank} of {dist.get_world_size()} has sum {total.item():.0f}", flush=True)
            has_told = True
        time.sleep(PAUSE)
        is_open = paddle.to_tensor([float(os.path.exists("/gate/open"))])
        dist.broadcast(is_open, 0)


main()
