# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A lone worker of a TFJob: fits a line by gradient descent, and leaves its losses where TensorBoard would look."""

import argparse
import json
import os
from pathlib import Path

SAMPLES = [(x / 10, 3 * x / 10 - 2) for x in range(-10, 11)]
STEPS = 200


def fit(rate):
    """The loss before every step."""
    slope = offset = 0.0
    for _ in range(STEPS):
        errors = [(slope * x + offset - y, x) for x, y in SAMPLES]
        yield sum(error * error for error, _ in errors) / len(errors)
        slope -= rate * 2 * sum(error * x for error, x in errors) / len(errors)
        offset -= rate * 2 * sum(error for error, _ in errors) / len(errors)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--log_dir", type=Path, required=True)
    flags.add_argument("--learning_rate", type=float, required=True)
    flags.add_argument("--batch_size", type=int, required=True)
    given = flags.parse_args()
    assert "TF_CONFIG" not in os.environ, "a lone worker trains locally"

    losses = list(fit(given.learning_rate))

    summaries = given.log_dir / "train"
    summaries.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(losses)]
    (summaries / "events.jsonl").write_text("\n".join(lines))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


main()
