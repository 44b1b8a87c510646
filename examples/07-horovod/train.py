"""A small network learns a curve; Horovod averages gradients over the ranks that mpirun or horovodrun has started."""

import os

import horovod.torch as hvd
import torch

STEPS = int(os.environ.get("STEPS", "150"))


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    rank, world = hvd.rank(), hvd.size()
    print(f"rank {rank} of {world} has joined", flush=True)

    shard = torch.linspace(-3, 3, 300)[rank::world].unsqueeze(1)  # every rank has points of its own
    wanted = torch.sin(shard)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # all go on from the first rank's weights
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(shard), wanted)
        loss.backward()
        optimizer.step()  # here gradients are averaged over all ranks
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)

    total = hvd.allreduce(loss.detach(), name="loss")
    weights = sum(parameter.sum() for parameter in model.parameters()).item()
    found = hvd.allgather_object(round(weights, 5))
    if rank == 0:  # mpirun may mix up what several ranks print at once, so the first one tells it all
        for other, sum_of_weights in enumerate(found):
            print(f"rank {other} final loss {total.item():.5f} weights {sum_of_weights}", flush=True)
    hvd.shutdown()


main()
