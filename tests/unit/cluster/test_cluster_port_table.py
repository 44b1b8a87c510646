"""Ports that stand for those of pods: dealt out once on this machine, whoever asks."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from trainmaster.cluster.kubelet import port_table
from trainmaster.cluster.kubelet.port_table import PortTable
from trainmaster.testing.ports import free_port

HOLDER = """
import sys
from trainmaster.cluster.kubelet.port_table import PortTable
table = PortTable()
print(table.get("ns", "a", int(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def a_free_port() -> int:
    """One that no cluster on this machine keeps from us either."""
    while True:
        port = free_port()
        with closing(PortTable()) as table:
            if table.get("ns", "a", port) == port:
                return port


@contextmanager
def another_cluster(wanted: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has been dealt that port, or another."""
    command, pipe = [sys.executable, "-c", HOLDER, str(wanted)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_a_port_keeps_its_number_while_it_is_free() -> None:
    with closing(PortTable()) as table, socket.create_server(("127.0.0.1", 0)) as server:
        busy, wanted = server.getsockname()[1], a_free_port()

        displaced = table.get("ns", "a", busy)
        first, second = table.get("ns", "a", wanted), table.get("ns", "b", wanted)

        assert displaced != busy
        assert first == wanted != second
        assert table.get("ns", "b", wanted) == second


def test_a_port_is_free_again_when_its_pod_is_gone() -> None:
    with closing(PortTable()) as table:
        wanted = a_free_port()
        table.get("ns", "a", wanted)

        table.release("ns", "a")

        assert table.get("ns", "b", wanted) == wanted


def test_two_clusters_never_deal_out_the_same_port() -> None:
    with closing(PortTable()) as one, closing(PortTable()) as two:
        wanted = a_free_port()

        dealt = [table.get("ns", f"pod-{number}", wanted) for number in range(50) for table in (one, two)]

        assert dealt[0] == wanted
        assert len(set(dealt)) == 100


def test_a_port_that_another_process_has_dealt_out_is_not_dealt_out_here() -> None:
    wanted = a_free_port()
    with another_cluster(wanted) as (_, theirs), closing(PortTable()) as table:
        ours = table.get("ns", "a", wanted)

        assert theirs == wanted
        assert ours != wanted


def test_a_cluster_that_is_killed_gives_its_ports_back() -> None:
    wanted = a_free_port()
    with another_cluster(wanted) as (process, _):
        process.kill()
        process.wait()

        with closing(PortTable()) as table:
            assert table.get("ns", "a", wanted) == wanted


@pytest.mark.parametrize("end", [PortTable.close, lambda table: table.release("ns", "a")], ids=["closed", "released"])
def test_another_cluster_may_have_a_port_that_is_needed_no_more(end) -> None:
    wanted = a_free_port()
    with closing(PortTable()) as one, closing(PortTable()) as two:
        one.get("ns", "a", wanted)

        end(one)

        assert two.get("ns", "a", wanted) == wanted


def test_ports_beside_those_dealt_out_are_left_to_the_program() -> None:
    with closing(PortTable()) as table:
        wanted = a_free_port()

        dealt = sorted(table.get("ns", f"pod-{number}", wanted) for number in range(50))

        assert min(after - before for before, after in zip(dealt, dealt[1:], strict=False)) > 1


def test_many_pods_hold_few_descriptors() -> None:
    """A thousand pods ask for three thousand ports; a process has a thousand descriptors, more often than not."""
    with closing(PortTable()) as table:
        ports = {table.get("ns", f"pod-{number}", port) for number in range(300) for port in (22, 2222, 23456)}

        assert len(ports) == 900
        assert len(list(table._blocks)) < 100


def test_where_no_port_can_be_held_ports_are_dealt_out_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden(socket.socket):
        def bind(self, address: object) -> None:
            if self.family == socket.AF_UNIX:
                raise PermissionError(1, "Operation not permitted")
            super().bind(address)  # type: ignore[arg-type]  # what a socket takes

    monkeypatch.setattr(socket, "socket", Forbidden)
    wanted = a_free_port()
    with closing(PortTable()) as table:
        assert table.get("ns", "a", wanted) == wanted
        assert table.get("ns", "b", wanted) != wanted


def test_more_clusters_than_blocks_get_ports_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_table, "_DEALT", range(0))
    with closing(PortTable()) as one, closing(PortTable()) as two:
        wanted = a_free_port()

        assert one.get("ns", "a", wanted) == wanted
        assert two.get("ns", "a", wanted) != wanted


def test_the_port_of_the_api_server_is_what_it_is() -> None:
    with closing(PortTable()) as table:
        table.fix("default", "kubernetes", 443, 38111)

        assert table.get("default", "kubernetes", 443) == 38111
