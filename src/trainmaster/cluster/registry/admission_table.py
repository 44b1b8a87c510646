"""Which policy belongs to which of Kubernetes' own kinds, by storage prefix."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.cluster.registry import (
    admission_plain,
    admission_pod,
    admission_service,
    admission_workload,
    custom_resources,
)
from trainmaster.cluster.registry.admission import Policy

BUILTIN_POLICIES: Mapping[str, Policy] = {
    **admission_plain.POLICIES,
    **admission_workload.POLICIES,
    "/pods": admission_pod.POLICY,
    "/services": admission_service.POLICY,
    custom_resources.PREFIX: custom_resources.DEFINITION_POLICY,
}
