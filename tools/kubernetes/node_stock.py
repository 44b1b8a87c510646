"""Fetches and builds all that a real node needs, once: in its room there is no network to fetch from.

python -m tools.kubernetes.node_stock
"""

from __future__ import annotations

import sys

from tools.kubernetes import node_packages
from tools.kubernetes.binaries import Unavailable, binaries, node_binaries


def stock() -> None:
    node_packages.tree(node_packages.NODE)
    node_packages.tree(node_packages.IMAGE)
    binaries()
    node_binaries()


if __name__ == "__main__":
    try:
        stock()
    except Unavailable as error:
        sys.exit(f"node: {error}")
