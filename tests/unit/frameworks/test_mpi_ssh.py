"""MPIJob v2beta1: ranks are started by ssh. Keys, names, hosts, and what pods look like."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainmaster.engine.actions import Create, Patch
from trainmaster.engine.delegates import job_of
from trainmaster.engine.pods import pod_of
from trainmaster.frameworks.mpi_ssh import key_pair
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, JOBS, SECRETS, SERVICES
from trainmaster.testing.scene import Scene, a_job, body

PREFIX = "training.kubeflow.org/"
NO_GPU = [("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", "")]
AS_ROOT = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]
RETRIES = "-o ConnectionAttempts=10"
ENVIRONMENTS = {
    "OpenMPI": [
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("OMPI_MCA_plm_rsh_args", RETRIES),
        ("OMPI_MCA_orte_set_default_slots", "5"),
        ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"),
        ("PRTE_MCA_plm_ssh_args", RETRIES),
        ("PRTE_MCA_prte_set_default_slots", "5"),
    ],
    "Intel": [
        ("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", RETRIES),
        ("I_MPI_PERHOST", "5"),
    ],
    "MPICH": [
        ("HYDRA_HOST_FILE", "/etc/mpi/hostfile"),
        ("HYDRA_LAUNCH_EXTRA_ARGS", RETRIES),
        ("HYDRA_LAUNCHER_EXTRA_ARGS", RETRIES),
    ],
}


def mpi(workers: int | None = 2, template: Json | None = None, **spec: Any) -> Scene:
    """`template` goes into both pod templates."""
    scene = a_job("MPIJob", version="v2beta1", **spec).role("Launcher", **(template or {}))
    return scene if workers is None else scene.role("Worker", workers, **(template or {}))


def pod(scene: Scene, slot: str) -> Json:
    member = next(member for member in scene.job.members() if member.slot == slot)
    if slot.startswith("launcher"):
        found: Json = job_of(scene.reading.framework, member)["spec"]["template"]
        return found
    return pod_of(scene.reading.framework, member)


def env(scene: Scene, slot: str) -> list[tuple[str, str]]:
    return [(entry["name"], entry["value"]) for entry in pod(scene, slot)["spec"]["containers"][0]["env"]]


def files(scene: Scene) -> Json:
    data: Json = body(scene.plan(), "job-config", CONFIG_MAPS)["data"]
    return data


# Objects.


@pytest.mark.parametrize("implementation", ENVIRONMENTS)
def test_a_new_job_gets_its_service_files_keys_workers_and_launcher(implementation: str) -> None:
    made = mpi(5, mpiImplementation=implementation).plan()

    assert [(action.resource.kind, action.name) for action in made.actions] == [
        ("Service", "job"),
        ("ConfigMap", "job-config"),
        ("Secret", "job-ssh"),
        *(("Pod", f"job-worker-{index}") for index in range(5)),
        ("Job", "job-launcher"),
    ]
    assert body(made, "job-config", CONFIG_MAPS)["data"]["discover_hosts.sh"] == "#!/bin/sh\n"


@pytest.mark.parametrize("is_worker_too", [False, True])
def test_one_headless_service_covers_launcher_and_workers(is_worker_too: bool) -> None:
    scene = mpi(runLauncherAsWorker=is_worker_too)

    spec = dict(body(scene.plan(), "job", SERVICES)["spec"])

    selector = spec.pop("selector")
    assert spec == {"clusterIP": "None", "publishNotReadyAddresses": is_worker_too}
    for slot in ("launcher-0", "worker-1"):
        assert pod(scene, slot)["metadata"]["labels"].items() >= selector.items()


# Keys.


def test_keys_are_made_when_the_secret_is_written_and_never_stand_in_a_plan() -> None:
    (create,) = [a for a in mpi().plan().actions if isinstance(a, Create) and a.resource == SECRETS]

    assert create.body["type"] == "kubernetes.io/ssh-auth"
    assert "data" not in create.body
    assert create.secret is key_pair


def test_a_key_pair_is_what_ssh_reads() -> None:
    data = {name: base64.b64decode(text) for name, text in key_pair()["data"].items()}

    key = serialization.load_pem_private_key(data["ssh-privatekey"], None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp521r1"
    assert data["ssh-privatekey"].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert data["ssh-publickey"] == public + b"\n"
    assert public.startswith(b"ecdsa-sha2-nistp521 ")


def test_every_pair_is_another() -> None:
    assert key_pair() != key_pair()


def test_a_living_job_never_gets_other_keys() -> None:
    scene = mpi().settled()

    changed = scene.scaled("Worker", 7).spec(sshAuthMountPath="/home/mpi/.ssh", mpiImplementation="Intel")

    assert [a for a in changed.plan().actions if a.resource == SECRETS] == []


@pytest.mark.parametrize("slot", ["launcher-0", "worker-0"])
@pytest.mark.parametrize(("path", "mode"), [(None, {"defaultMode": 0o600}), ("/home/mpiuser/.ssh", {})])
def test_keys_lie_where_ssh_looks_for_them(slot: str, path: str | None, mode: Json) -> None:
    spec = pod(mpi(sshAuthMountPath=path), slot)["spec"]

    secret = {
        "secretName": "job-ssh",
        "items": [
            {"key": "ssh-privatekey", "path": "id_rsa"},
            {"key": "ssh-publickey", "path": "id_rsa.pub"},
            {"key": "ssh-publickey", "path": "authorized_keys"},
        ],
        **mode,
    }
    assert spec["volumes"][0] == {"name": "ssh-auth", "secret": secret}
    assert spec["containers"][0]["volumeMounts"][0] == {"name": "ssh-auth", "mountPath": path or "/root/.ssh"}


# Hosts.


@pytest.mark.parametrize(
    ("scene", "lines"),
    [
        pytest.param(mpi(2), ["job-worker-{}.job.default.svc slots=1"], id="Open MPI"),
        pytest.param(mpi(2, slotsPerWorker=10), ["job-worker-{}.job.default.svc slots=10"], id="ten slots"),
        pytest.param(mpi(2, slotsPerWorker=0), ["job-worker-{}.job.default.svc slots=0"], id="no slots"),
        pytest.param(
            mpi(2, mpiImplementation="Intel", slotsPerWorker=3), ["job-worker-{}.job.default.svc:3"], id="Intel"
        ),
        pytest.param(mpi(2, mpiImplementation="MPICH"), ["job-worker-{}.job.default.svc:1"], id="MPICH"),
        pytest.param(
            mpi(2).having(cluster_domain="cluster.local"),
            ["job-worker-{}.job.default.svc.cluster.local slots=1"],
            id="cluster domain",
        ),
        pytest.param(
            mpi(2, runLauncherAsWorker=True),
            ["job-launcher.job.default.svc slots=1", "job-worker-{}.job.default.svc slots=1"],
            id="the launcher works too",
        ),
        pytest.param(
            mpi(2, runLauncherAsWorker=True, mpiImplementation="MPICH").having(cluster_domain="x.y"),
            ["job-launcher.job.default.svc.x.y:1", "job-worker-{}.job.default.svc.x.y:1"],
            id="the launcher works too, under MPICH and a domain",
        ),
        pytest.param(mpi(None), [], id="no workers"),
        pytest.param(
            mpi(None, runLauncherAsWorker=True), ["job-launcher.job.default.svc slots=1"], id="the launcher alone"
        ),
    ],
)
def test_the_hostfile_lists_names_that_resolve(scene: Scene, lines: list[str]) -> None:
    expected = [line.format(i) for line in lines for i in range(2 if "{}" in line else 1)]

    assert files(scene)["hostfile"] == "".join(f"{line}\n" for line in expected)


@pytest.mark.parametrize(("slot", "name"), [("launcher-0", "job-launcher"), ("worker-1", "job-worker-1")])
def test_pods_answer_to_the_names_in_the_hostfile(slot: str, name: str) -> None:
    spec = pod(mpi(), slot)["spec"]

    assert (spec["hostname"], spec["subdomain"]) == (name, "job")


@pytest.mark.parametrize(("domain", "suffix"), [("", "cluster.local"), ("example.org", "example.org")])
def test_workers_find_the_launcher_by_its_bare_name_in_any_cluster_domain(domain: str, suffix: str) -> None:
    scene = mpi(template={"dnsConfig": {"searches": ["mine"], "nameservers": ["8.8.8.8"]}})

    config = pod(scene.having(cluster_domain=domain), "worker-0")["spec"]["dnsConfig"]

    assert config == {"nameservers": ["8.8.8.8"], "searches": ["mine", f"job.default.svc.{suffix}"]}
    assert pod(scene, "launcher-0")["spec"]["dnsConfig"]["searches"] == ["mine"]


@pytest.mark.parametrize("slot", ["launcher-0", "worker-0"])
def test_pods_on_the_hosts_network_still_ask_the_clusters_dns(slot: str) -> None:
    assert pod(mpi(template={"hostNetwork": True}), slot)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "dnsPolicy" not in pod(mpi(), slot)["spec"]


# Variables.


@pytest.mark.parametrize("implementation", ENVIRONMENTS)
def test_the_launcher_tells_its_mpi_where_the_hosts_are(implementation: str) -> None:
    scene = mpi(mpiImplementation=implementation, slotsPerWorker=5)

    assert env(scene, "launcher-0") == [
        ("K_MPI_JOB_ROLE", "launcher"),
        *ENVIRONMENTS[implementation],
        *NO_GPU,
        *(AS_ROOT if implementation == "OpenMPI" else []),
    ]
    assert env(scene, "worker-0") == [("K_MPI_JOB_ROLE", "worker")]


def test_a_launcher_that_works_too_keeps_its_gpus() -> None:
    assert not set(NO_GPU) & set(env(mpi(runLauncherAsWorker=True), "launcher-0"))


# Pods.


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ({}, (["/usr/sbin/sshd", "-De"], None)),
        ({"command": [""]}, (["/usr/sbin/sshd", "-De"], None)),
        ({"args": ["x"]}, (None, ["x"])),
        ({"command": ["serve"]}, (["serve"], None)),
        ({"command": ["serve"], "args": ["x"]}, (["serve"], ["x"])),
    ],
    ids=["nothing", "an empty command", "arguments", "a command", "both"],
)
def test_a_worker_with_neither_command_nor_arguments_serves_ssh(given: Json, effective: tuple[Any, Any]) -> None:
    worker = pod(mpi(template={"containers": [{"name": "m", "image": "i", **given}]}), "worker-0")
    launcher = pod(mpi(template={"containers": [{"name": "m", "image": "i", **given}]}), "launcher-0")

    container = worker["spec"]["containers"][0]
    assert (container.get("command"), container.get("args")) == effective
    assert "sshd" not in str(launcher)


def test_only_the_launcher_has_the_files() -> None:
    launcher, worker = (pod(mpi(), slot)["spec"] for slot in ("launcher-0", "worker-0"))

    assert [volume["name"] for volume in launcher["volumes"]] == ["ssh-auth", "mpi-job-config"]
    assert [volume["name"] for volume in worker["volumes"]] == ["ssh-auth"]
    assert launcher["volumes"][1]["configMap"] == {
        "name": "job-config",
        "items": [
            {"key": "hostfile", "path": "hostfile", "mode": 0o444},
            {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
        ],
    }


@pytest.mark.parametrize("slot", ["launcher-0", "worker-12"])
def test_only_the_first_container_is_touched_and_what_it_had_comes_first(slot: str) -> None:
    mount, volume = {"name": "data", "mountPath": "/data"}, {"name": "data", "emptyDir": {}}
    first = {"name": "m", "image": "i", "command": ["c"], "volumeMounts": [mount], "env": [{"name": "A", "value": "1"}]}
    side = {"name": "side", "image": "i"}
    scene = mpi(13, {"containers": [first, side], "volumes": [volume]}, mpiImplementation="Intel", slotsPerWorker=5)

    spec = pod(scene, slot)["spec"]

    assert spec["containers"][1] == side
    assert spec["containers"][0]["volumeMounts"][0] == mount
    assert env(scene, slot)[0] == ("A", "1")
    assert spec["volumes"][0] == volume


@pytest.mark.parametrize(("slot", "role"), [("launcher-0", "launcher"), ("worker-1", "worker")])
def test_pods_bear_the_labels_of_mpi_operator(slot: str, role: str) -> None:
    labels = pod(mpi(), slot)["metadata"]["labels"]

    assert labels == {
        PREFIX + "operator-name": "mpi-operator",
        PREFIX + "job-name": "job",
        PREFIX + "job-role": role,
        PREFIX + "replica-type": role,
        PREFIX + "replica-index": slot.rpartition("-")[2],
    }


def test_where_the_launcher_is_rank_0_workers_count_from_1_but_keep_their_names() -> None:
    worker = pod(mpi(runLauncherAsWorker=True), "worker-0")

    assert worker["metadata"]["labels"][PREFIX + "replica-index"] == "1"
    assert worker["metadata"]["name"] == worker["spec"]["hostname"] == "job-worker-0"


def test_autoscalers_select_the_pods_by_the_labels_they_bear() -> None:
    scene = mpi()

    selector = scene.plan().status.replica_statuses["Worker"].selector

    wanted = dict(term.split("=") for term in selector.split(","))
    assert pod(scene, "worker-0")["metadata"]["labels"].items() >= wanted.items()
    assert not pod(scene, "launcher-0")["metadata"]["labels"].items() >= wanted.items()


# Changes.


def test_files_follow_the_number_of_workers() -> None:
    scene = mpi(1).settled().scaled("Worker", 2)

    (patch,) = [a for a in scene.plan().actions if isinstance(a, Patch) and a.resource == CONFIG_MAPS]

    assert len(patch.body["data"]["hostfile"].splitlines()) == 2


def test_the_service_follows_the_spec() -> None:
    scene = mpi().settled().spec(runLauncherAsWorker=True)

    (patch,) = [a for a in scene.plan().actions if isinstance(a, Patch) and a.resource == SERVICES]

    assert patch.body["spec"]["publishNotReadyAddresses"] is True


def test_the_launchers_job_tells_its_limits_but_not_its_ttl() -> None:
    scene = mpi().policy(ttlSecondsAfterFinished=1, activeDeadlineSeconds=2, backoffLimit=3)

    spec = dict(body(scene.plan(), "job-launcher", JOBS)["spec"])

    del spec["template"]
    assert spec == {"activeDeadlineSeconds": 2, "backoffLimit": 3, "podReplacementPolicy": "Failed"}
