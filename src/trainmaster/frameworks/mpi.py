"""MPIJob: one kind with a history. The API server keeps all its versions in one, so each object is asked who wrote it.

Its versions are not renamings of each other: v1alpha2 and v1 start ranks by `kubectl exec` (`mpi_exec`), v2beta1 by ssh
(`mpi_ssh`). What an author wrote is found out once and then remembered in the status. A job that is made again from
what `kubectl get` printed has lost that and says v1, as every job does then: so v1 is believed only where nothing
speaks against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from trainmaster.api import status as statuses
from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.problem import Advice
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


EXEC_ONLY = ("mainContainer", "mpiDistribution")
"""What v1 reads, and v2beta1 does not."""


class MPIAlpha1(MPIBase):
    """Not run any more. One that has ended keeps its end, which was told as that of its launcher."""

    version = "v1alpha1"
    retired = RETIRED

    def inherited(self, status: JobStatus) -> JobStatus:
        ended = {"Succeeded": True, "Failed": False}.get(str(status.report.get("launcherStatus")))
        return status if ended is None else statuses.inherited(status, self.kind, succeeded=ended)


class MPIRevealed(MPISsh):
    """v2beta1 by its fields, though it came as v1."""

    def advice(self, job: Job) -> Iterator[Advice]:
        fields = ", ".join(f"spec.{field}" for field in TELLTALES[self.version] if field in job.spec)
        message = (
            f"the job came as {self.group}/v1, but only {self.group}/{self.version} has {fields}, so it is run as "
            f"that: ranks are started by ssh. Write apiVersion: {self.group}/{self.version}, or leave out those fields"
        )
        yield Advice("RevealedVersion", message)
        yield from super().advice(job)


DIALECTS: Mapping[str, Framework] = {
    "v1": MPIExec(),
    "v2beta1": MPISsh(),
    "v1alpha2": MPIAlpha2(),
    "v1alpha1": MPIAlpha1(),
}


REVEALED = MPIRevealed()


class MPI(MPIBase):
    older_versions = ("v2beta1", "v1alpha2", "v1alpha1")
    deprecated = {"v1alpha1": RETIRED}
    roles = MPISsh.roles
    restart_policies = MPIExec.restart_policies
    companion_resources = tuple(dict.fromkeys((*MPIExec.companion_resources, *MPISsh.companion_resources)))
    lasting_resources = (SECRETS, ROLES, ROLE_BINDINGS)
    grants = MPIExec.grants

    def dialect(self, raw: Json) -> Framework:
        version, is_revealed = _found(raw)
        return REVEALED if is_revealed else DIALECTS[version]


def written_in(raw: Json) -> str:
    """The version that the author wrote, by the best evidence there is."""
    return _found(raw)[0]


def _found(raw: Json) -> tuple[str, bool]:
    """The version, and whether its fields alone tell, against what the object says."""
    known = _remembered(raw)
    if known in DIALECTS:
        return known, False
    claims = [version for version in (_managed(raw), _applied(raw), _declared(raw)) if version in DIALECTS]
    if not claims:
        return _by_fields(raw.get("spec")) or MPI.version, False
    claim = next((version for version in claims if version != MPI.version), MPI.version)
    is_revealed = claim == MPI.version and _is_of_ssh(raw.get("spec"))
    return (REVEALED.version, True) if is_revealed else (claim, False)


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


def _is_of_ssh(spec: object) -> bool:
    if not isinstance(spec, Mapping) or any(spec.get(field) is not None for field in EXEC_ONLY):
        return False
    return any(spec.get(field) is not None for field in TELLTALES[REVEALED.version])


def _by_fields(spec: object) -> str:
    if not isinstance(spec, Mapping):
        return ""
    if "template" in spec and MPI.replicas_field not in spec:
        return "v1alpha1"
    return next((version for version, fields in TELLTALES.items() if any(field in spec for field in fields)), "")
