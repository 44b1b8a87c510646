"""MPIJob: one kind with a history. The API server keeps all its versions in one, so each object is asked who wrote it.

Its versions are not renamings of each other: v1alpha2 and v1 start ranks by `kubectl exec` (`mpi_exec`), v2beta1 by ssh
(`mpi_ssh`). What an author wrote is found out once and then remembered in the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trainmaster.api import status as statuses
from trainmaster.api.framework import Framework
from trainmaster.api.status import JobStatus
from trainmaster.frameworks.mpi_base import MPIBase
from trainmaster.frameworks.mpi_exec import MPIAlpha2, MPIExec
from trainmaster.frameworks.mpi_ssh import MPISsh
from trainmaster.objects.meta import JobMeta, Json, meta_of
from trainmaster.objects.resource import ROLE_BINDINGS, ROLES, SECRETS

RETIRED = (
    "kubeflow.org/v1alpha1 MPIJob has been retired: write it as kubeflow.org/v2beta1 (workers with sshd) or "
    "kubeflow.org/v1 (without), with spec.mpiReplicaSpecs.Launcher and .Worker instead of spec.template and spec.gpus"
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
TELLTALES = {
    "v2beta1": ("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy", "runLauncherAsWorker"),
    "v1alpha2": ("mpiDistribution", "backoffLimit", "activeDeadlineSeconds"),
    "v1": ("mainContainer", "cleanPodPolicy"),
}
"""Spec fields that only one version has."""


class MPIAlpha1(MPIBase):
    """Not run any more. One that has ended keeps its end, which was told as that of its launcher."""

    version = "v1alpha1"
    retired = RETIRED

    def inherited(self, status: JobStatus) -> JobStatus:
        ended = {"Succeeded": True, "Failed": False}.get(str(status.report.get("launcherStatus")))
        return status if ended is None else statuses.inherited(status, self.kind, succeeded=ended)


DIALECTS: Mapping[str, Framework] = {
    "v1": MPIExec(),
    "v2beta1": MPISsh(),
    "v1alpha2": MPIAlpha2(),
    "v1alpha1": MPIAlpha1(),
}


class MPI(MPIBase):
    older_versions = ("v2beta1", "v1alpha2", "v1alpha1")
    deprecated = {"v1alpha1": RETIRED}
    roles = MPISsh.roles
    restart_policies = MPIExec.restart_policies
    companion_resources = tuple(dict.fromkeys((*MPIExec.companion_resources, *MPISsh.companion_resources)))
    lasting_resources = (SECRETS, ROLES, ROLE_BINDINGS)
    grants = MPIExec.grants

    def dialect(self, raw: Json) -> Framework:
        return DIALECTS[written_in(raw)]


def written_in(raw: Json) -> str:
    """The version that the author wrote, by the best evidence there is."""
    evidence = (_remembered(raw), _managed(raw), _applied(raw), _declared(raw), _by_fields(raw.get("spec")))
    return next((version for version in evidence if version in DIALECTS), "v1")


def _remembered(raw: Json) -> str:
    status = raw.get("status")
    return str(status.get("authoredVersion", "")) if isinstance(status, Mapping) else ""


def _managed(raw: Json) -> str:
    """Who wrote first, other than to the status: the API server keeps that through every later change."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, JobMeta):
        try:
            metadata = msgspec.convert(metadata, JobMeta)
        except msgspec.ValidationError:
            return ""
    authors = [author for author in metadata.managed_fields if author.subresource != "status"]
    return _version(min(authors, key=lambda author: author.time).api_version) if authors else ""


def _applied(raw: Json) -> str:
    text = meta_of(raw.get("metadata")).annotations.get(LAST_APPLIED, "")
    try:
        return _declared(msgspec.json.decode(text)) if text else ""
    except msgspec.DecodeError:
        return ""


def _declared(raw: Any) -> str:
    return _version(raw.get("apiVersion")) if isinstance(raw, Mapping) else ""


def _version(api_version: object) -> str:
    return api_version.removeprefix(f"{MPI.group}/") if isinstance(api_version, str) else ""


def _by_fields(spec: object) -> str:
    if not isinstance(spec, Mapping):
        return ""
    if "template" in spec and MPI.replicas_field not in spec:
        return "v1alpha1"
    return next((version for version, fields in TELLTALES.items() if any(field in spec for field in fields)), "")
