"""Which frameworks there are, what they are called, and under which names their jobs are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from trainmaster import frameworks
from trainmaster.api.framework import Framework, Role
from trainmaster.frameworks import BUILT_IN
from trainmaster.objects.resource import Resource

KINDS = ["TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "MXJob", "PaddleJob", "JAXJob"]
ALL = [framework.kind for framework in BUILT_IN]


def framework_of(kind: str) -> Framework:
    return next(framework for framework in BUILT_IN if framework.kind == kind)


# The table of kinds.


@pytest.mark.parametrize(
    ("kind", "plural", "field", "container", "port_name", "port", "label"),
    [
        ("TFJob", "tfjobs", "tfReplicaSpecs", "tensorflow", "tfjob-port", 2222, "tensorflow"),
        ("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", "pytorch", "pytorchjob-port", 23456, "pytorch"),
        ("MPIJob", "mpijobs", "mpiReplicaSpecs", "", "", 0, "mpi"),
        ("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", "xgboost", "xgboostjob-port", 9999, "xgboost"),
        ("MXJob", "mxjobs", "mxReplicaSpecs", "mxnet", "mxjob-port", 9091, "mxnet"),
        ("PaddleJob", "paddlejobs", "paddleReplicaSpecs", "paddle", "master", 36543, "paddle"),
        ("JAXJob", "jaxjobs", "jaxReplicaSpecs", "jax", "jaxjob-port", 6666, "jax"),
    ],
)
def test_each_kind_has_the_names_its_users_know(
    kind: str, plural: str, field: str, container: str, port_name: str, port: int, label: str
) -> None:
    framework = framework_of(kind)

    assert framework.resource == Resource("kubeflow.org", "v1", plural, kind)
    assert (framework.replicas_field, framework.container) == (field, container)
    assert (framework.port_name, framework.port) == (port_name, port)
    assert framework.name == label
    assert (framework.singular, framework.controller_name) == (kind.lower(), f"{kind.lower()}-controller")


@pytest.mark.parametrize(
    ("kind", "roles", "scalable"),
    [
        ("TFJob", {"PS", "Worker", "Chief", "Master", "Evaluator"}, ""),
        ("PyTorchJob", {"Master", "Worker"}, "Worker"),
        ("MPIJob", {"Launcher", "Worker"}, "Worker"),
        ("XGBoostJob", {"Master", "Worker"}, ""),
        ("MXJob", {"Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner"}, ""),
        ("PaddleJob", {"Master", "Worker"}, "Worker"),
        ("JAXJob", {"Worker"}, "Worker"),
    ],
)
def test_each_kind_has_its_roles(kind: str, roles: set[str], scalable: str) -> None:
    framework = framework_of(kind)

    assert {role.name for role in framework.roles} == roles
    assert framework.scalable_role == scalable


@pytest.mark.parametrize("kind", KINDS)
def test_the_deciding_roles_are_roles_of_the_kind(kind: str) -> None:
    framework = framework_of(kind)

    assert set(framework.decides) <= {role.name for role in framework.roles}


def test_a_role_is_found_by_name() -> None:
    assert framework_of("XGBoostJob").role("Master") == Role("Master", min=1, max=1, leader=True, required=True)


def test_the_kinds_of_kubeflow_come_in_the_order_in_which_they_are_listed_everywhere() -> None:
    assert [framework.kind for framework in BUILT_IN if framework.group == "kubeflow.org"] == KINDS


# Schemes.


@pytest.mark.parametrize(
    ("schemes", "kinds"),
    [
        pytest.param((), ALL, id="none named means all"),
        pytest.param(("TFJob",), ["TFJob"], id="as written"),
        pytest.param(("pytorchjob",), ["PyTorchJob"], id="lower case"),
        pytest.param(("JAXJOB",), ["JAXJob"], id="upper case"),
        pytest.param(("jaxjob", "tfjob", "TFJob"), ["TFJob", "JAXJob"], id="in our order, each once"),
        pytest.param(("mxnetjob",), ["MXJob"], id="by an alias"),
    ],
)
def test_schemes_are_enabled_by_kind(schemes: tuple[str, ...], kinds: list[str]) -> None:
    assert [framework.kind for framework in frameworks.enabled(schemes)] == kinds


def test_an_unknown_scheme_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(frameworks.UnknownScheme) as caught:
        frameworks.enabled(("tfjob", "dummyjob"))

    assert str(caught.value) == f"unknown scheme dummyjob; known are {', '.join(dict.fromkeys(ALL))}"


# Names under which jobs are found.


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_served_under_its_own_name(kind: str) -> None:
    framework = framework_of(kind)

    assert frameworks.serving("kubeflow.org/v1", kind) == (framework, framework.resource)


@pytest.mark.parametrize(
    ("api_version", "kind", "owner", "resource"),
    [
        pytest.param(
            "xgboostjob.kubeflow.org/v1",
            "XGBoostJob",
            "XGBoostJob",
            Resource("xgboostjob.kubeflow.org", "v1", "xgboostjobs", "XGBoostJob"),
            id="the old group of XGBoost",
        ),
        pytest.param(
            "kubeflow.org/v1",
            "MXNetJob",
            "MXJob",
            Resource("kubeflow.org", "v1", "mxnetjobs", "MXNetJob"),
            id="the long name of MXJob",
        ),
        pytest.param(
            "kubeflow.org/v1beta1",
            "MXJob",
            "MXJob",
            Resource("kubeflow.org", "v1", "mxjobs", "MXJob"),
            id="an older version is stored as the current one",
        ),
        *(
            pytest.param(
                f"kubeflow.org/{version}",
                "MPIJob",
                "MPIJob",
                Resource("kubeflow.org", "v1", "mpijobs", "MPIJob"),
                id=f"{version} of MPIJob",
            )
            for version in ("v1alpha1", "v1alpha2", "v2beta1")
        ),
    ],
)
def test_old_names_lead_to_the_same_framework(api_version: str, kind: str, owner: str, resource: Resource) -> None:
    assert frameworks.serving(api_version, kind) == (framework_of(owner), resource)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        pytest.param("kubeflow.org/v1", "NoJob", id="unknown kind"),
        pytest.param("kubeflow.org/v1beta1", "TFJob", id="a version this kind never had"),
        pytest.param("kubeflow.org/v1beta1", "MXNetJob", id="older versions are not those of an alias"),
        pytest.param("xgboostjob.kubeflow.org/v1", "TFJob", id="another kind's group"),
        pytest.param("kubeflow.org/v1", "tfjob", id="kinds are exact"),
        pytest.param("batch/v1", "Job", id="not ours"),
        pytest.param(None, None, id="nothing"),
        pytest.param(1, ["TFJob"], id="wrong types"),
    ],
)
def test_nobody_serves_other_names(api_version: object, kind: object) -> None:
    assert frameworks.serving(api_version, kind) is None


# Frameworks of others.


class Tortoise(Framework):
    name, kind, plural, replicas_field = "tortoise", "TortoiseJob", "tortoisejobs", "tortoiseReplicaSpecs"


class Hare(Framework):
    name, kind, plural, replicas_field = "hare", "HareJob", "harejobs", "hareReplicaSpecs"


@dataclass
class Point:
    name: str
    loaded: object

    def load(self) -> object:
        return self.loaded


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packages that bring a framework each: one as a class, one as an instance."""
    points = {frameworks.ENTRY_POINT: [Point("tortoise", Tortoise()), Point("hare", Hare)]}
    monkeypatch.setattr(frameworks, "entry_points", lambda group: points[group])
    frameworks.registered.cache_clear()
    yield
    frameworks.registered.cache_clear()


@pytest.mark.usefixtures("installed")
def test_installed_packages_add_frameworks_after_ours_in_order_of_name() -> None:
    assert [framework.kind for framework in frameworks.registered()] == [*ALL, "HareJob", "TortoiseJob"]
    assert frameworks.serving("kubeflow.org/v1", "HareJob") is not None
    assert [framework.kind for framework in frameworks.enabled(("tortoisejob",))] == ["TortoiseJob"]
