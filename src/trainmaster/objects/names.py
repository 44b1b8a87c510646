"""Which strings Kubernetes takes as names."""

from __future__ import annotations

import re

DNS_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Services, and therefore our replicas, need this: it starts with a letter."""

LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Pods need only this."""

MAX_LABEL = 63
MAX_SUBDOMAIN = 253

_DNS_1035 = re.compile(DNS_1035)
_LABEL = re.compile(LABEL)


def is_dns_1035(name: str) -> bool:
    return len(name) <= MAX_LABEL and _DNS_1035.fullmatch(name) is not None


def is_label(name: str) -> bool:
    return len(name) <= MAX_LABEL and _LABEL.fullmatch(name) is not None
