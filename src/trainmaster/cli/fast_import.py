"""Imports the embedded API server, and with it aiohttp, faster.

aiohttp's client comes with its server and reads the machine's certificates twice, a twelfth of the time in which
`trainmaster run` comes to its first process. It is shown an empty file instead, for nothing in our own program uses
that client. In other people's programs something may: hence it is done here, and not where the API server imports it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PLACES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


@contextmanager
def _without_certificates() -> Iterator[None]:
    before = {name: os.environ[name] for name in _PLACES if name in os.environ}
    os.environ.update(_PLACES)
    try:
        yield
    finally:
        for name in _PLACES:
            del os.environ[name]
        os.environ.update(before)


with _without_certificates():
    from trainmaster.cluster.server import apiserver as apiserver
