"""How long a test waits for what it takes for certain, before it says what is missing.

Only a hang is to run into this: it is many times what the slowest wait takes on a machine that others use, too. No test
is about this number, and none has one of its own for the same purpose. `timeout` in pyproject.toml is longer, so that
the wait that failed is heard first.
"""

PATIENCE = 150.0
"""Seconds."""
