"""A plane is fitted through MXNet's distributed key-value store.

All roles run this file. Which one a process has is in DMLC_ROLE: scheduler and server do their part within
`import mxnet` and never come back from it."""

import os

import mxnet
import numpy as np
from mxnet import autograd, gluon

STEPS = int(os.environ.get("STEPS", "80"))
TRUTH = np.array([[3.0], [-2.0], [0.5], [1.0]], dtype=np.float32)


def main():
    store = mxnet.kv.create("dist_sync")
    print(f"rank {store.rank} of {store.num_workers} has joined", flush=True)
    points = np.random.default_rng(store.rank).normal(size=(128, len(TRUTH))).astype(np.float32)
    points[:, store.rank] = 0  # it never sees this input: alone it could not learn its weight
    inputs, wanted = mxnet.nd.array(points), mxnet.nd.array(points @ TRUTH)
    plane = gluon.nn.Dense(1, in_units=len(TRUTH), use_bias=False)
    plane.initialize(mxnet.init.Zero())
    trainer = gluon.Trainer(plane.collect_params(), "sgd", {"learning_rate": 0.2 / store.num_workers}, kvstore=store)
    measure = gluon.loss.L2Loss()
    for number in range(STEPS):
        with autograd.record():
            loss = measure(plane(inputs), wanted).mean()
        loss.backward()
        trainer.step(1)  # pushed to the server, summed there, pulled from it
        if store.rank == 0 and number % 20 == 0:
            print(f"step {number} loss {loss.asscalar():.6f}", flush=True)
    weights = [round(float(weight), 3) for weight in plane.weight.data().asnumpy()[0]]
    print(f"rank {store.rank} final loss {loss.asscalar():.6f} weights {weights}", flush=True)


main()
