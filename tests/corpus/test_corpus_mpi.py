"""Other people's MPIJobs, of every version: each plans, and what is planned keeps the rules of its version.

They are read from the directory that CORPUS names and are not part of this project. The rules are written down here a
second time, from the manifest alone and without the code under test, so that the two can disagree.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
import yaml

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import plan

SEEDS = ("000-07", "000-08", "002-01")
NOTATIONS = {None: "{} slots={}", "OpenMPI": "{} slots={}"}
"""Of hosts and slots; every other implementation is hydra's."""


def corpus():
    named = os.environ.get("CORPUS", "")
    root = Path(named)
    if not named or not (root / "mpi").is_dir():
        pytest.fail(f"CORPUS={named!r} names no corpus: a directory with mpi/ and seeds/ is needed", pytrace=False)
    return root


def documents():
    root = Path(os.environ.get("CORPUS", ""))
    for path in sorted([*root.glob("mpi/*.yaml"), *root.glob("seeds/*.yaml")]):
        for body in yaml.safe_load_all(path.read_text()):
            if body and body.get("kind") == "MPIJob":
                yield pytest.param(body, id=path.stem)


def of(*versions):
    chosen = [param for param in documents() if version_of(param.values[0]) in versions]
    return pytest.mark.parametrize("body", chosen)


def version_of(body):
    return body["apiVersion"].removeprefix("kubeflow.org/")


def read(body):
    found = frameworks.serving(body["apiVersion"], "MPIJob")
    assert found is not None
    framework, resource = found
    placed = {**body, "metadata": {"namespace": "default", "uid": "u", **body["metadata"]}}
    return reading.read(framework, placed, resource=resource)


def planned(body):
    """Everything that the job will have, by kind and name; and the first plan."""
    done = read(body)
    assert not done.problems, [str(problem) for problem in done.problems]
    assert done.job is not None
    observed = Observed(done.framework, done.job, advice=done.advice)
    objects = {(a.resource.kind, a.name): a.body for a in blueprint(observed)}
    return objects, plan(observed, 0.0)


def workers(body):
    section = body["spec"]["mpiReplicaSpecs"].get("Worker") or {}
    return [f"{body['metadata']['name']}-worker-{i}" for i in range(section.get("replicas", 0))]


def template(body, role):
    return body["spec"]["mpiReplicaSpecs"][role]["template"]


def pods(body, objects):
    """Role and pod, or pod template, of every replica."""
    name = f"{body['metadata']['name']}-launcher"
    launcher = objects.get(("Pod", name)) or objects["Job", name]["spec"]["template"]
    yield "Launcher", launcher
    yield from (("Worker", objects["Pod", worker]) for worker in workers(body))


def env_of(pod):
    return {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0].get("env", ())}


def test_the_corpus_is_there():
    corpus()

    counted = Counter(version_of(param.values[0]) for param in documents())
    assert set(counted) == {"v1alpha1", "v1alpha2", "v1", "v2beta1"}
    assert sum(counted.values()) >= 18


@of("v1alpha1")
def test_the_retired_version_is_refused_and_its_replacement_named(body):
    (problem,) = read(body).problems

    assert problem.path == "apiVersion"
    assert "v2beta1" in str(problem)
    assert "mpiReplicaSpecs" in str(problem)


@of("v1alpha2", "v1", "v2beta1")
def test_the_first_plan_makes_the_workers_and_warns_of_nothing(body):
    _, made = planned(body)

    assert [a.name for a in made.actions if a.resource.kind == "Pod"] == workers(body)
    assert [event.message for event in made.events if event.type == "Warning"] == []


@of("v1alpha2", "v1")
def test_kubectl_jobs_have_files_rights_and_a_launcher_that_is_a_pod(body):
    objects, made = planned(body)

    name = body["metadata"]["name"]
    assert set(objects) == {
        ("ConfigMap", f"{name}-config"),
        ("ServiceAccount", f"{name}-launcher"),
        ("Role", f"{name}-launcher"),
        ("RoleBinding", f"{name}-launcher"),
        ("Pod", f"{name}-launcher"),
        *(("Pod", worker) for worker in workers(body)),
    }
    assert f"{name}-launcher" not in [a.name for a in made.actions if a.resource.kind == "Pod"]
    assert all(rule["resourceNames"] == workers(body) for rule in objects["Role", f"{name}-launcher"]["rules"])


@of("v2beta1")
def test_ssh_jobs_have_a_service_files_keys_and_a_launcher_that_is_a_job(body):
    objects, made = planned(body)

    name = body["metadata"]["name"]
    assert set(objects) == {
        ("Service", name),
        ("ConfigMap", f"{name}-config"),
        ("Secret", f"{name}-ssh"),
        ("Job", f"{name}-launcher"),
        *(("Pod", worker) for worker in workers(body)),
    }
    assert {(a.resource.kind, a.name) for a in made.actions} == set(objects)


@of("v1alpha2", "v1", "v2beta1")
def test_the_hostfile_lists_every_worker_with_its_slots(body):
    objects, _ = planned(body)

    name, spec = body["metadata"]["name"], body["spec"]
    form = NOTATIONS.get(spec.get("mpiDistribution", spec.get("mpiImplementation")), "{}:{}")
    suffix = f".{name}.default.svc" if version_of(body) == "v2beta1" else ""
    lines = [form.format(worker + suffix, spec.get("slotsPerWorker", 1)) for worker in workers(body)]
    assert objects["ConfigMap", f"{name}-config"]["data"]["hostfile"].splitlines() == lines


@of("v1alpha2", "v1", "v2beta1")
def test_what_the_user_wrote_reaches_the_pods(body):
    objects, _ = planned(body)

    for role, pod in pods(body, objects):
        written, container = template(body, role)["spec"]["containers"][0], pod["spec"]["containers"][0]
        command = written.get("command") if written.get("command") != [""] else None
        assert container["image"] == written["image"]
        assert container.get("resources") == written.get("resources")
        assert container.get("securityContext") == written.get("securityContext")
        assert role == "Worker" or (container.get("command"), container.get("args")) == (command, written.get("args"))
        assert env_of(pod).items() >= {e["name"]: e.get("value") for e in written.get("env", ())}.items()
        assert pod["spec"]["volumes"][: len(template(body, role)["spec"].get("volumes", ()))] == (
            template(body, role)["spec"].get("volumes", [])
        )


@of("v1alpha2", "v1", "v2beta1")
def test_a_worker_without_a_command_waits_for_ranks(body):
    objects, _ = planned(body)

    written = template(body, "Worker")["spec"]["containers"][0]
    given = (written.get("command") if written.get("command") != [""] else None), written.get("args")
    if version_of(body) == "v2beta1":
        expected = given if any(given) else (["/usr/sbin/sshd", "-De"], None)
    else:
        expected = given if given[0] else (["sleep"], ["365d"])
    for worker in workers(body):
        container = objects["Pod", worker]["spec"]["containers"][0]
        assert (container.get("command"), container.get("args")) == expected


@of("v1alpha2", "v1")
def test_horovod_and_mpirun_find_the_agent(body):
    objects, _ = planned(body)

    for role, pod in pods(body, objects):
        mounts = {m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"]}
        assert "/etc/mpi" in mounts
        if role == "Launcher":
            assert env_of(pod)["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
            assert [c["name"] for c in pod["spec"]["initContainers"]][-1] == "kubectl-delivery"
            assert "/opt/kube" in mounts


@of("v2beta1")
def test_launcher_and_workers_share_keys_and_find_each_other(body):
    objects, _ = planned(body)

    name, path = body["metadata"]["name"], body["spec"].get("sshAuthMountPath", "/root/.ssh")
    selector = objects["Service", name]["spec"]["selector"]
    for _, pod in pods(body, objects):
        assert {"name": "ssh-auth", "mountPath": path} in pod["spec"]["containers"][0]["volumeMounts"]
        assert pod["spec"]["subdomain"] == name
        assert selector.items() <= pod["metadata"]["labels"].items()


def seed(number):
    (path,) = corpus().glob(f"seeds/{number}-*.yaml")
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("number", SEEDS)
def test_the_seeds_are_among_them(number):
    assert seed(number)["kind"] == "MPIJob"


def test_seed_000_08_has_exactly_the_documented_hostfile():
    objects, _ = planned(seed("000-08"))

    assert objects["ConfigMap", "tensorflow-mnist-config"]["data"]["hostfile"] == (
        "tensorflow-mnist-worker-0 slots=1\ntensorflow-mnist-worker-1 slots=1\n"
    )


@pytest.mark.parametrize("number", ["000-07", "000-08"])
def test_seeds_of_v1_clean_up_what_still_runs(number):
    done = read(seed(number))

    assert done.job is not None
    assert done.job.policy.clean_pod_policy == "Running"


def test_seed_002_01_has_workers_that_sleep_because_its_command_is_empty():
    objects, _ = planned(seed("002-01"))

    for index in range(2):
        container = objects["Pod", f"tensorflow-mnist-worker-{index}"]["spec"]["containers"][0]
        assert (container["command"], container["args"]) == (["sleep"], ["365d"])
