# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Leaves a file for the other rank on a volume, waits for the other's, and shows what its configuration holds."""

import os
import time
from pathlib import Path

data, training, token = (Path(os.environ[name]) for name in ("DATA", "TRAINING", "TOKEN"))
name = os.environ["HOSTNAME"]
(data / name).write_text(f"from {name}")
deadline = time.monotonic() + 150
while len(found := sorted(data.iterdir())) < 2:
    assert time.monotonic() < deadline, found
    time.sleep(0.05)
print("shared", [path.name for path in found])
print("configmap", training.read_text(), os.environ["EPOCHS"])
print("secret", token.read_text(), oct(token.stat().st_mode & 0o777))
