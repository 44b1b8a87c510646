"""The same network, trained by as many ranks as there are: workers may come and go, and no committed step is lost."""

import os
import time

import horovod.torch as hvd
import torch

STEPS = int(os.environ.get("STEPS", "150"))
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds per step, for those who want to watch workers come and go


@hvd.elastic.run
def train(state):
    """Runs anew, from the last commit, whenever the ranks have changed."""
    rank, world = hvd.rank(), hvd.size()
    print(f"rank {rank} of {world} goes on from step {state.step}", flush=True)
    shard = torch.linspace(-3, 3, 300)[rank::world].unsqueeze(1)
    wanted = torch.sin(shard)
    while state.step < STEPS:
        state.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(state.model(shard), wanted)
        loss.backward()
        state.optimizer.step()
        if rank == 0 and state.step % 50 == 0:
            print(f"step {state.step} loss {loss.item():.5f}", flush=True)
        state.step += 1
        if state.step % 10 == 0:
            state.commit()
        time.sleep(PAUSE)
    mean = hvd.allreduce(torch.nn.functional.mse_loss(state.model(shard), wanted).detach(), name="loss")
    weights = sum(parameter.sum() for parameter in state.model.parameters()).item()
    print(f"rank {rank} final loss {mean.item():.5f} weights {weights:.5f}", flush=True)


def main():
    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters())
    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))


main()
