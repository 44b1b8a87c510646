"""Our CRDs over those that other operators have left, on a real server: accepted, and no job loses anything."""

import json
import os
import subprocess
from typing import Any, NamedTuple

import pytest
from tools.kubernetes.controlplane import control_plane

from trainmaster import frameworks
from trainmaster.operator.install import Installation, crds, manifests
from trainmaster.testing.jobs import a_small
from trainmaster.testing.scene import a_job

MADE_UP = {"madeUp": {"field": [1, "two"]}, "runPolicy": {"cleanPodPolicy": "Running", "suspend": False, "any": True}}
"""What our own schemas do not know has to stay, too."""


class Old(NamedTuple):
    group: str
    kind: str
    plural: str
    spec: Any
    versions: tuple[str, ...] = ("v1",)
    """The last is the one that is stored."""

    @property
    def name(self):
        return f"{self.plural}.{self.group}"

    def job(self, name):
        api_version = f"{self.group}/{self.versions[-1]}"
        return {"apiVersion": api_version, "kind": self.kind, "metadata": {"name": name}, "spec": self.spec}


def spec_of(scene):
    return {**scene.manifest["spec"], **MADE_UP}


MPI = a_job("MPIJob", version="v2beta1").role("Launcher").role("Worker", 2).spec(sshAuthMountPath="/home/mpiuser/.ssh")
PADDLE = a_job("PaddleJob", group="batch.paddlepaddle.org").role("ps").role("worker", 2).spec(withGloo=1)
OLD = {
    "TFJob of training-operator": Old("kubeflow.org", "TFJob", "tfjobs", spec_of(a_small("TFJob"))),
    "PyTorchJob of training-operator": Old("kubeflow.org", "PyTorchJob", "pytorchjobs", spec_of(a_small("PyTorchJob"))),
    "MPIJob of mpi-operator 0.8": Old("kubeflow.org", "MPIJob", "mpijobs", spec_of(MPI), ("v2beta1",)),
    "PaddleJob of paddle-operator": Old("batch.paddlepaddle.org", "PaddleJob", "paddlejobs", spec_of(PADDLE)),
    "MSJob of ms-operator": Old("mindspore.gitee.com", "MSJob", "msjobs", spec_of(a_small("MSJob"))),
    "XGBoostJob of xgboost-operator": Old(
        "xgboostjob.kubeflow.org", "XGBoostJob", "xgboostjobs", spec_of(a_small("XGBoostJob"))
    ),
    "MXJob of mxnet-operator": Old("kubeflow.org", "MXJob", "mxjobs", spec_of(a_small("MXJob"))),
}


def definition(old):
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": old.name},
        "spec": {
            "group": old.group,
            "names": {"kind": old.kind, "plural": old.plural, "singular": old.kind.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == old.versions[-1],
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
                for version in old.versions
            ],
        },
    }


class Kubectl:
    def __init__(self, plane):
        self._command = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", str(plane.kubeconfig)]

    def __call__(self, *arguments, send=None):
        text = json.dumps(send) if send is not None else None
        done = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments):
        return json.loads(self("get", *arguments, "-o", "json"))


def listed(items):
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture(scope="module")
def taken_over():
    """A server with jobs of other operators' kinds, and our CRDs applied over theirs."""
    with control_plane() as plane:
        kubectl = Kubectl(plane)
        kubectl("create", "-f", "-", send=listed(map(definition, OLD.values())))
        names = [f"crd/{old.name}" for old in OLD.values()]
        kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        kubectl("create", "-f", "-", send=listed(old.job("old") for old in OLD.values()))
        ours = listed(crds(frameworks.BUILT_IN))
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", send=ours)
        kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        yield kubectl


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
def test_a_job_keeps_every_field_of_its_spec_in_every_version(taken_over, old):
    served = [v["name"] for v in taken_over.get(f"crd/{old.name}")["spec"]["versions"] if v["served"]]

    specs = {version: taken_over.get(f"{old.plural}.{version}.{old.group}", "old")["spec"] for version in served}

    assert set(old.versions) <= specs.keys()
    assert all(spec == old.spec for spec in specs.values())


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
def test_versions_in_which_jobs_are_stored_stay_known(taken_over, old):
    found = taken_over.get(f"crd/{old.name}")

    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert old.versions[-1] in found["status"]["storedVersions"]
    assert {version["name"] for version in found["spec"]["versions"]} >= set(found["status"]["storedVersions"])
    assert conditions["NamesAccepted"] == conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
def test_a_job_is_edited_and_deleted_as_before(taken_over, old):
    taken_over("create", "-f", "-", send=old.job("other"))
    name = f"{old.plural}.{old.versions[-1]}.{old.group}"

    taken_over("patch", name, "other", "--type=merge", "-p", '{"spec": {"madeUp": {"more": 1}}}')
    edited = taken_over.get(name, "other")["spec"]
    taken_over("delete", name, "other", "--wait=false")

    assert edited["madeUp"] == {**old.spec["madeUp"], "more": 1}


def test_the_installation_is_accepted_as_it_is_and_applying_it_again_changes_nothing(taken_over):
    served = taken_over("api-versions").split()
    objects = [item for item in manifests(Installation(frameworks.BUILT_IN)) if item["apiVersion"] in served]

    taken_over("apply", "--server-side", "--force-conflicts", "-f", "-", send=listed(objects))
    first = taken_over.get("deployment", "trainmaster", "-n", "trainmaster-system")
    taken_over("apply", "--server-side", "--force-conflicts", "-f", "-", send=listed(objects))
    again = taken_over.get("deployment", "trainmaster", "-n", "trainmaster-system")

    assert first["metadata"]["generation"] == again["metadata"]["generation"] == 1
    wanted = next(item for item in objects if item["kind"] == "Deployment")["spec"]["template"]["spec"]
    held = again["spec"]["template"]["spec"]
    assert held["securityContext"] == wanted["securityContext"]
    assert held["topologySpreadConstraints"] == wanted["topologySpreadConstraints"]
    assert held["containers"][0]["securityContext"] == wanted["containers"][0]["securityContext"]
