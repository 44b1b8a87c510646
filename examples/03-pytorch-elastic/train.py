"""A small network learns a curve; whoever is there takes part, and what was learnt is saved as training goes."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "150"))
CRASH = int(os.environ.get("CRASH_AT", "75"))  # one process dies here, once, to show that it does no harm
SAVED = Path("/saved") / f"{os.environ.get('PET_RDZV_ID', 'run')}.pt"
CRASHED = SAVED.with_suffix(".crashed")


def save(step, model, optimizer):
    """Whole or not at all: a process may die at any moment."""
    fresh = SAVED.with_suffix(".new")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, fresh)
    fresh.replace(SAVED)


def resume(model, optimizer):
    """The step to go on from. All ranks read what the first one found, so that none is ahead of the others."""
    found = [torch.load(SAVED) if dist.get_rank() == 0 and SAVED.exists() else None]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["step"]


def crash_once(step):
    if step == CRASH and not CRASHED.exists():
        CRASHED.touch()
        print(f"rank {dist.get_rank()} dies at step {step}", flush=True)
        os._exit(17)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} has joined", flush=True)

    shard = torch.linspace(-3, 3, 300)[rank::world].unsqueeze(1)
    wanted = torch.sin(shard)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = resume(model, optimizer)
    for step in range(first, STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(shard), wanted)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            save(step + 1, model, optimizer)
        if rank == 0 and (step % 50 == 0 or step == first):
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if rank == world - 1:
            crash_once(step)

    total = loss.detach().clone()
    dist.all_reduce(total)
    weights = sum(parameter.sum() for parameter in model.parameters()).item()
    print(f"rank {rank} final loss {total.item() / world:.5f} weights {weights:.5f}", flush=True)
    dist.barrier()
    if rank == 0:
        SAVED.unlink(missing_ok=True)
        CRASHED.unlink(missing_ok=True)
    dist.destroy_process_group()
    os._exit(0)  # torch 2.13 with gloo now and then aborts while Python shuts down, when all work is done


main()
