"""Stock kubectl runs commands in pods, attaches to them, copies files and reads logs, over TLS."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import pty
import signal
import ssl
import struct
import termios

import pytest
import trustme
from tools import kubectl as stock

from trainmaster.testing.localruntime import LocalSession
from trainmaster.testing.streambed import SPDY, WEBSOCKET, Kubectl, StreamBed, a_pod

pytestmark = pytest.mark.kubectl

MEGABYTES = 12
both_protocols = pytest.mark.parametrize(
    "protocol", [pytest.param(WEBSOCKET, id="websocket"), pytest.param(SPDY, id="spdy")]
)


@contextlib.asynccontextmanager
async def a_bed(home, protocol, tty=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with StreamBed(pod=a_pod(tty=tty)).serving(context) as bed:
        yield bed, Kubectl(stock.kubectl(), bed.port, home, protocol)


@both_protocols
def test_exec_passes_both_outputs_and_the_exit_code(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            return await kubectl.run("exec", "trainer", "--", "sh", "-c", "echo out; echo err >&2; exit 3")

    code, out, err = asyncio.run(main())

    assert code == 3, err
    assert out == b"out\n"
    assert "err\n" in err
    assert "command terminated with exit code 3" in err


@both_protocols
def test_exec_passes_stdin_and_its_end(tmp_path, protocol):
    payload = os.urandom(MEGABYTES << 20)

    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            return await kubectl.run("exec", "-i", "trainer", "--", "sha256sum", stdin=payload)

    code, out, err = asyncio.run(main())

    assert code == 0, err
    assert out.split()[0].decode() == hashlib.sha256(payload).hexdigest()


@both_protocols
def test_exec_sends_and_returns_megabytes_at_once(tmp_path, protocol):
    payload = os.urandom(MEGABYTES << 20)

    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            return await kubectl.run("exec", "-i", "trainer", "--", "cat", stdin=payload)

    code, out, err = asyncio.run(main())

    assert code == 0, err
    assert out == payload


@both_protocols
def test_a_command_may_end_while_input_is_still_coming(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            command = ("exec", "-i", "trainer", "--", "sh", "-c", "head -c 5; exit 7")
            return await kubectl.run(*command, stdin=b"hello" + bytes(MEGABYTES << 20))

    code, out, _ = asyncio.run(main())

    assert code == 7
    assert out == b"hello"


@both_protocols
def test_exec_ends_with_its_client(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            process = await kubectl.start("exec", "trainer", "--", "sleep", "600")
            await bed.runtime.started.wait()
            process.kill()
            await process.communicate()
            return await bed.runtime.sessions[0].wait()

    assert asyncio.run(main()) == 128 + signal.SIGKILL


@both_protocols
def test_a_refusal_reaches_the_user(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            return await kubectl.run("exec", "trainer", "-c", "absent", "--", "true")

    code, _, err = asyncio.run(main())

    assert code == 1
    assert "container absent is not valid for pod trainer" in err


@both_protocols
def test_exec_with_a_terminal_follows_its_size(tmp_path, protocol):
    until = 'until [ "$(stty size)" = "{0}" ]; do sleep 0.02; done; echo is {0};'
    script = until.format("31 101") + until.format("22 77")

    async def main():
        async with a_bed(tmp_path, protocol, tty=True) as (bed, kubectl):
            outer, inner = pty.openpty()
            set_size(outer, 101, 31)
            process = await kubectl.start(
                "exec", "-it", "trainer", "--", "sh", "-c", script, stdin=inner, stdout=inner, stderr=inner
            )
            os.close(inner)
            async with a_terminal(outer) as terminal:
                await terminal.readuntil(b"is 31 101")
                set_size(outer, 77, 22)
                process.send_signal(signal.SIGWINCH)
                await terminal.readuntil(b"is 22 77")
                return await process.wait()

    assert asyncio.run(main()) == 0


@both_protocols
def test_keys_typed_at_a_terminal_reach_the_command(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol, tty=True) as (bed, kubectl):
            outer, inner = pty.openpty()
            command = ("exec", "-it", "trainer", "--", "sh", "-c", "read word; echo got-$word; exit 4")
            process = await kubectl.start(*command, stdin=inner, stdout=inner, stderr=inner)
            os.close(inner)
            async with a_terminal(outer) as terminal:
                await bed.runtime.started.wait()
                os.write(outer, b"steam\r")
                await terminal.readuntil(b"got-steam")
                return await process.wait()

    assert asyncio.run(main()) == 4


def set_size(terminal, columns, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.asynccontextmanager
async def a_terminal(outer):
    """What is shown on it; owns its descriptor."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outer, "rb", 0))
    try:
        yield reader
    finally:
        transport.close()


@both_protocols
def test_files_are_copied_both_ways(tmp_path, protocol):
    source, inside, back = tmp_path / "source", tmp_path / "inside", tmp_path / "back"
    source.write_bytes(os.urandom(MEGABYTES << 20))
    inside.mkdir()

    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            there = await kubectl.run("cp", str(source), f"trainer:{inside}/copy")
            return there, await kubectl.run("cp", f"trainer:{inside}/copy", str(back))

    there, again = asyncio.run(main())

    assert (there[0], again[0]) == (0, 0), (there, again)
    assert back.read_bytes() == source.read_bytes()


@both_protocols
def test_attach_joins_the_running_process(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            bed.runtime.main = await LocalSession.start(["sh", "-c", "read word; echo got-$word; echo err >&2"])
            return await kubectl.run("attach", "-i", "trainer", stdin=b"steam\n")

    code, out, err = asyncio.run(main())

    assert code == 0, err
    assert out == b"got-steam\n"
    assert "err\n" in err


@both_protocols
def test_leaving_an_attached_process_leaves_it_running(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            bed.runtime.main = await LocalSession.start(["sh", "-c", "echo ready; exec cat"])
            process = await kubectl.start("attach", "trainer")
            await process.stdout.readuntil(b"ready")
            process.kill()
            await process.communicate()
            await bed.runtime.main.close_stdin()
            return await bed.runtime.main.wait()

    assert asyncio.run(main()) == 0


def test_logs_are_followed_to_their_end(tmp_path):
    async def main():
        async with a_bed(tmp_path, WEBSOCKET) as (bed, kubectl):
            await bed.runtime.log.add(b"one\n", b"two\n")
            process = await kubectl.start("logs", "-f", "trainer", "--tail=1")
            first = await process.stdout.readline()
            await bed.runtime.log.add(b"three\n", complete=True)
            rest, _ = await process.communicate()
            return first, rest, process.returncode

    assert asyncio.run(main()) == (b"two\n", b"three\n", 0)


def test_logs_ask_for_what_the_user_asked(tmp_path):
    async def main():
        async with a_bed(tmp_path, WEBSOCKET) as (bed, kubectl):
            options = (
                "--previous",
                "--timestamps",
                "--limit-bytes=9",
                "--since-time=2024-01-01T00:00:00Z",
                "-c",
                "main",
            )
            await bed.runtime.log.add(b"one\n")
            return await kubectl.run("logs", "trainer", *options), bed.runtime.asked

    (code, out, _), asked = asyncio.run(main())

    assert (code, out) == (0, b"one\n")
    assert asked == [
        {
            "namespace": "default",
            "pod": "trainer",
            "container": "main",
            "previous": True,
            "follow": False,
            "tail": None,
            "since": 1704067200.0,
            "timestamps": True,
            "limit_bytes": 9,
        }
    ]
