"""Pods in namespaces: real processes, real networks, real mounts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trainmaster.cluster.kubelet import orphans
from trainmaster.cluster.kubelet.launcher import ContainerConfig, ExecConfig, Mount, Process
from trainmaster.cluster.kubelet.logfiles import LogWatch, Selection, follow, read
from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, PodConfig, PodSandbox, SandboxError
from trainmaster.cluster.kubelet.spawn_init import descendants
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.testing.patience import PATIENCE

pytestmark = [pytest.mark.sandbox, pytest.mark.namespaces]

PATH = {"PATH": os.environ["PATH"]}


@asynccontextmanager
async def a_sandbox(root: Path, *, user_namespace: bool | None = None) -> AsyncIterator[NamespaceSandbox]:
    sandbox = await NamespaceSandbox.open(root, user_namespace=user_namespace)
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def a_pod(sandbox: NamespaceSandbox, root: Path, name: str = "one", **fields: object) -> PodSandbox:
    hosts = root / f"{name}.hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    config = PodConfig(uid=name, namespace="default", name=name, hostname=name, hosts=hosts, **fields)  # type: ignore[arg-type]  # test shorthand
    return await sandbox.create(config)


async def start(sandbox: NamespaceSandbox, pod: PodSandbox, root: Path, *argv: str, **fields: object) -> Process:
    log = root / "logs" / f"{pod.uid}.log"
    config = ContainerConfig(name=f"{pod.uid}/main", argv=argv, env=PATH, log=log, **fields)  # type: ignore[arg-type]  # test shorthand
    return await sandbox.start(pod, config)


async def output_of(sandbox: NamespaceSandbox, root: Path, text: str, **fields: object) -> str:
    """What a shell script prints in a pod of its own."""
    pod = await a_pod(sandbox, root)
    process = await start(sandbox, pod, root, "sh", "-c", text, **fields)
    await process.wait()
    process.close()
    await sandbox.remove(pod)
    return read(root / "logs" / "one.log", Selection()).decode()


def test_a_pod_has_its_own_address_host_name_and_no_way_out(tmp_path: Path) -> None:
    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            text = "hostname; cat /proc/net/fib_trie /proc/net/route; ls /sys/class/net"
            return await output_of(sandbox, tmp_path, text)

    seen = asyncio.run(main())

    assert seen.startswith("one\n")
    assert "10.244.0.2" in seen
    assert "eth0\t00000000\t" not in seen  # no default route
    assert seen.endswith("eth0\nlo\n")


@pytest.mark.parametrize("user_namespace", [pytest.param(True, id="rootless"), pytest.param(None, id="as-we-are")])
def test_pods_on_the_same_port_reach_one_another_by_address(tmp_path: Path, user_namespace: bool | None) -> None:
    serve = "import socket; s=socket.create_server(('', 2222)); c,_=s.accept(); c.sendall(b'one here'); c.close()"
    call = "import socket; s=socket.create_server(('', 2222)); print(reach(('10.244.0.2', 2222)).recv(99).decode())"

    async def main() -> str:
        async with a_sandbox(tmp_path, user_namespace=user_namespace) as sandbox:
            one, two = await a_pod(sandbox, tmp_path, "one"), await a_pod(sandbox, tmp_path, "two")
            server = await start(sandbox, one, tmp_path, sys.executable, "-c", serve)
            caller = await start(sandbox, two, tmp_path, sys.executable, "-c", REACH + call)
            for process in (caller, server):
                await process.wait()
                process.close()
        return read(tmp_path / "logs" / "two.log", Selection()).decode()

    assert asyncio.run(main()) == "one here\n"


REACH = """
import socket
def reach(address):
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            pass
"""


def test_a_volume_appears_at_a_path_this_machine_does_not_have(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("hello")
    mounts = [Mount(str(data), "/no-such-place/deep/data"), Mount(str(data / "x"), "/etc/no-such-file")]

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            text = "cd /no-such-place/deep/data; cat x /etc/no-such-file; echo new > y; ls /etc/passwd"
            return await output_of(sandbox, tmp_path, text, mounts=mounts)

    seen = asyncio.run(main())

    assert seen == "hellohello/etc/passwd\n"
    assert (data / "y").read_text() == "new\n"
    assert not Path("/no-such-place").exists()
    assert not Path("/etc/no-such-file").exists()


def test_a_read_only_volume_refuses_writes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            mounts = [Mount(str(data), "/data", read_only=True)]
            return await output_of(sandbox, tmp_path, "touch /data/x || echo refused", mounts=mounts)

    assert "refused" in asyncio.run(main())
    assert list(data.iterdir()) == []


def test_a_memory_volume_is_shared_by_the_containers_of_a_pod_and_gone_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "memory"
    directory.mkdir()

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            pod = await a_pod(sandbox, tmp_path, memory_volumes={str(directory): 1 << 20})
            for text in ("echo shared > /memory/x", "cat /memory/x; df -k /memory | tail -1"):
                mounts = [Mount(str(directory), "/memory")]
                process = await start(sandbox, pod, tmp_path, "sh", "-c", text, mounts=mounts)
                await process.wait()
                process.close()
            await sandbox.remove(pod)
        return read(tmp_path / "logs" / "one.log", Selection()).decode()

    seen = asyncio.run(main())

    assert seen.startswith("shared\ntmpfs")
    assert " 1024 " in seen
    assert list(directory.iterdir()) == []


def test_the_hosts_file_is_seen_as_it_changes(tmp_path: Path) -> None:
    text = "import socket\nwhile True:\n  try: print(socket.gethostbyname('peer')); break\n  except OSError: pass"

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            pod = await a_pod(sandbox, tmp_path)
            process = await start(sandbox, pod, tmp_path, sys.executable, "-c", text)
            with pod.config.hosts.open("a") as file:
                file.write("10.244.9.9 peer\n")
            await process.wait()
            process.close()
        return read(tmp_path / "logs" / "one.log", Selection()).decode()

    assert asyncio.run(main()) == "10.244.9.9\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("exit 7", 7, id="exit"),
        pytest.param("kill -KILL $$", 137, id="killed"),
        pytest.param("kill -TERM $$", 143, id="terminated"),
        pytest.param("kill -ABRT $$", 134, id="aborted"),
    ],
)
def test_exit_codes_are_those_of_kubernetes(tmp_path: Path, text: str, code: int) -> None:
    async def main() -> int:
        async with a_sandbox(tmp_path) as sandbox:
            process = await start(sandbox, await a_pod(sandbox, tmp_path), tmp_path, "sh", "-c", text)
            ended = await process.wait()
            process.close()
            return ended

    assert asyncio.run(main()) == code


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    text = "(setsid sleep 1000 &) ; setsid sleep 1000 & exit 3"

    async def main() -> tuple[int, list[int], list[int]]:
        async with a_sandbox(tmp_path) as sandbox:
            before = descendants(sandbox.helper_pid)
            process = await start(sandbox, await a_pod(sandbox, tmp_path), tmp_path, "sh", "-c", text)
            code = await process.wait()
            process.close()
            return code, before, descendants(sandbox.helper_pid)

    code, before, after = asyncio.run(main())

    assert code == 3
    assert after == before


@pytest.mark.parametrize("user_namespace", [pytest.param(True, id="rootless"), pytest.param(None, id="as-we-are")])
def test_the_same_command_has_another_process_number_each_time(tmp_path: Path, user_namespace: bool | None) -> None:
    async def main() -> list[str]:
        async with a_sandbox(tmp_path, user_namespace=user_namespace) as sandbox:
            return [await output_of(sandbox, tmp_path, "echo $$") for _ in range(3)]

    said = asyncio.run(main())[-1].split()

    assert len(said) == 3
    assert len(set(said)) > 1


def test_sigterm_reaches_a_command_without_a_handler(tmp_path: Path) -> None:
    async def main() -> int:
        async with a_sandbox(tmp_path) as sandbox:
            process = await start(sandbox, await a_pod(sandbox, tmp_path), tmp_path, "sleep", "1000")
            await process.signal(signal.SIGTERM)
            code = await process.wait()
            process.close()
            return code

    assert asyncio.run(main()) == 128 + signal.SIGTERM


async def logged(path: Path) -> None:
    """Returns when the log has something in it."""
    watch = LogWatch()
    try:
        async with contextlib.aclosing(follow(path, Selection(), watch, lambda: False)) as following:
            await anext(following)
    finally:
        watch.close()


def test_children_of_a_shell_get_their_grace_when_the_shell_is_terminated(tmp_path: Path) -> None:
    child = (
        "import signal, sys; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0))); "
        "print('up', flush=True); signal.pause()"
    )
    marker = tmp_path / "logs" / "one.log"

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            pod = await a_pod(sandbox, tmp_path)
            process = await start(sandbox, pod, tmp_path, "sh", "-c", f"'{sys.executable}' -c \"{child}\"; echo never")
            await logged(marker)
            await process.signal(signal.SIGTERM)
            await process.wait()
            process.close()
        return read(marker, Selection()).decode()

    assert asyncio.run(main()) == "up\nsaved\n"


def test_a_command_that_is_not_there_is_told_apart_from_a_broken_set_up(tmp_path: Path) -> None:
    async def main() -> tuple[HelperError, HelperError]:
        async with a_sandbox(tmp_path) as sandbox:
            pod = await a_pod(sandbox, tmp_path)
            with pytest.raises(HelperError) as missing:
                await start(sandbox, pod, tmp_path, "no-such-command")
            with pytest.raises(HelperError) as broken:
                await start(sandbox, pod, tmp_path, "true", mounts=[Mount("/no-such-source", "/data")])
            return missing.value, broken.value

    missing, broken = asyncio.run(main())

    assert missing.is_missing_file
    assert broken.stage == "setup"
    assert "/no-such-source" in str(broken)


def test_a_command_is_not_there_though_path_has_directories_that_may_not_be_entered(tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}/closed:{os.environ['PATH']}"}
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "no-such-command").touch(0o600)  # what the kernel says of it is what it says below a closed directory

    async def main() -> HelperError:
        async with a_sandbox(tmp_path) as sandbox:
            config = ContainerConfig(name="one/main", argv=["no-such-command"], env=env, log=tmp_path / "log")
            with pytest.raises(HelperError) as missing:
                await sandbox.start(await a_pod(sandbox, tmp_path), config)
            return missing.value

    missing = asyncio.run(main())

    assert missing.is_missing_file
    assert str(missing) == 'exec: "no-such-command": executable file not found in $PATH'


def test_a_command_joins_a_running_container(tmp_path: Path) -> None:
    async def main() -> tuple[int, bytes]:
        async with a_sandbox(tmp_path) as sandbox:
            process = await start(sandbox, await a_pod(sandbox, tmp_path), tmp_path, "sleep", "1000")
            script = "hostname; [ $(grep -lx sleep /proc/[0-9]*/comm | wc -l) = 1 ] && exit 5"
            command = ExecConfig(name="exec", argv=["sh", "-c", script], env=PATH)
            joined = await sandbox.exec(process, command)
            code = await joined.wait()
            told = os.read(joined.streams.stdout, 100)
            joined.close()
            await process.kill()
            await process.wait()
            process.close()
            return code, told

    assert asyncio.run(main()) == (5, b"one\n")


def test_pods_reach_what_we_serve_at_the_address_of_the_api_server(tmp_path: Path) -> None:
    call = f"import socket; print(socket.create_connection(({'10.96.0.1'!r}, 443)).recv(99).decode())"

    async def main() -> str:
        async with a_sandbox(tmp_path) as sandbox:
            loop = asyncio.get_running_loop()
            server = await sandbox.open_door(6443)
            assert server is not None
            with server:
                process = await start(sandbox, await a_pod(sandbox, tmp_path), tmp_path, sys.executable, "-c", call)
                connection, _ = await loop.sock_accept(server)
                with connection:
                    await loop.sock_sendall(connection, b"welcome")
                await process.wait()
            process.close()
        return read(tmp_path / "logs" / "one.log", Selection()).decode()

    assert asyncio.run(main()) == "welcome\n"


def test_nothing_is_left_when_the_process_that_holds_the_sandbox_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests_kill import main
asyncio.run(main(Path({str(tmp_path)!r})))
"""
    (tmp_path / "tests_kill.py").write_text(KILLED)

    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        assert process.stdout is not None
        helper = json.loads(process.stdout.readline())["helper"]
        before = descendants(helper)
        process.kill()
        process.wait()
    handles = [handle for pid in (helper, *before) if (handle := opened(pid)) is not None]
    for handle in handles:
        ended(handle)

    assert len(before) >= 4  # the helper's inner process, the container's first process, two sleeps
    assert descendants(helper) == []


KILLED = """
import asyncio, json, os
from trainmaster.cluster.kubelet.launcher import ContainerConfig
from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, PodConfig

async def main(root):
    sandbox = await NamespaceSandbox.open(root / "r")
    (root / "hosts").touch()
    pod = await sandbox.create(PodConfig(uid="a", namespace="d", name="a", hostname="a", hosts=root / "hosts"))
    argv = ["sh", "-c", "setsid sleep 1000 & echo up; sleep 1000"]
    log = root / "a.log"
    await sandbox.start(pod, ContainerConfig(name="a", argv=argv, env=dict(os.environ), log=log))
    while not log.exists() or not log.stat().st_size:
        await asyncio.sleep(0)
    print(json.dumps({"helper": sandbox.helper_pid}), flush=True)
    await asyncio.Event().wait()
"""


def opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def ended(handle: int) -> None:
    try:
        assert select.select([handle], [], [], PATIENCE)[0], "still running"
    finally:
        os.close(handle)


def test_the_helper_of_a_crashed_cluster_is_ended_by_its_recorded_identity(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as left_behind, subprocess.Popen(["sleep", "1000"]) as innocent:
        orphans.record(tmp_path / "record", left_behind.pid, "token", [])
        known = json.loads((tmp_path / "record").read_text())
        (tmp_path / "other").write_text(json.dumps({**known, "pid": innocent.pid, "started": "1"}))

        gone = orphans.end_recorded(tmp_path / "record")
        spared = orphans.end_recorded(tmp_path / "other")

        assert gone == [left_behind.pid]
        assert left_behind.wait() == -signal.SIGKILL
        assert spared == []
        assert innocent.poll() is None
        innocent.kill()


def test_one_directory_serves_one_cluster_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_sandbox(tmp_path):
            with pytest.raises(SandboxError, match="another cluster runs in"):
                await NamespaceSandbox.open(tmp_path)

    asyncio.run(main())


def test_many_pods_leave_nothing_behind(tmp_path: Path) -> None:
    async def main() -> tuple[int, int, int, int]:
        async with a_sandbox(tmp_path) as sandbox:
            await output_of(sandbox, tmp_path, "true")
            ours, theirs = open_files(os.getpid()), sum(open_files(pid) for pid in descendants(sandbox.helper_pid))
            for _ in range(20):
                await output_of(sandbox, tmp_path, "true")
            after = sum(open_files(pid) for pid in descendants(sandbox.helper_pid))
            return ours, open_files(os.getpid()), theirs, after

    ours, ours_after, theirs, theirs_after = asyncio.run(main())

    assert ours_after == ours
    assert theirs_after == theirs


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
