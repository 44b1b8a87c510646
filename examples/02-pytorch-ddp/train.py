"""A small network learns a curve, data-parallel over gloo; who and where the ranks are comes from the job."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "150"))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} has joined", flush=True)

    shard = torch.linspace(-3, 3, 300)[rank::world].unsqueeze(1)  # every rank has points of its own
    wanted = torch.sin(shard)
    network = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(shard), wanted)
        loss.backward()  # here gradients are averaged over all ranks
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)

    total = loss.detach().clone()
    dist.all_reduce(total)
    weights = sum(parameter.sum() for parameter in model.parameters()).item()
    print(f"rank {rank} final loss {total.item() / world:.5f} weights {weights:.5f}", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # torch 2.13 with gloo now and then aborts while Python shuts down, when all work is done


main()
