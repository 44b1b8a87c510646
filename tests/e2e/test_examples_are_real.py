"""No example is a fake: without the exchange of gradients, or without a network, it does not pass for trained.

In a copy of each example the exchange alone is turned off. Its ranks still start, meet and end well, and still the
verdict that `test_frameworks` gives is another.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.examples import (
    Run,
    changed,
    command,
    example_of,
    light,
    process_of,
    ran,
    ran_example,
    shortcomings,
    words_of,
)

PROGRAM = Path(__file__).parent / "programs" / "cut.py"
LINEAR = "paddle.nn.Linear(len(TRUTH), 1, bias_attr=False)"
PULLED = "weights[number :: len(streams)]"
ADAM = "torch.optim.Adam(model.parameters(), lr=0.01)"

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Fake:
    """A job of the examples, and the change by which each of its ranks trains for itself."""

    job: str
    was: str
    becomes: str
    told: str = "the ranks do not agree"


FAKES = (
    Fake("ring", "(value / WORLD for value in ring.sum([*gradient, loss]))", "[*gradient, loss]"),
    Fake("ddp", "DistributedDataParallel(network)", "network"),
    Fake("elastic", "DistributedDataParallel(\n", "torch.nn.Sequential(\n"),
    Fake("tf-mirrored", 'tf.distribute.get_replica_context().all_reduce("mean", slope)', "slope"),
    Fake("tf-ps", "weights.assign_sub(0.05 * tape.gradient(loss, weights))", "", "the loss did not fall"),
    Fake(
        "mpi",
        "world.Allreduce(2 * points.T @ errors / len(errors), gradient)",
        "gradient = size * points.T @ errors / len(errors)",
    ),
    Fake("horovod", f"hvd.DistributedOptimizer({ADAM}, model.named_parameters())", ADAM),
    Fake("xgboost", "trees = xgboost.train(", "collective.finalize(); trees = xgboost.train("),
    Fake("lightgbm", '"num_machines": WORLD', '"num_machines": 1'),
    Fake("mxnet", "kvstore=store", "kvstore=None"),
    Fake("jax", "jax.devices()", "jax.local_devices()"),
    Fake("paddle", f"paddle.DataParallel({LINEAR})", LINEAR),
    Fake("paddle-ps", f"{PULLED} = json.loads(stream.readline())", "stream.readline()", "the loss did not fall"),
    Fake("mindspore", "together(gradient) / world", "gradient"),
)


@pytest.mark.parametrize("fake", [light(example_of(fake.job).environment, fake, id=fake.job) for fake in FAKES])
def test_without_the_exchange_of_gradients_an_example_does_not_pass_for_trained(tmp_path, fake: Fake):
    example = example_of(fake.job)
    copy = changed(example, tmp_path, (fake.was, fake.becomes))

    run = ran_example(example, copy)

    assert shortcomings(example, run) == [fake.told], run.text


@pytest.mark.light
def test_ranks_whose_network_is_cut_do_not_train_on(tmp_path):
    """The same job twice, long enough to be caught in its midst."""
    example = example_of("ring")
    words = words_of(example, changed(example, tmp_path, ('"STEPS", "60"', '"STEPS", "1000"')))

    whole = ran(*words)
    cut = ran_without_network(command(*words, limit=3 * whole.seconds), "step 0 loss", "copy-of-ring-worker-1")

    assert shortcomings(example, whole) == [], whole.text
    assert shortcomings(example, cut) == ["too slow", "0 of 4 results"], cut.text


def ran_without_network(words: list[str], told: str, pod: str) -> Run:
    """As soon as that is told, the pod has lost its network."""
    started, lines = time.monotonic(), []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if told in line:
                subprocess.run([sys.executable, str(PROGRAM), str(process_of(pod))], check=True)
    return Run(running.returncode, time.monotonic() - started, "".join(lines))
