"""Our CRDs over those that other operators have left, on a real server: accepted, and no job loses anything."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from tools import kubectl as stock
from tools.kubernetes.controlplane import control_plane

from trainmaster import frameworks
from trainmaster.api.status import render, status_of, with_condition
from trainmaster.operator.install import Installation, crds, manifests
from trainmaster.testing.jobs import a_small
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.scene import a_job

NOW = 1_700_000_000.0
MADE_UP = {"madeUp": {"field": [1, "two"]}, "runPolicy": {"cleanPodPolicy": "Running", "suspend": False, "any": True}}
"""What our own schemas do not know has to stay, too."""


class Old(NamedTuple):
    group: str
    kind: str
    plural: str
    spec: Any
    versions: tuple[str, ...] = ("v1",)
    """The last is the one that is stored."""

    api: str = "v1"
    """Of the definition itself."""

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
        "xgboostjob.kubeflow.org", "XGBoostJob", "xgboostjobs", spec_of(a_small("XGBoostJob")), api="v1beta1"
    ),
    "MXJob of mxnet-operator": Old("kubeflow.org", "MXJob", "mxjobs", spec_of(a_small("MXJob")), api="v1beta1"),
}


TOLD = OLD["PyTorchJob of training-operator"]
SAID = {"type": "Succeeded", "status": "True", "reason": "JobSucceeded", "message": "it has"}
WRITTEN = {
    "empty words": {"conditions": [{**SAID, "reason": "", "message": ""}]},
    "null words": {"conditions": [{**SAID, "reason": None, "message": None}]},
    "null times": {"conditions": [{**SAID, "lastUpdateTime": None, "lastTransitionTime": None}], "startTime": None},
    "empty times": {"conditions": [{**SAID, "lastTransitionTime": ""}], "startTime": "", "completionTime": ""},
    "times that are none": {"conditions": [{**SAID, "lastUpdateTime": "2023-02-30T00:00:00Z"}], "startTime": "now"},
    "a condition of no type": {"conditions": [{"status": "True"}, SAID]},
    "odd counts": {"conditions": [SAID], "replicaStatuses": {"Worker": {"active": None, "failed": "2"}}},
    "fields of its own": {"conditions": [SAID], "phase": "", "mode": None, "madeUp": {"is": None}},
}
"""Statuses of finished jobs, as operators have left them whose definitions say nothing of a status."""


FORBIDDEN = {**TOLD.job("forbidden"), "spec": {**TOLD.spec, "runPolicy": {"ttlSecondsAfterFinished": -1}}}
"""By our definition, not by the one it was accepted under."""


def named(said):
    return said.replace(" ", "-")


def definition(old):
    return _first_definition(old) if old.api == "v1beta1" else _definition(old)


def _first_definition(old):
    """As the operators of 2021 wrote them: without a schema, and so with `preserveUnknownFields: true`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": old.name},
        "spec": {
            "group": old.group,
            "version": old.versions[-1],
            "names": {"kind": old.kind, "plural": old.plural, "singular": old.kind.lower()},
            "scope": "Namespaced",
            "subresources": {"status": {}},
        },
    }


def _definition(old):
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
        self.kubeconfig = str(plane.kubeconfig)
        self._command = [stock.kubectl(), "--kubeconfig", self.kubeconfig]

    def __call__(self, *arguments, send=None):
        text = json.dumps(send) if send is not None else None
        done = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments):
        return json.loads(self("get", *arguments, "-o", "json"))

    def first_event(self, **fields):
        """Once there is one of which these fields are true."""
        selector = ",".join(f"{name}={value}" for name, value in fields.items())
        shown = ["--field-selector", selector, "-o", "jsonpath={.message}{'\\n'}"]
        command = [*self._command, "get", "events", "--watch", *shown]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            said = watch.stdout.readline()
            watch.kill()
        return said

    def write_status(self, old, job):
        place = f"/apis/{old.group}/{old.versions[-1]}/namespaces/default/{old.plural}/{job['metadata']['name']}/status"
        return json.loads(self("replace", "--raw", place, "-f", "-", send=job))


def listed(items):
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture(scope="module")
def taken_over():
    """A server with jobs of other operators' kinds, and our CRDs applied over theirs."""
    with control_plane() as plane:
        kubectl = Kubectl(plane)
        kubectl("create", "-f", "-", send=listed(map(definition, OLD.values())))
        names = [f"crd/{old.name}" for old in OLD.values()]
        kubectl("wait", "--for=condition=Established", f"--timeout={PATIENCE:g}s", *names)
        kubectl("create", "-f", "-", send=listed(old.job("old") for old in OLD.values()))
        kubectl("create", "-f", "-", send=listed(TOLD.job(named(said)) for said in WRITTEN))
        kubectl("create", "-f", "-", send=FORBIDDEN)
        for said, status in WRITTEN.items():
            kubectl.write_status(TOLD, {**kubectl.get(TOLD.name, named(said)), "status": status})
        ours = listed(crds(frameworks.BUILT_IN))
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", send=ours)
        kubectl("wait", "--for=condition=Established", f"--timeout={PATIENCE:g}s", *names)
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


@pytest.mark.parametrize("name", [name for name, old in OLD.items() if old.api == "v1beta1"])
def test_a_definition_that_kept_all_fields_is_replaced_by_one_with_defaults(taken_over, name):
    old = OLD[name]

    found = taken_over.get(f"crd/{old.name}")["spec"]
    taken_over("create", "-f", "-", send={**old.job("defaulted"), "spec": {**old.spec, "runPolicy": {}}})
    stored = taken_over.get(f"{old.plural}.{old.versions[-1]}.{old.group}", "defaulted")["spec"]

    assert not found.get("preserveUnknownFields")
    assert stored["runPolicy"]["suspend"] is False


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
def test_a_job_is_edited_and_deleted_as_before(taken_over, old):
    taken_over("create", "-f", "-", send=old.job("other"))
    name = f"{old.plural}.{old.versions[-1]}.{old.group}"

    taken_over("patch", name, "other", "--type=merge", "-p", '{"spec": {"madeUp": {"more": 1}}}')
    edited = taken_over.get(name, "other")["spec"]
    taken_over("delete", name, "other", "--wait=false")

    assert edited["madeUp"] == {**old.spec["madeUp"], "more": 1}


@pytest.mark.parametrize("said", WRITTEN)
def test_a_status_that_another_operator_left_can_be_read_and_written_on(taken_over, said):
    job = taken_over.get(TOLD.name, named(said))
    held = status_of(job["status"])

    told = render(with_condition(held, "Failed", True, "JobFailed", "by us", NOW))
    written = taken_over.write_status(TOLD, {**job, "status": told})["status"]

    assert held.is_true("Succeeded")
    assert [condition["type"] for condition in written["conditions"]] == ["Succeeded", "Failed"]


@contextmanager
def operating(kubectl):
    flags = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    command = [sys.executable, "-m", "trainmaster", "operator", "--kubeconfig", kubectl.kubeconfig, *flags]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as operator:
        try:
            yield
        finally:
            operator.send_signal(signal.SIGTERM)


def test_of_a_job_that_our_definition_forbids_its_user_is_told_and_once_corrected_it_goes_on(taken_over):
    with operating(taken_over):
        told = taken_over.first_event(reason="FailedUpdateStatus", **{"involvedObject.name": "forbidden"})
        correction = json.dumps({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 60}}})
        taken_over("patch", TOLD.name, "forbidden", "--type=merge", "-p", correction)
        taken_over("wait", "--for=condition=Created", f"--timeout={PATIENCE:g}s", TOLD.name, "forbidden")

    assert "spec.runPolicy.ttlSecondsAfterFinished" in told
    assert "until that field is corrected" in told


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
