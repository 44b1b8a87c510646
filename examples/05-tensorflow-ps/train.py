"""A plane is fitted asynchronously: workers compute gradients, a parameter server keeps the weights, a chief hands out
the work, an evaluator watches the checkpoints. Who is who and where comes from TF_CONFIG."""

import json
import os
import signal
import time

import tensorflow as tf

TASK = json.loads(os.environ["TF_CONFIG"])["task"]
CHECKPOINTS = os.environ.get("CHECKPOINTS", "/checkpoints")
ROUNDS, STEPS_PER_ROUND = int(os.environ.get("ROUNDS", "4")), 40
TRUTH = tf.constant([3.0, -2.0, 0.5, 1.0])


def points(seed):
    inputs = tf.random.stateless_normal([64, TRUTH.shape[0]], seed=[seed, 1])
    return inputs, tf.linalg.matvec(inputs, TRUTH)


def loss_of(weights, inputs, wanted):
    return tf.reduce_mean(tf.square(tf.linalg.matvec(inputs, weights) - wanted))


def cluster():
    """All but the evaluator, which watches from outside: TensorFlow does not take it for a member."""
    config = json.loads(os.environ["TF_CONFIG"])
    members = {role: addresses for role, addresses in config["cluster"].items() if role != "evaluator"}
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(members), task_type=TASK["type"], task_id=TASK["index"], rpc_layer="grpc"
    )


def serve():
    """Workers and parameter servers do as they are told, for ever."""
    tf.distribute.Server(cluster().cluster_spec(), job_name=TASK["type"], task_index=TASK["index"], protocol="grpc")
    print(f"{TASK['type']} {TASK['index']} serves", flush=True)
    while True:
        signal.pause()


def coordinate():
    strategy = tf.distribute.ParameterServerStrategy(cluster())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros_like(TRUTH))

    @tf.function
    def step(seed):
        inputs, wanted = points(seed)
        with tf.GradientTape() as tape:
            loss = loss_of(weights, inputs, wanted)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    kept = tf.train.CheckpointManager(tf.train.Checkpoint(weights=weights), CHECKPOINTS, max_to_keep=3)
    for number in range(ROUNDS):
        losses = [coordinator.schedule(step, args=(number * STEPS_PER_ROUND + i,)) for i in range(STEPS_PER_ROUND)]
        coordinator.join()
        loss = sum(float(result.fetch()) for result in losses) / len(losses)
        print(f"round {number} loss {loss:.6f}", flush=True)
        kept.save()
    print(f"final loss {loss:.6f} weights {[round(float(w), 3) for w in weights.numpy()]}", flush=True)


def evaluate():
    weights, seen = tf.Variable(tf.zeros_like(TRUTH)), None
    while True:
        newest = tf.train.latest_checkpoint(CHECKPOINTS)
        if newest is not None and newest != seen:
            seen = newest
            tf.train.Checkpoint(weights=weights).restore(newest).expect_partial()
            loss = float(loss_of(weights, *points(12345)))
            print(f"evaluated {os.path.basename(newest)} loss {loss:.6f}", flush=True)
        time.sleep(0.2)


{"chief": coordinate, "evaluator": evaluate}.get(TASK["type"], serve)()
