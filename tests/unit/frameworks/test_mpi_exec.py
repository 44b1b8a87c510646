"""MPIJob v1: ranks are started by `kubectl exec`. What lies in /etc/mpi, who may do what, and what pods look like."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster.engine.actions import Create, Patch
from trainmaster.engine.pods import pod_of
from trainmaster.objects.meta import FiledObject, Json
from trainmaster.objects.resource import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from trainmaster.testing.scene import Scene, a_job, body, created, deleted

HYDRA = {
    "I_MPI_HYDRA_BOOTSTRAP": "rsh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile.hydra",
    "I_MPI_HYDRA_BRANCH_COUNT": "2",
    "I_MPI_PERHOST": "1",
    "HYDRA_LAUNCHER": "rsh",
    "HYDRA_LAUNCHER_EXEC": "/etc/mpi/kubexec.sh",
    "HYDRA_HOST_FILE": "/etc/mpi/hostfile.hydra",
}
OPEN_MPI = {
    "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_plm_ssh_agent": "/etc/mpi/kubexec.sh",
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
}
FLAT = {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def mpi(workers: int | None = 2, launcher: Json | None = None, worker: Json | None = None, **spec: Any) -> Scene:
    """`launcher` and `worker` are what their first containers say beside name and image."""
    scene = a_job("MPIJob", **spec).role("Launcher", containers=[main(launcher)])
    return scene if workers is None else scene.role("Worker", workers, containers=[main(worker)])


def main(fields: Json | None = None) -> Json:
    return {"name": "main", "image": "example/train:1", **(fields or {})}


def files(scene: Scene) -> Json:
    data: Json = body(scene.plan(), "job-config", CONFIG_MAPS)["data"]
    return data


def pod(scene: Scene, slot: str) -> Json:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return pod_of(scene.reading.framework, member)


def container(scene: Scene, slot: str) -> Json:
    found: Json = pod(scene, slot)["spec"]["containers"][0]
    return found


def env(scene: Scene, slot: str = "launcher-0") -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(scene, slot).get("env", [])}


def gpus(resource: str, part: str = "limits") -> Json:
    return {"resources": {part: {resource: 1}}}


# Objects.


def test_a_new_job_gets_its_files_its_rights_and_its_workers() -> None:
    made = mpi(5).plan()

    assert [(action.resource.kind, action.name) for action in made.actions] == [
        ("ServiceAccount", "job-launcher"),
        ("ConfigMap", "job-config"),
        ("Role", "job-launcher"),
        ("RoleBinding", "job-launcher"),
        *(("Pod", f"job-worker-{index}") for index in range(5)),
    ]


def test_there_are_no_services_because_ranks_are_reached_through_the_api_server() -> None:
    assert created(mpi().all("Running", ready=True).plan(), SERVICES) == []


def test_objects_bear_the_name_of_the_job_and_belong_to_it() -> None:
    made = mpi().plan()

    for name, resource in (("job-config", CONFIG_MAPS), ("job-launcher", ROLES), ("job-launcher", ROLE_BINDINGS)):
        metadata = body(made, name, resource)["metadata"]
        assert metadata["labels"]["app"] == "job"
        assert [owner["name"] for owner in metadata["ownerReferences"]] == ["job"]


# The files.


@pytest.mark.parametrize(
    ("scene", "lines"),
    [
        pytest.param(mpi(2), ["job-worker-0 slots=1", "job-worker-1 slots=1"], id="one slot"),
        pytest.param(mpi(1, slotsPerWorker=8), ["job-worker-0 slots=8"], id="eight slots"),
        pytest.param(mpi(0), [], id="no workers"),
        pytest.param(mpi(None), [], id="no worker section"),
        pytest.param(
            mpi(1, gpus("nvidia.com/gpu"), slotsPerWorker=2),
            ["job-launcher slots=2", "job-worker-0 slots=2"],
            id="a launcher with GPUs takes ranks too",
        ),
    ],
)
def test_the_hostfile_lists_every_worker_whether_it_runs_or_not(scene: Scene, lines: list[str]) -> None:
    assert files(scene)["hostfile"] == "".join(f"{line}\n" for line in lines)


def test_workers_are_listed_by_number_not_by_spelling() -> None:
    lines = files(mpi(11))["hostfile"].splitlines()

    assert lines[9:] == ["job-worker-9 slots=1", "job-worker-10 slots=1"]


def test_a_second_hostfile_speaks_hydras_notation() -> None:
    assert files(mpi(2, slotsPerWorker=3))["hostfile.hydra"] == "job-worker-0:3\njob-worker-1:3\n"


@pytest.mark.parametrize(
    ("resource", "part", "is_gpu"),
    [
        ("nvidia.com/gpu", "limits", True),
        ("vendor-domain/gpu", "limits", True),
        ("vendor-domain/gpu-mem", "limits", True),
        ("vendor-domain/resourcetype", "limits", False),
        ("cpu", "limits", False),
        ("nvidia.com/gpu", "requests", False),
    ],
)
def test_what_counts_as_a_gpu_of_the_launcher(resource: str, part: str, is_gpu: bool) -> None:
    scene = mpi(1, gpus(resource, part))

    assert files(scene)["hostfile"].startswith("job-launcher ") is is_gpu
    assert (NO_GPU.items() <= env(scene).items()) is not is_gpu


def run(script: str, tmp_path: Path, *arguments: str) -> str:
    """What the kubectl in its place is called with, each argument in angle brackets."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\nexit 7\n')
    kubectl.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/opt/kube", str(tmp_path)), "kubexec.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert (done.returncode, done.stderr) == (7, ""), "kubectl's exit code, and not a word of its own"
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (["w-0", "orted", "-mca", "x"], "<exec><w-0><--container><main><--><{sh}><-c><orted -mca x>"),
        (["w-0", 'a="b c"; echo $a'], '<exec><w-0><--container><main><--><{sh}><-c><a="b c"; echo $a>'),
        (["-x", "-q", "w-0", "proxy", "-x"], "<exec><w-0><--container><main><--><{sh}><-c><proxy -x>"),
        (["w-0"], "<exec><w-0><--container><main><--><{sh}><-c><>"),
    ],
    ids=["words", "one text with quotes", "flags of ssh before the host", "no command"],
)
def test_the_remote_shell_runs_the_words_on_the_pod(arguments: list[str], called: str, tmp_path: Path) -> None:
    script = files(mpi())["kubexec.sh"]

    assert run(script, tmp_path, *arguments) == called.format(sh="/bin/sh")


@pytest.mark.parametrize(("chosen", "entered"), [({}, "main"), ({"mainContainer": "second"}, "second")])
def test_the_remote_shell_enters_the_main_container_or_the_first(chosen: Json, entered: str, tmp_path: Path) -> None:
    containers = [main(), {"name": "second", "image": "x"}]
    scene = a_job("MPIJob", **chosen).role("Launcher").role("Worker", containers=containers)

    called = run(files(scene)["kubexec.sh"], tmp_path, "w", "date")

    assert called == f"<exec><w><--container><{entered}><--></bin/sh><-c><date>"


@pytest.mark.parametrize(
    ("containers", "mounts"),
    [
        pytest.param([main(), {"name": "train"}], [["mpi-job-config"], ["mpi-job-config"]], id="second"),
        pytest.param([{"name": "train"}, main()], [["mpi-job-config"], []], id="first"),
        pytest.param(
            [main(), {"name": "train", "volumeMounts": [{"name": "own", "mountPath": "/etc/mpi/"}]}],
            [["mpi-job-config"], ["own"]],
            id="second, where the user has put something",
        ),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_open_mpi_finds_the_remote_shell_in_the_main_container_of_every_worker(
    version: str, containers: list[Json], mounts: list[list[str]]
) -> None:
    declared = [{"image": "x", **container} for container in containers]
    scene = a_job("MPIJob", version=version, mainContainer="train").role("Launcher").role("Worker", containers=declared)

    worker = pod(scene, "worker-0")

    found = [c.get("volumeMounts", []) for c in worker["spec"]["containers"]]
    assert [[mount["name"] for mount in of_one] for of_one in found] == mounts
    assert [volume["name"] for volume in worker["spec"]["volumes"]] == ["mpi-job-config"]


def test_the_remote_shell_does_not_trace_itself_into_the_jobs_log() -> None:
    script = files(mpi())["kubexec.sh"]

    assert script.startswith("#!/bin/sh\n")
    assert "set -x" not in script


# Rights.


STRANGER = "stranger"


def rules(scene: Scene) -> list[Json]:
    """Of the launcher's Role, once the next plan is carried out."""
    held = scene.others.get(("Role", "job-launcher"))
    stands = held.part("rules") if isinstance(held, FiledObject) else None
    writes = [a for a in scene.plan().actions if isinstance(a, Create | Patch) and a.resource == ROLES]
    found: list[Json] = writes[0].body["rules"] if writes else stands or []
    return found


def entered(scene: Scene) -> list[str]:
    """The pods into which the launcher may go then. A rule without names would mean every pod."""
    (names,) = {tuple(rule["resourceNames"]) for rule in rules(scene)} or {()}
    return list(names)


def test_the_launcher_may_enter_the_jobs_own_workers_and_nothing_else() -> None:
    workers = ["job-worker-0", "job-worker-1"]
    assert rules(mpi(2).settled()) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": workers},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": workers},
    ]


@pytest.mark.parametrize("workers", [0, None])
def test_without_workers_there_is_no_right_at_all(workers: int | None) -> None:
    assert body(mpi(workers).plan(), "job-launcher", ROLES)["rules"] == []


each_version = pytest.mark.parametrize("version", ["v1", "v1alpha2"])


def versioned(version: str) -> Scene:
    return a_job("MPIJob", version=version).role("Launcher").role("Worker", 2)


@each_version
def test_before_a_worker_is_there_its_name_gives_no_right(version: str) -> None:
    made = versioned(version).plan()

    assert body(made, "job-launcher", ROLES)["rules"] == []
    assert body(made, "job-worker-1")


@each_version
@pytest.mark.parametrize("owner", [STRANGER, ""])
def test_anothers_pod_with_the_name_of_a_worker_is_not_to_be_entered(version: str, owner: str) -> None:
    scene = versioned(version).pod("Worker", 0).pod("Worker", 1, owner=owner)

    assert entered(scene) == ["job-worker-0"]


@each_version
def test_a_worker_that_another_pod_has_replaced_is_not_to_be_entered(version: str) -> None:
    scene = versioned(version).all("Running", "Worker", ready=True).settled()
    assert entered(scene) == ["job-worker-0", "job-worker-1"]

    assert entered(scene.pod("Worker", 1, owner=STRANGER)) == ["job-worker-0"]


@pytest.mark.parametrize(
    "leaving",
    [
        pytest.param({"terminating": True}, id="being deleted"),
        pytest.param({"phase": "Failed", "exit_code": 1}, id="failed"),
        pytest.param({"phase": "Succeeded", "exit_code": 0}, id="succeeded"),
    ],
)
def test_a_worker_whose_name_may_be_free_in_a_moment_is_not_to_be_entered(leaving: Json) -> None:
    scene = a_job("MPIJob").role("Launcher").role("Worker", 2, "OnFailure").all("Running", "Worker", ready=True)
    scene = scene.settled().pod("Launcher", 0)

    assert entered(scene.pod("Worker", 1, **leaving)) == ["job-worker-0"]


def test_all_workers_may_be_entered_before_the_launcher_is_made() -> None:
    scene = mpi(3).settled()

    assert entered(scene) == ["job-worker-0", "job-worker-1", "job-worker-2"]
    assert "job-launcher" not in scene.pods


@each_version
def test_in_the_pass_that_makes_the_launcher_its_rights_are_complete(version: str) -> None:
    scene = versioned(version).after().all("Running", "Worker", ready=True)

    made = scene.plan()

    assert created(made) == ["job-launcher"]
    assert [a.name for a in made.actions if isinstance(a, Patch) and a.resource == ROLES] == ["job-launcher"]
    assert entered(scene) == ["job-worker-0", "job-worker-1"]


def test_workers_made_together_cost_one_write_of_the_role() -> None:
    scene, writes = mpi(40), 0
    for _ in range(4):
        made = scene.plan()
        writes += sum(action.resource == ROLES for action in made.actions)
        scene = scene.after(made)

    assert writes == 2  # made with the job, mended when its workers are there


def test_rights_end_in_the_very_pass_that_suspends_the_job() -> None:
    scene = mpi(2).all("Running", "Worker", ready=True).settled().policy(suspend=True)

    assert deleted(scene.plan()) == ["job-worker-0", "job-worker-1", "job-launcher"]
    assert entered(scene) == []
    assert scene.settled().plan().actions == ()


@pytest.mark.parametrize(
    ("policy", "left"),
    [("Running", []), ("All", []), ("None", ["job-worker-0", "job-worker-1"])],
)
def test_rights_end_in_the_very_pass_that_ends_the_workers(policy: str, left: list[str]) -> None:
    scene = mpi(2, cleanPodPolicy=policy).all("Running", "Worker", ready=True).settled()

    ended = scene.pod("Launcher", 0, "Succeeded", exit_code=0)

    assert entered(ended) == left
    assert ended.settled().plan().actions == ()


def test_rights_to_a_worker_that_was_kept_end_with_it() -> None:
    scene = mpi(2, cleanPodPolicy="None").all("Running", "Worker", ready=True).settled()
    ended = scene.pod("Launcher", 0, "Succeeded", exit_code=0).settled()

    assert entered(ended.gone("Worker", 0)) == ["job-worker-1"]
    assert entered(ended.pod("Worker", 0, owner=STRANGER)) == ["job-worker-1"]


@pytest.mark.parametrize("image", ["mpioperator/kubectl-delivery:0.3.0", "registry.example/mirror/kubectl-delivery:1"])
def test_an_image_that_may_wait_by_itself_may_watch_pods(image: str) -> None:
    scene = mpi().having(kubectl_delivery_image=image)

    assert rules(scene)[-1] == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}


def test_rights_follow_the_number_of_workers() -> None:
    scene = mpi(1).settled().scaled("Worker", 2)

    assert entered(scene) == ["job-worker-0"]
    assert entered(scene.after()) == ["job-worker-0", "job-worker-1"]
    assert entered(scene.settled().scaled("Worker", 1)) == ["job-worker-0"]


def test_the_account_of_the_launcher_is_bound_to_its_role() -> None:
    scene = mpi()
    binding = body(scene.plan(), "job-launcher", ROLE_BINDINGS)

    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "job-launcher"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "job-launcher", "namespace": "default"}]
    assert pod(scene, "launcher-0")["spec"]["serviceAccountName"] == "job-launcher"


def test_an_account_that_the_user_names_is_used_and_left_to_the_user() -> None:
    scene = a_job("MPIJob").role("Launcher", serviceAccountName="mine").role("Worker")
    made = scene.plan()

    assert created(made, SERVICE_ACCOUNTS) == []
    assert body(made, "job-launcher", ROLE_BINDINGS)["subjects"][0]["name"] == "mine"
    assert pod(scene, "launcher-0")["spec"]["serviceAccountName"] == "mine"


# The launcher's pod.


def test_the_launcher_knows_its_hosts_and_how_to_reach_them() -> None:
    assert env(mpi()) == {**OPEN_MPI, **NO_GPU, **AS_ROOT, **FLAT, **HYDRA}


def test_a_launcher_with_gpus_keeps_them() -> None:
    assert not NO_GPU.keys() & env(mpi(1, gpus("nvidia.com/gpu"))).keys()


@pytest.mark.parametrize(("launcher", "hosts"), [({}, 100), ({"nvidia.com/gpu": 1}, 101)], ids=["no rank", "ranks"])
def test_the_launcher_reaches_all_hosts_itself_however_many_there_are(launcher: Json, hosts: int) -> None:
    found = env(mpi(100, {"resources": {"limits": launcher}}))

    assert found.items() >= FLAT.items()
    assert found["I_MPI_HYDRA_BRANCH_COUNT"] == str(hosts)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"I_MPI_HYDRA_BOOTSTRAP": "ssh"},
        {"I_MPI_HYDRA_BOOTSTRAP_EXEC": "/bin/x"},
        {"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/bin/x"},
        {"OMPI_ALLOW_RUN_AS_ROOT": "0"},
        {"OMPI_MCA_plm_rsh_no_tree_spawn": "0"},
    ],
    ids=["neither", "the one", "the other", "both", "not as root", "as a tree"],
)
def test_what_the_user_tells_mpi_stands(given: dict[str, str]) -> None:
    scene = mpi(2, {"env": [{"name": name, "value": value} for name, value in given.items()]})

    entries = container(scene, "launcher-0")["env"]
    names = [entry["name"] for entry in entries]

    assert env(scene).items() >= {**HYDRA, **FLAT, **AS_ROOT, **given}.items()
    assert len(names) == len(set(names))


def test_kubectl_is_brought_by_an_init_container_after_the_users_own() -> None:
    fetch = {"name": "fetch", "image": "example/fetch:1"}
    scene = a_job("MPIJob").role("Launcher", initContainers=[fetch]).role("Worker")
    scene = scene.having(kubectl_delivery_image="example/kubectl:1")

    first, delivery = pod(scene, "launcher-0")["spec"]["initContainers"]

    amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    assert first == fetch
    assert delivery == {
        "name": "kubectl-delivery",
        "image": "example/kubectl:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": "default"}],
        "volumeMounts": [
            {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"},
            {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
        ],
        "resources": {"requests": amounts, "limits": amounts},
    }


def test_the_files_are_mounted_with_their_modes() -> None:
    launcher = pod(mpi(), "launcher-0")["spec"]

    volumes = {volume["name"]: volume for volume in launcher["volumes"]}
    config = volumes["mpi-job-config"]["configMap"]
    assert volumes["mpi-job-kubectl"] == {"name": "mpi-job-kubectl", "emptyDir": {}}
    assert config["name"] == "job-config"
    assert {item["key"]: item["mode"] for item in config["items"]} == {
        "kubexec.sh": 0o555,
        "hostfile": 0o444,
        "hostfile.hydra": 0o444,
        "discover_hosts.sh": 0o555,
    }
    assert all(item["key"] == item["path"] for item in config["items"])


@pytest.mark.parametrize("slot", ["launcher-0", "worker-0"])
def test_only_the_first_container_is_touched_and_what_it_had_comes_first(slot: str) -> None:
    mount, volume = {"name": "data", "mountPath": "/data"}, {"name": "data", "emptyDir": {}}
    first = main({"volumeMounts": [mount], "env": [{"name": "A", "value": "1"}]})
    side = {"name": "side", "image": "example/side:1"}
    scene = a_job("MPIJob")
    for role in ("Launcher", "Worker"):
        scene = scene.role(role, containers=[first, side], volumes=[volume])

    spec = pod(scene, slot)["spec"]

    assert spec["containers"][1] == side
    assert spec["containers"][0]["volumeMounts"][0] == mount
    assert spec["containers"][0]["env"][0] == {"name": "A", "value": "1"}
    assert spec["volumes"][0] == volume


# The workers' pods.


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ({}, (["sleep"], ["365d"])),
        ({"args": ["x"]}, (["sleep"], ["365d"])),
        ({"command": [""]}, (["sleep"], ["365d"])),
        ({"command": ["serve"]}, (["serve"], None)),
        ({"command": ["serve"], "args": ["x"]}, (["serve"], ["x"])),
    ],
    ids=["nothing", "only arguments", "an empty command", "a command", "both"],
)
def test_a_worker_without_a_command_sleeps(given: Json, effective: tuple[list[str], list[str] | None]) -> None:
    worker = container(mpi(worker=given), "worker-0")

    assert (worker["command"], worker.get("args")) == effective


def test_workers_have_the_remote_shell_too_because_open_mpi_looks_for_it_everywhere() -> None:
    spec = pod(mpi(), "worker-1")["spec"]

    (volume,) = spec["volumes"]
    assert volume["configMap"]["items"] == [{"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    assert "env" not in spec["containers"][0]
    assert "serviceAccountName" not in spec
