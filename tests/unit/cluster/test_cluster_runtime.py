"""What the API server asks of running containers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.runtime import PodRuntime
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.streams.session import STDERR, STDOUT, Session
from trainmaster.testing.podworld import Lab, a_container, a_lab, a_pod, script

pytestmark = pytest.mark.sandbox

T = TypeVar("T")


def in_lab(root: Path, body: Callable[[Lab, PodRuntime], Awaitable[T]], timing: Timing | None = None) -> T:
    async def main() -> T:
        async with a_lab(root, timing=timing) as lab:
            return await body(lab, PodRuntime(lab.kubelet))

    return asyncio.run(main())


async def log_of(runtime: PodRuntime, pod: str, **options: Any) -> bytes:
    defaults = {
        "previous": False,
        "follow": False,
        "tail": None,
        "since": None,
        "timestamps": False,
        "limit_bytes": None,
    }
    stream = runtime.open_log("default", pod, options.pop("container", ""), **{**defaults, **options})
    return b"".join([part async for part in stream])


async def a_running_pod(lab: Lab, *command: str, **fields: Any) -> None:
    lab.world.add("Pod", a_pod("one", containers=[a_container(*command, **fields)]))
    await lab.world.until(lambda: lab.world.phase("one") == "Running")


async def told_by(session: Session) -> tuple[bytes, bytes, int]:
    """All output, and the exit code; the session is over."""
    streams = {STDOUT: b"", STDERR: b""}
    try:
        async for channel, data in session.output:
            streams[channel] += data
        return streams[STDOUT], streams[STDERR], await session.wait()
    finally:
        await session.kill()


def test_a_log_is_followed_until_the_container_ends(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> bytes:
        await a_running_pod(lab, "sh", "-c", "echo first; read line; echo $line", stdin=True)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(log_of(runtime, "one", follow=True))
            await lab.until_logged("one", "first")
            session = await runtime.attach("default", "one", "", stdin=True, tty=False)
            await session.write_stdin(b"second\n")
        return following.result()

    assert in_lab(tmp_path, body) == b"first\nsecond\n"


def test_the_log_of_the_attempt_before_is_kept(tmp_path: Path) -> None:
    once = "import os, sys; print('again' if os.path.exists('/v/x') else 'once'); open('/v/x', 'a'); sys.exit(1)"
    container = a_container(*script(once), volumeMounts=[{"name": "v", "mountPath": "/v"}])

    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes]:
        world = lab.world
        pod = a_pod("one", containers=[container], restartPolicy="Always", volumes=[{"name": "v", "emptyDir": {}}])
        world.add("Pod", pod)
        await world.until(lambda: world.status("one").get("restartCount") == 1 and "waiting" in world.state("one"))
        return await log_of(runtime, "one", previous=True), await log_of(runtime, "one")

    assert in_lab(tmp_path, body, Timing(back_off=1000, back_off_max=1000)) == (b"once\n", b"again\n")


@pytest.mark.parametrize(
    ("pod", "options", "status", "message"),
    [
        pytest.param("absent", {}, 404, 'pods "absent" not found', id="no-pod"),
        pytest.param("one", {"container": "z"}, 400, "container z is not valid for pod one", id="no-container"),
        pytest.param("one", {"previous": True}, 400, "previous terminated container", id="no-previous"),
        pytest.param(
            "two", {}, 400, "a container name must be specified for pod two, choose one of: [a b]", id="which"
        ),
        pytest.param("waits", {}, 400, 'container "main" in pod "waits" is waiting to start', id="waiting"),
    ],
)
def test_logs_that_are_not_there_are_refused(
    tmp_path: Path, pod: str, options: dict[str, Any], status: int, message: str
) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> ApiError:
        world = lab.world
        world.add("Pod", a_pod("one", "true"))
        world.add("Pod", a_pod("two", containers=[a_container("true", name="a"), a_container("true", name="b")]))
        world.add("Pod", a_pod("waits", "true", volumes=[{"name": "v", "configMap": {"name": "absent"}}]))
        await world.finished("one")
        await world.finished("two")
        await world.until(lambda: "waiting" in world.state("waits"))
        with pytest.raises(ApiError) as refused:
            await log_of(runtime, pod, **options)
        return refused.value

    refused = in_lab(tmp_path, body)

    assert refused.status == status
    assert message in refused.message


def test_the_annotation_names_the_default_container(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> bytes:
        pod = a_pod("one", containers=[a_container("echo", name, name=name) for name in ("a", "b")])
        pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "b"}
        lab.world.add("Pod", pod)
        await lab.world.finished("one")
        return await log_of(runtime, "one")

    assert in_lab(tmp_path, body) == b"b\n"


def test_a_command_runs_in_the_container_with_its_environment(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes, int]:
        await a_running_pod(lab, "sleep", "1000", env=[{"name": "WHO", "value": "me"}])
        command = ["sh", "-c", "echo $WHO on $HOSTNAME; echo oops >&2; exit 3"]
        return await told_by(await runtime.exec("default", "one", "", command, stdin=False, tty=False))

    assert in_lab(tmp_path, body) == (b"me on one\n", b"oops\n", 3)


@pytest.mark.namespaces
def test_a_command_runs_under_the_host_name_of_its_pod(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes, int]:
        await a_running_pod(lab, "sleep", "1000")
        return await told_by(await runtime.exec("default", "one", "", ["hostname"], stdin=False, tty=False))

    assert in_lab(tmp_path, body) == (b"one\n", b"", 0)


def test_a_command_reads_its_input_to_the_end(tmp_path: Path) -> None:
    data = b"x" * (1 << 20)

    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes, int]:
        await a_running_pod(lab, "sleep", "1000")
        session = await runtime.exec("default", "one", "", ["wc", "-c"], stdin=True, tty=False)
        await session.write_stdin(data)
        await session.close_stdin()
        return await told_by(session)

    assert in_lab(tmp_path, body) == (b"1048576\n", b"", 0)


def test_a_command_with_a_terminal_knows_its_size(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes, int]:
        await a_running_pod(lab, "sleep", "1000")
        command = ["sh", "-c", "read go; stty size; tty >/dev/null && echo terminal"]
        session = await runtime.exec("default", "one", "", command, stdin=True, tty=True)
        session.resize(132, 43)
        await session.write_stdin(b"go\n")
        return await told_by(session)

    output, errors, code = in_lab(tmp_path, body)

    assert output.replace(b"\r", b"").splitlines() == [b"go", b"43 132", b"terminal"]
    assert (errors, code) == (b"", 0)


@pytest.mark.parametrize(
    ("command", "code"),
    [pytest.param("no-such-program", 127, id="missing"), pytest.param("/etc/passwd", 126, id="not-executable")],
)
def test_a_command_that_cannot_start_is_a_session_that_says_so(tmp_path: Path, command: str, code: int) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> tuple[bytes, bytes, int]:
        await a_running_pod(lab, "sleep", "1000")
        return await told_by(await runtime.exec("default", "one", "", [command], stdin=False, tty=False))

    output, errors, ended = in_lab(tmp_path, body)

    assert (output, ended) == (b"", code)
    assert command.encode() in errors


def test_a_client_that_leaves_ends_its_command(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> tuple[int, str]:
        await a_running_pod(lab, "sleep", "1000")
        session = await runtime.exec("default", "one", "", ["sleep", "1000"], stdin=False, tty=False)
        await session.kill()
        return await session.wait(), lab.world.phase("one")

    assert in_lab(tmp_path, body) == (137, "Running")


def test_commands_need_a_running_container(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> ApiError:
        await lab.ran(a_pod("one", "true"))
        with pytest.raises(ApiError) as refused:
            await runtime.exec("default", "one", "", ["true"], stdin=False, tty=False)
        return refused.value

    assert in_lab(tmp_path, body).status == 400


def test_an_attached_client_talks_to_the_containers_own_terminal(tmp_path: Path) -> None:
    async def body(lab: Lab, runtime: PodRuntime) -> bytes:
        await a_running_pod(lab, "sh", "-c", "printf 'name? '; read name; echo hello $name", stdin=True, tty=True)
        await lab.until_logged("one", "name? ")
        session = await runtime.attach("default", "one", "", stdin=True, tty=True)
        output = session.output
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(collect(output))
            await asyncio.sleep(0)
            await session.write_stdin(b"you\n")
        await session.kill()
        return reading.result()

    assert in_lab(tmp_path, body).replace(b"\r", b"") == b"you\nhello you\n"


async def collect(output: Any) -> bytes:
    return b"".join([data async for _, data in output])


def test_a_connection_reaches_what_listens_on_the_pods_own_loopback(tmp_path: Path) -> None:
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 9099)); print('up', flush=True); "
        "s.accept()[0].sendall(b'hi')"
    )

    async def body(lab: Lab, runtime: PodRuntime) -> bytes:
        await a_running_pod(lab, *script(serve))
        await lab.until_logged("one", "up")
        with pytest.raises(OSError, match="refused|Connect call failed"):
            await runtime.connect("default", "one", 9098)
        reader, writer = await runtime.connect("default", "one", 9099)
        told = await reader.read()
        writer.close()
        await writer.wait_closed()
        return told

    assert in_lab(tmp_path, body) == b"hi"
