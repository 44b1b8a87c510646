# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A small network, trained by as many ranks as there are, for some steps and until the first rank finds /gate/open."""

import os
import time

import horovod.torch as hvd  # type: ignore[import-not-found]  # in its environment only
import torch  # type: ignore[import-not-found]  # in its environment only

GATE = os.environ["GATE"]
LEAST = 150
PAUSE = 0.02


@hvd.elastic.run
def train(state):
    """Runs anew, from the last commit, whenever the ranks have changed."""
    rank, world = hvd.rank(), hvd.size()
    print(f"rank {rank} of {world} goes on from step {state.step}", flush=True)
    shard = torch.linspace(-3, 3, 300)[rank::world].unsqueeze(1)
    wanted = torch.sin(shard)
    is_over = False
    while not is_over:
        state.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(state.model(shard), wanted)
        loss.backward()
        state.optimizer.step()
        if rank == 0 and state.step % 10 == 0:
            print(f"step {state.step} loss {loss.item():.5f}", flush=True)
        state.step += 1
        state.commit()
        time.sleep(PAUSE)
        # All ranks must end with the same step, so one decides.
        is_over = bool(hvd.broadcast(torch.tensor([int(may_end(state.step))]), root_rank=0, name="end").item())
    print(f"rank {rank} of {world} ends with loss {loss.item():.5f}", flush=True)


def may_end(step):
    return step >= LEAST and os.path.exists(f"{GATE}/open")


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters())
    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))


main()
