"""A plane is fitted to points that are spread over all processes; XLA adds up the gradients.

The job tells every process where the coordinator is, how many there are, and which it is itself."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = int(os.environ.get("STEPS", "80"))
TRUTH = np.array([3.0, -2.0, 0.5, 1.0], dtype=np.float32)


def join():
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=int(os.environ["PROCESS_ID"]),
    )
    return jax.process_index(), jax.process_count()


def loss_of(weights, inputs, wanted):
    return jnp.mean((inputs @ weights - wanted) ** 2)


@jax.jit
def step(weights, inputs, wanted):
    loss, slope = jax.value_and_grad(loss_of)(weights, inputs, wanted)
    return weights - 0.1 * slope, loss


def main():
    rank, world = join()
    print(f"rank {rank} of {world} sees {jax.device_count()} devices", flush=True)
    mesh = Mesh(np.array(jax.devices()), ("points",))
    spread, everywhere = NamedSharding(mesh, PartitionSpec("points")), NamedSharding(mesh, PartitionSpec())
    own = np.random.default_rng(rank).normal(size=(128, len(TRUTH))).astype(np.float32)
    own[:, rank] = 0  # it never sees this input: alone it could not learn its weight
    inputs = jax.make_array_from_process_local_data(spread, own)
    wanted = jax.make_array_from_process_local_data(spread, own @ TRUTH)
    weights = jax.device_put(jnp.zeros(len(TRUTH)), everywhere)
    for number in range(STEPS):
        weights, loss = step(weights, inputs, wanted)
        if rank == 0 and number % 20 == 0:
            print(f"step {number} loss {float(loss):.6f}", flush=True)
    print(f"rank {rank} final loss {float(loss):.6f} weights {[round(float(w), 3) for w in weights]}", flush=True)
    jax.distributed.shutdown()


main()
