"""Open files: a cluster needs one for every connection, watch and container, and shells often allow few."""

from __future__ import annotations

import resource

from trainmaster.cli.connection import Failure

LEAST = 256
"""For a cluster with a handful of pods. With fewer it starts and then hangs where it first runs out."""

ENOUGH = 65536


def raise_limit() -> None:
    """As far as this process may. Containers keep the limit that it was started with (`zygote.OPEN_FILES`)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if most < LEAST:
        raise Failure(
            f"this process may open {most} files at once (ulimit -Hn), and a cluster needs {LEAST}: raise the limit, "
            f"in a new shell or as root, with: ulimit -n {LEAST * 16}"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
