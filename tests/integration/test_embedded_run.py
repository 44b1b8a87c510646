"""The command line and its cluster as one process among others: what it answers, and what is left when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from tests.integration.bed import CONFIG, a_job, connected, container_of, processes, wait_for_end
from tests.integration.commands import said, started, trainmaster
from tests.machine import BOTH

from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

RING = Path(__file__).parents[2] / "examples" / "01-ring"
MOUNTS = Path("/proc/self/mountinfo")
KINDS = ("net", "mnt", "uts", "pid")


def held(name: str, gate: Path, restart: str = "OnFailure", *, replicas: Mapping[str, int]) -> str:
    volumes = [{"name": "gate", "hostPath": {"path": str(gate)}}]
    mounts = {"volumeMounts": [{"name": "gate", "mountPath": "/gate"}]}
    job = a_job(
        "JAXJob", name, "hold.py", restart=restart, pod={"volumes": volumes}, container=mounts, replicas=replicas
    )
    return yaml.safe_dump(job)


def script(code: str, restart: str = "Never") -> str:
    """A job of one rank that runs these lines."""
    command = {"command": ["python", "-c", code]}
    return yaml.safe_dump(a_job("JAXJob", "script", "", restart=restart, container=command, replicas={"Worker": 1}))


def descendants(pid: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += [int(child) for child in (task / "children").read_text().split()]
    return children + [found for child in children for found in descendants(child)]


def namespaces_of(pids: list[int]) -> set[str]:
    """Those that are not this process's own."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in pids for kind in KINDS} - {
        os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS
    }


def inhabited() -> set[str]:
    """The namespaces of all processes of this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for kind in KINDS:
                try:
                    found.add(os.readlink(entry / "ns" / kind))
                except OSError:
                    break
    return found


@contextmanager
def held_open(pids: list[int]) -> Iterator[None]:
    """The namespaces of these processes: while somebody holds one, no other gets its number."""
    with ExitStack() as stack:
        for pid in pids:
            for kind in KINDS:
                stack.callback(os.close, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY))
        yield


@contextmanager
def nothing_left(process: subprocess.Popen[str], sandbox: str) -> Iterator[None]:
    """Within, the command ends; after that, nothing of what it had started or set up is there any more."""
    family = descendants(process.pid)
    spaces = namespaces_of(family)
    mounts, links = MOUNTS.read_text(), set(os.listdir("/sys/class/net"))
    assert len(family) > 2
    assert any(space.startswith("net:") for space in spaces) == (sandbox == "namespaces")

    with held_open(family):
        yield

        wait_for_end(family)
        assert processes("held") == []
        assert not spaces & inhabited()
    assert MOUNTS.read_text() == mounts
    assert set(os.listdir("/sys/class/net")) == links


@pytest.mark.parametrize("sandbox", BOTH)
def test_run_trains_the_ring(sandbox):
    done = trainmaster("run", RING, "--sandbox", sandbox)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("final loss 0.000000 weights [3.0, -2.0, 0.5]") == 4
    assert "PyTorchJob ring: Succeeded after" in done.stdout


def test_run_shows_what_ranks_print_that_end_soon_after_the_job(tmp_path):
    wait = f"import os, time\nwhile not os.path.exists('{tmp_path}/begun'): time.sleep(0.1)"
    late = f"import time; open('{tmp_path}/begun', 'w').close(); time.sleep(4); print('the last word')"
    job = a_job("PyTorchJob", "late", "", replicas={"Master": 1, "Worker": 1})
    for role, code in (("Master", wait), ("Worker", late)):
        [container] = job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"]
        container["command"] = ["python", "-c", code]

    done = trainmaster("run", "-", given=yaml.safe_dump(job))

    assert done.returncode == 0, done.stderr
    assert "[worker-0] the last word" in done.stdout.splitlines()
    assert re.search(r"worker-0 +Succeeded +0 ", done.stdout)


def test_run_ends_with_1_when_the_job_failed():
    done = trainmaster("run", "-", given=script("print('so far'); raise SystemExit(7)"))

    assert done.returncode == 1
    assert "so far" in done.stdout
    assert [row.split()[2:4] for row in done.stdout.splitlines() if row.startswith("script")] == [["Failed", "7"]]


def test_run_ends_with_2_when_the_manifest_is_wrong():
    done = trainmaster("run", "-", given=script("pass", restart="Sometimes"))

    assert done.returncode == 2
    assert "restartPolicy" in done.stderr
    assert "Sometimes" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("/nowhere.yaml",), "no such file", id="no file"),
        pytest.param((), "Missing argument", id="nothing given"),
        pytest.param((RING, "--sandbox=cardboard"), "cardboard", id="no such sandbox"),
        pytest.param((RING, "--image", "x"), "PATTERN=VALUE", id="bad image"),
    ],
)
def test_run_ends_with_2_when_used_wrongly(words, told):
    done = trainmaster("run", *words)

    assert done.returncode == 2
    assert told in done.stderr


def test_run_ends_with_124_when_time_is_up(tmp_path):
    done = trainmaster(
        "run", "-", "--config", CONFIG, "--timeout", "1.5", given=held("held", tmp_path, replicas={"Worker": 1})
    )

    assert done.returncode == 124
    assert "not finished within 1.5 s" in done.stderr
    assert processes("held") == []


@pytest.mark.parametrize("sandbox", BOTH)
def test_run_interrupted_ends_with_130_and_leaves_nothing(tmp_path, sandbox):
    with started(
        "run", "-", "--sandbox", sandbox, "--config", CONFIG, given=held("held", tmp_path, replicas={"Worker": 2})
    ) as command:
        said(command, "is the gate open?", times=2)

        with nothing_left(command, sandbox):
            command.send_signal(signal.SIGINT)
            assert command.wait(PATIENCE) == 130


@pytest.mark.parametrize("sandbox", BOTH)
def test_run_killed_leaves_nothing(tmp_path, sandbox):
    """But its directory: nobody is there to remove it."""
    job = held("held", tmp_path, replicas={"Worker": 2})
    with started("run", "-", "--sandbox", sandbox, "--config", CONFIG, given=job, TMPDIR=str(tmp_path)) as command:
        said(command, "is the gate open?", times=2)

        with nothing_left(command, sandbox):
            command.kill()


def test_run_of_an_image_that_nothing_maps_fails_at_once_and_says_what_to_add():
    job = a_job("JAXJob", "unmapped", "", container={"image": "nobody/knows:1", "command": []}, replicas={"Worker": 1})

    done = trainmaster("run", "-", "--timeout", PATIENCE, given=yaml.safe_dump(job))

    assert done.returncode == 1
    assert '- match: "nobody/knows:1"' in done.stderr
    assert 'entrypoint: ["python", "train.py"]' in done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster that stays up."""
    directory = tmp_path_factory.mktemp("up") / "cluster"
    brought = trainmaster("up", "-d", "--data-dir", directory, "--config", CONFIG)
    assert brought.returncode == 0, brought.stderr
    yield directory
    lowered = trainmaster("down", "--data-dir", directory)
    assert lowered.returncode == 0, lowered.stderr
    assert processes() == []


def test_run_uses_a_cluster_that_is_up(home):
    job = yaml.safe_dump(a_job("PyTorchJob", "guest", "exchange.py", replicas={"Master": 1, "Worker": 1}))

    done = trainmaster("run", "-", "--kubeconfig", home / "kubeconfig", given=job)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("has sum 11") == 2


def test_run_uses_the_cluster_of_a_context(home):
    context = yaml.safe_load((home / "kubeconfig").read_text())["current-context"]
    job = yaml.safe_dump(a_job("PyTorchJob", "by-context", "exchange.py", replicas={"Master": 1, "Worker": 1}))

    done = trainmaster("run", "-", "--context", context, given=job, KUBECONFIG=str(home / "kubeconfig"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_status_tells_of_the_cluster(home):
    assert trainmaster("status", "--data-dir", home).returncode == 0
    assert trainmaster("status", "--data-dir", home / "other").returncode == 1


def test_a_second_cluster_in_the_same_place_is_refused(home):
    again = trainmaster("up", "-d", "--data-dir", home)

    assert again.returncode == 1
    assert "already up" in again.stderr


def test_a_killed_cluster_comes_up_again_with_everything_and_goes_on(tmp_path):
    home, gate = tmp_path / "cluster", tmp_path / "gate"
    gate.mkdir()
    up = ("up", "-d", "--data-dir", home, "--config", CONFIG)
    assert trainmaster(*up).returncode == 0
    with connected(home / "kubeconfig") as cluster:
        cluster.submit(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}},
            yaml.safe_load(held("survivor", gate, replicas={"Worker": 2})),
            yaml.safe_load(held("replaced", gate, "ExitCode", replicas={"Worker": 1})),
        )
        names = ("survivor-worker-0", "survivor-worker-1", "replaced-worker-0")
        before = {name: cluster.says(name, "is the gate open? False") for name in names}
    running = [found.pid for name in ("survivor", "replaced") for found in processes(name)]
    assert len(running) == 3

    _kill_cluster(home)
    wait_for_end(running)
    (gate / "open").touch()
    again = trainmaster(*up)
    assert again.returncode == 0, again.stderr

    try:
        with connected(home / "kubeconfig") as cluster:
            assert cluster.finished("JAXJob", "survivor") == "Succeeded"
            assert cluster.finished("JAXJob", "replaced") == "Succeeded"
            assert cluster.until(cluster.resource("v1", "ConfigMap"), "kept", bool) is not None
            after = {name: cluster.pod(name, lambda pod: pod["status"]["phase"] == "Succeeded") for name in names}
        assert [container_of(after[name])["restartCount"] for name in names] == [1, 1, 0]
        assert [after[n]["metadata"]["uid"] == before[n]["metadata"]["uid"] for n in names] == [True, True, False]
    finally:
        assert trainmaster("down", "--data-dir", home).returncode == 0
    assert processes() == []


def _kill_cluster(home: Path) -> None:
    pid = int(yaml.safe_load((home / "cluster.json").read_text())["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end([pid])
