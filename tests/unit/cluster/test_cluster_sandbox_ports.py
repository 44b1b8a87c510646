"""Pods without namespaces: one network for all, addresses rewritten."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainmaster.cluster.kubelet import orphans
from trainmaster.cluster.kubelet.rewriting import Rewriter, replace_paths
from trainmaster.cluster.kubelet.spawn_init import descendants
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.podworld import Lab, PodWorld, a_container, a_lab, a_pod, script

pytestmark = pytest.mark.sandbox

T = TypeVar("T")


def in_lab(root: Path, body: Callable[[Lab], Awaitable[T]]) -> T:
    async def main() -> T:
        async with a_lab(root, kind="ports") as lab:
            return await body(lab)

    return asyncio.run(main())


def a_rewriter(*known: str, own_ports: tuple[int, ...] = ()) -> Rewriter:
    """Ports of `job-worker-0` become 5000 and more, those of `job-worker-1` 5100 and more, and so on."""

    def port_of(namespace: str, name: str, port: int) -> int:
        assert namespace == "team"
        return 5000 + 100 * int(name[-1]) + port % 100

    return Rewriter("team", "job-worker-0", known, own_ports, port_of)


def test_endpoints_anywhere_in_a_text_are_rewritten() -> None:
    config = {"cluster": {"worker": ["job-worker-0.team.svc:2222", "job-worker-1.team.svc:2222"]}, "task": {"index": 0}}

    rewritten = a_rewriter().text(json.dumps(config))

    assert json.loads(rewritten)["cluster"]["worker"] == ["127.0.0.1:5022", "127.0.0.1:5122"]


def test_addresses_beside_their_ports_in_json_are_rewritten() -> None:
    peers = [{"url": "job-worker-0", "port": 9091}, {"url": "job-worker-1", "port": 9091}]
    config = {"cluster": {"worker": peers}, "task": {"type": "worker", "index": 0}}

    rewritten = a_rewriter().env({"MX_CONFIG": json.dumps(config)})

    assert json.loads(rewritten["MX_CONFIG"]) == {
        **config,
        "cluster": {"worker": [{"url": "127.0.0.1", "port": 5091}, {"url": "127.0.0.1", "port": 5191}]},
    }


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('{"port":  1, "name": "job-worker-1"}', id="no address"),
        pytest.param('[{"url": "www.example.com", "port": 80}]', id="an address of the world outside"),
        pytest.param('{"url": "job-worker-1", "port": "80"}', id="no number"),
        pytest.param('{"url": "job-worker-1", "port": true}', id="a truth value"),
        pytest.param('{"url": "job-worker-1", "port": 80', id="cut short"),
        pytest.param('{"port":' * 20_000, id="deeper than anybody writes"),
    ],
)
def test_other_json_stays_as_it_is(value: str) -> None:
    assert a_rewriter().env({"CONFIG": value}) == {"CONFIG": value}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        pytest.param("job-worker-1:2222", "127.0.0.1:5122", id="known"),
        pytest.param("tcp://job-worker-1:2222/x", "tcp://127.0.0.1:5122/x", id="in-a-url"),
        pytest.param("a=job-worker-1:2222,b=job-worker-0:2222", "a=127.0.0.1:5122,b=127.0.0.1:5022", id="list"),
        pytest.param("job-worker-1.team.svc.cluster.local:2222", "127.0.0.1:5122", id="qualified"),
        pytest.param("stranger:2222", "stranger:2222", id="unknown"),
        pytest.param("https://example.com:443/", "https://example.com:443/", id="outside"),
        pytest.param("0.0.0.0:8080", "127.0.0.1:5080", id="own-port"),
        pytest.param("localhost:9999", "localhost:9999", id="not-own-port"),
        pytest.param("at 12:30:45", "at 12:30:45", id="time"),
    ],
)
def test_only_names_of_the_cluster_are_rewritten(text: str, rewritten: str) -> None:
    rewriter = a_rewriter("job-worker-0", "job-worker-1", own_ports=(8080,))

    assert rewriter.text(text) == rewritten


@pytest.mark.parametrize("kind", ["ADDR", "ADDRESS", "HOST", "URI", "IP"])
def test_pairs_of_address_and_port_are_rewritten_together(kind: str) -> None:
    env = {f"MASTER_{kind}": "job-master-3", "MASTER_PORT": "23456", "RANK": "0"}

    assert a_rewriter().env(env) == {f"MASTER_{kind}": "127.0.0.1", "MASTER_PORT": "5356", "RANK": "0"}


def test_a_pair_that_names_the_pod_itself_leads_to_its_own_port() -> None:
    env = {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456"}

    assert a_rewriter(own_ports=(23456,)).env(env) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5056"}


def test_a_port_without_an_address_is_rewritten_if_the_pod_declares_it() -> None:
    env = {"SERVER_PORT": "23456", "OTHER_PORT": "80", "PORTS": "23456"}

    assert a_rewriter(own_ports=(23456,)).env(env) == {"SERVER_PORT": "5056", "OTHER_PORT": "80", "PORTS": "23456"}


def test_paths_of_volumes_become_the_directories_behind_them() -> None:
    paths = {"/data": "/host/v", "/data/deep": "/host/w"}

    assert replace_paths("--in=/data/x --out /data/deep/y:/data", paths) == "--in=/host/v/x --out /host/w/y:/host/v"
    assert replace_paths("/database /my/data", paths) == "/database /my/data"


def test_pods_of_two_clusters_have_different_ports(tmp_path: Path) -> None:
    env = [{"name": "MASTER_ADDR", "value": "master"}, {"name": "MASTER_PORT", "value": "23456"}]
    show = "echo port $MASTER_PORT; exec sleep 1000"
    master = a_pod("master", containers=[a_container("sh", "-c", show, env=env, ports=[{"containerPort": 23456}])])

    async def main() -> list[str]:
        async with a_lab(tmp_path / "one", kind="ports") as one, a_lab(tmp_path / "two", kind="ports") as two:
            for lab in (one, two):
                lab.world.add("Pod", master)
                await lab.until_logged("master", "port")
            return [lab.log("master") for lab in (one, two)]

    first, second = asyncio.run(main())

    assert first.removeprefix("port ").strip().isdigit()
    assert first != second


def test_two_pods_on_one_port_talk_to_one_another(tmp_path: Path) -> None:
    serve = """
import os, socket
server = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
print("up", flush=True)
server.accept()[0].sendall(b"hello from the master")
"""
    call = """
import json, socket, sys
host, _, port = sys.argv[1].partition(":")
print(socket.create_connection((host, int(port))).recv(99).decode())
"""
    env = [{"name": "MASTER_ADDR", "value": "master"}, {"name": "MASTER_PORT", "value": "23456"}]
    own = [{"containerPort": 23456}]

    async def body(lab: Lab) -> str:
        world = lab.world
        for name in ("other", "master"):  # the first one to come has the port as it is
            mine = [{"name": "MASTER_ADDR", "value": name}, env[1]]
            world.add("Pod", a_pod(name, containers=[a_container(*script(serve), env=mine, ports=own)]))
            await lab.until_logged(name, "up")
        worker = a_container(*script(call), args=["master.default.svc:23456"], env=env)
        return await lab.ran(a_pod("worker", containers=[worker]))

    assert in_lab(tmp_path, body) == "hello from the master\n"


def test_a_service_of_another_name_leads_to_the_pod_behind_it(tmp_path: Path) -> None:
    serve = "import os, socket; s = socket.create_server(('127.0.0.1', int(os.environ['ME'].split(':')[1]))); "
    serve += "print('up', flush=True); s.accept()[0].sendall(b'served')"
    call = "import os, socket; h, p = os.environ['THERE'].split(':'); "
    call += "print(socket.create_connection((h, int(p))).recv(99).decode())"
    ports = [{"port": 80, "targetPort": 23457}]

    async def body(lab: Lab) -> str:
        world = lab.world
        world.add("Service", {"metadata": {"name": "front"}, "spec": {"selector": {"app": "back"}, "ports": ports}})
        me = [{"name": "ME", "value": "localhost:23457"}]
        back = a_container(*script(serve), env=me, ports=[{"containerPort": 23457}])
        world.add("Pod", a_pod("back", containers=[back]))
        await lab.until_logged("back", "up")
        there = [{"name": "THERE", "value": "front:80"}]
        return await lab.ran(a_pod("caller", containers=[a_container(*script(call), env=there)]))

    assert in_lab(tmp_path, body) == "served\n"


def test_volumes_and_exit_codes_work_without_mounts(tmp_path: Path) -> None:
    write = a_container("sh", "-c", "echo data > /v/x", name="first", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    text = "cat $DATA/x; echo gone > /dev/termination-log; exit 5"
    env = [{"name": "DATA", "value": "/else"}]
    main = a_container("sh", "-c", text, env=env, volumeMounts=[{"name": "v", "mountPath": "/else"}])

    async def body(lab: Lab) -> tuple[str, PodWorld]:
        pod = a_pod("one", containers=[main], initContainers=[write], volumes=[{"name": "v", "emptyDir": {}}])
        return await lab.ran(pod), lab.world

    log, world = in_lab(tmp_path, body)

    ended = world.state("one")["terminated"]
    assert log == "data\n"
    assert (ended["exitCode"], ended["message"]) == (5, "gone\n")


def test_the_whole_tree_is_killed_without_a_pid_namespace(tmp_path: Path) -> None:
    inner = "trap '' TERM; echo up; sleep 1000; sleep 1000"
    deaf = f'trap "" TERM; (setsid sh -c "{inner}" &) ; sleep 1000; sleep 1000'

    async def body(lab: Lab) -> tuple[int, list[int]]:
        world = lab.world
        helper = helper_of(lab.root)
        world.add("Pod", a_pod("one", "sh", "-c", deaf))
        await lab.until_logged("one", "up")
        during = len(descendants(helper))
        world.delete_pod("one", grace=0.2)
        await world.until(lambda: not world.has_pod("one"))
        return during, descendants(helper)

    during, after = in_lab(tmp_path, body)

    assert during >= 3  # the first process, the shell, and the one that tried to get away
    assert after == []


def helper_of(root: Path) -> int:
    return int(json.loads((root / "sandbox.json").read_text())["pid"])


def test_containers_end_when_the_cluster_is_killed(tmp_path: Path) -> None:
    program = f"import asyncio, sys; sys.path[:0] = {sys.path!r}\n" + KILLED.replace("ROOT", repr(str(tmp_path)))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = [helper_of(tmp_path), *descendants(helper_of(tmp_path))]
        handles = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    for handle in handles:
        assert select.select([handle], [], [], PATIENCE)[0], "still running"
        os.close(handle)

    assert len(pids) >= 4


KILLED = """
from pathlib import Path
from trainmaster.testing.podworld import a_lab, a_pod
async def main():
    async with a_lab(Path(ROOT), kind="ports") as lab:
        lab.world.add("Pod", a_pod("one", "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000; true"))
        await lab.until_logged("one", "up")
        print("up", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def test_what_outlived_both_the_cluster_and_its_helper_is_found_by_its_mark(tmp_path: Path) -> None:
    env: dict[str, Any] = {**os.environ, orphans.MARK: "a-token"}
    with subprocess.Popen(["sleep", "1000"], env=env) as marked, subprocess.Popen(["sleep", "1000"]) as other:
        gone = subprocess.Popen(["true"])
        gone.wait()
        orphans.record(tmp_path / "record", gone.pid, "a-token", [])
        os.waitid(os.P_PID, marked.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

        ended = orphans.end_recorded(tmp_path / "record")

        assert ended == [marked.pid]
        assert marked.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("env", "rewritten"),
    [
        pytest.param(
            {"MS_SCHED_HOST": "10.96.1.7", "MS_SCHED_PORT": "8118"},
            {"MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "5318"},
            id="pair",
        ),
        pytest.param({"URL": "tcp://10.96.1.7:8118"}, {"URL": "tcp://127.0.0.1:5318"}, id="text"),
        pytest.param({"WHO": "10.96.1.7"}, {"WHO": "127.0.0.1"}, id="alone"),
        pytest.param({"WHO": "10.96.1.8:80"}, {"WHO": "10.96.1.8:80"}, id="nobody"),
    ],
)
def test_the_address_of_a_service_is_as_good_as_its_name(env: dict[str, str], rewritten: dict[str, str]) -> None:
    by_name = a_rewriter()
    rewriter = Rewriter("team", "job-worker-0", (), (), by_name.port_of, {"10.96.1.7": ("team", "scheduler-3")})

    assert rewriter.env(env) == rewritten


def test_the_own_name_of_a_pod_stays_where_it_is_no_address() -> None:
    env = {"MS_NODE_ID": "job-worker-0", "HOSTNAME": "job-worker-0", "MY_HOST": "job-worker-0"}

    assert a_rewriter("job-worker-0").env(env) == {**env, "MY_HOST": "127.0.0.1"}


def test_commands_and_probes_find_the_volumes_of_their_container(tmp_path: Path) -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    wait = "import os, time\nwhile not os.path.exists('/v/up'): time.sleep(0.01)\nprint('seen', flush=True)"
    hook = {"postStart": {"exec": {"command": ["touch", "/v/up"]}}}
    probe = {"exec": {"command": ["test", "-e", "/v/up"]}, "periodSeconds": 0.02}
    container = a_container(*script(wait), volumeMounts=mount, lifecycle=hook, readinessProbe=probe)

    async def body(lab: Lab) -> str:
        return await lab.ran(a_pod("one", containers=[container], volumes=[{"name": "v", "emptyDir": {}}]))

    assert in_lab(tmp_path, body) == "seen\n"
