"""No example is a fake: without the exchange of gradients, or without a network, it does not pass for trained.

In a copy of each example the exchange alone is turned off. Its ranks still start, meet and end well, and still the
verdict that `test_frameworks` gives is another.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
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
    meeting,
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

    parts: bool = True
    """Whether something still keeps the ranks together until all have told their results. Where nothing does they meet
    after their training: the job ends with its leader, whose name goes with it, and may be over before others begin."""


FAKES = (
    Fake("ring", "(value / WORLD for value in ring.sum([*gradient, loss]))", "[*gradient, loss]", parts=False),
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
    Fake("xgboost", "trees = xgboost.train(", "collective.finalize(); trees = xgboost.train(", parts=False),
    Fake("lightgbm", '"num_machines": WORLD', '"num_machines": 1', parts=False),
    Fake("mxnet", "kvstore=store", "kvstore=None"),
    Fake("jax", "jax.devices()", "jax.local_devices()"),
    Fake("paddle", f"paddle.DataParallel({LINEAR})", LINEAR, parts=False),
    Fake("paddle-ps", f"{PULLED} = json.loads(stream.readline())", "stream.readline()", "the loss did not fall"),
    Fake("mindspore", "together(gradient) / world", "gradient"),
)


@pytest.mark.parametrize("fake", [light(example_of(fake.job).environment, fake, id=fake.job) for fake in FAKES])
def test_without_the_exchange_of_gradients_an_example_does_not_pass_for_trained(tmp_path, fake: Fake):
    example = example_of(fake.job)
    parting = () if fake.parts else [("\nmain()\n", f"\nmain()\n{meeting(tmp_path / 'done', example.ranks)}")]
    copy = changed(example, tmp_path, (fake.was, fake.becomes), *parting)

    run = ran_example(example, copy)

    assert shortcomings(example, run) == [fake.told], run.text


@pytest.mark.light
def test_ranks_whose_network_is_cut_do_not_train_on(tmp_path):
    """The same job twice. After its first step it waits for the gate, so that it is caught in its midst."""
    example, gate = example_of("ring"), tmp_path / "gate"
    told = 'print(f"step {step} loss {loss:.6f}", flush=True)'
    held = f"{told}\n            while not os.path.exists({str(gate)!r}):\n                time.sleep(0.05)"
    words = words_of(example, changed(example, tmp_path, (told, held)))

    gate.touch()
    whole = ran(*words)
    gate.unlink()
    cut = ran_without_network(words, "copy-of-ring-worker-1", gate, whole.seconds)

    assert shortcomings(example, whole) == [], whole.text
    assert (cut.code, re.findall("step (\\d+) loss", cut.text), "final loss" in cut.text) == (130, ["0"], False), (
        cut.text
    )


def ran_without_network(words: list[str], pod: str, gate: Path, seconds: float) -> Run:
    """Once the first step is told, the pod loses its network and the gate opens. After these seconds it is enough."""
    started, lines = time.monotonic(), []
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        enough = threading.Timer(seconds, running.send_signal, (signal.SIGINT,))
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if "step 0 loss" in line:
                subprocess.run([sys.executable, str(PROGRAM), str(process_of(pod))], check=True)
                gate.touch()
                enough.start()
        enough.cancel()
    return Run(running.returncode, time.monotonic() - started, "".join(lines))
