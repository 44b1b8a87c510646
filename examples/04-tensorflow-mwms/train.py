"""A plane is fitted by workers in step: each has points of its own, all have the same weights after every step.

Who and where the workers are comes from TF_CONFIG."""

import json
import os

import tensorflow as tf

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
STEPS = int(os.environ.get("STEPS", "80"))
TRUTH = [3.0, -2.0, 0.5, 1.0]


def ring():
    """Collectives over gRPC in a ring; the strategy has to be made before anything else."""
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def shard(context):
    """Points of the worker's own, in which one input never appears: alone it could not learn its weight."""
    worker = context.input_pipeline_id
    inputs = tf.random.stateless_normal([128, len(TRUTH)], seed=[worker, 1]) * (1 - tf.one_hot(worker, len(TRUTH)))
    return tf.data.Dataset.from_tensors((inputs, tf.linalg.matvec(inputs, tf.constant(TRUTH)))).repeat()


def main():
    strategy = ring()
    print(f"rank {RANK} of {strategy.num_replicas_in_sync} has joined", flush=True)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([len(TRUTH)]))
    batches = iter(strategy.distribute_datasets_from_function(shard))

    def replica_step(inputs, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(inputs, weights) - wanted))
        slope = tape.gradient(loss, weights)
        weights.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce("mean", slope))
        return loss

    @tf.function
    def step(batch):
        return strategy.reduce("mean", strategy.run(replica_step, args=batch), axis=None)

    for number in range(STEPS):
        loss = float(step(next(batches)))
        if RANK == 0 and number % 20 == 0:
            print(f"step {number} loss {loss:.6f}", flush=True)
    print(f"rank {RANK} final loss {loss:.6f} weights {[round(float(w), 3) for w in weights.numpy()]}", flush=True)


main()
