"""MPIJob: what its author is told where fields and API version do not go together, and what survives a copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.frameworks.mpi import EXEC_ONLY, LAST_APPLIED, TELLTALES, written_in
from trainmaster.frameworks.mpi_base import FIELDS, MPIBase
from trainmaster.testing.scene import Scene, a_job

VALUES: dict[str, Any] = {
    "mainContainer": "main",
    "mpiDistribution": "MPICH",
    "mpiImplementation": "MPICH",
    "sshAuthMountPath": "/home/mpi/.ssh",
    "launcherCreationPolicy": "AtStartup",
    "runLauncherAsWorker": True,
}
IMPLEMENTATION = "did you mean mpiImplementation (OpenMPI, Intel or MPICH)?"
DISTRIBUTION = "did you mean mpiDistribution (OpenMPI, IntelMPI or MPICH)?"


def mpi(version: str, **spec: Any) -> Scene:
    return a_job("MPIJob", version=version, **spec).role("Launcher").role("Worker", 2)


def warnings(scene: Scene) -> list[str]:
    return [event.message for event in scene.plan().events if event.type == "Warning"]


def copied(scene: Scene) -> Scene:
    """The job as `kubectl get` prints it, made again: another version, another author, and no status."""
    manifest = {key: value for key, value in scene.manifest.items() if key != "status"}
    author = {"apiVersion": "kubeflow.org/v1", "operation": "Update", "time": "2024-01-01T00:00:00Z"}
    scene = a_job("MPIJob", version="v1", **manifest["spec"]).meta(managedFields=[author])
    return scene.meta(annotations=manifest["metadata"].get("annotations", {}))


@pytest.mark.parametrize(
    ("version", "field", "instead"),
    [
        ("v2beta1", "mpiDistribution", IMPLEMENTATION),
        ("v2beta1", "mainContainer", "ranks start in the first container, where sshd runs"),
        ("v1alpha2", "mpiImplementation", DISTRIBUTION),
        ("v1alpha2", "sshAuthMountPath", "ranks are started by kubectl exec, without keys"),
        ("v1alpha2", "launcherCreationPolicy", "the launcher always waits for the workers"),
        (
            "v1alpha2",
            "runLauncherAsWorker",
            "write the job as kubeflow.org/v2beta1 to have ranks beside the launcher",
        ),
    ],
)
def test_a_field_of_another_version_is_ignored_and_its_author_is_told(version: str, field: str, instead: str) -> None:
    found = warnings(mpi(version, **{field: VALUES[field]}))

    assert found == [f"spec.{field} is not a field of kubeflow.org/{version} and is ignored; {instead}"]


def test_fields_of_both_mechanisms_leave_a_job_of_v1_what_it_says_it_is() -> None:
    scene = mpi("v1", **VALUES)

    named = {message.split()[0] for message in warnings(scene)}

    assert scene.job.version == "v1"
    assert named == {f"spec.{field}" for field in TELLTALES["v2beta1"]}


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("v1", ("slotsPerWorker", *EXEC_ONLY)),
        ("v1alpha2", ("slotsPerWorker", *EXEC_ONLY)),
        ("v2beta1", ("slotsPerWorker", *TELLTALES["v2beta1"])),
    ],
)
def test_of_a_field_that_the_version_has_nothing_is_said(version: str, fields: tuple[str, ...]) -> None:
    spec = {field: {"slotsPerWorker": 2, **VALUES}[field] for field in fields}

    assert warnings(mpi(version, **spec)) == []


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_every_field_is_either_a_versions_own_or_named_as_anothers(version: str) -> None:
    own = {"slotsPerWorker", *(TELLTALES["v2beta1"] if version == "v2beta1" else EXEC_ONLY)}

    framework = mpi(version).reading.framework

    assert isinstance(framework, MPIBase)
    assert {*framework.foreign} == {*FIELDS} - own


@pytest.mark.parametrize("field", TELLTALES["v2beta1"])
def test_a_copy_that_says_v1_is_run_as_what_its_fields_show_and_says_so(field: str) -> None:
    scene = copied(mpi("v2beta1", **{field: VALUES[field]}).settled())

    (warning,) = warnings(scene)

    assert scene.plan().status.authored_version == "v2beta1"
    assert warning.startswith(f"the job came as kubeflow.org/v1, but only kubeflow.org/v2beta1 has spec.{field}")
    assert "Write apiVersion: kubeflow.org/v2beta1" in warning


def test_a_field_that_is_null_shows_nothing() -> None:
    assert written_in(mpi("v1", sshAuthMountPath=None).manifest) == "v1"


@pytest.mark.parametrize("version", ["v1alpha2", "v2beta1"])
def test_a_copy_of_what_kubectl_applied_keeps_its_version(version: str) -> None:
    applied = json.dumps({"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob"})
    scene = mpi(version).meta(annotations={LAST_APPLIED: applied}).settled()

    assert written_in(copied(scene).manifest) == version


def test_what_was_found_out_once_stays_whatever_fields_are_added_later() -> None:
    scene = mpi("v1").settled().spec(sshAuthMountPath="/home/mpi/.ssh")

    assert scene.job.version == "v1"
