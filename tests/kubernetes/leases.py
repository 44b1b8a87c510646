"""Who leads, as the proxies of several operators tell it."""

from __future__ import annotations

from tests.kubernetes.cutting import Proxy


def claims(proxy: Proxy) -> list[float]:
    """The times at which this operator got or renewed the lease."""
    return [e.answered for e in proxy.record if "/leases" in e.path and e.method != "GET" and e.took_effect]


def asked_for_lease(proxy: Proxy) -> bool:
    return any("/leases" in exchange.path for exchange in proxy.record)
