"""The network of pods, either way it can be laid."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainmaster.testing.patience import PATIENCE

pytestmark = [pytest.mark.sandbox, pytest.mark.namespaces]

PROGRAM = """
import errno, os, socket, sys
from trainmaster.cluster.kubelet import linux, spawn_lan, spawn_namespaces
from trainmaster.cluster.kubelet.spawn_net import Netlink

def missing(link):
    raise OSError(errno.EOPNOTSUPP, "a kernel without it")

def here():
    return os.open("/proc/self/ns/net", os.O_RDONLY)

def a_pod(address):
    linux.unshare(linux.NEWNET)
    namespace = here()
    spawn_lan.prepare()
    lan.plug(namespace)
    spawn_lan.set_up_pod(address, 16, "10.96.0.0/16")
    return namespace

def seen(server_in, client_in, address):
    linux.setns(server_in, linux.NEWNET)
    server = socket.create_server((address, 5000))
    linux.setns(client_in, linux.NEWNET)
    client = socket.create_connection((address, 5000), timeout=100)
    return server.accept()[1][0]

if sys.argv[1] == "Bridge":
    spawn_lan.Macvlan = missing
if os.geteuid() != 0 or sys.argv[2] == "rootless":
    spawn_namespaces.enter_user_namespace()
linux.unshare(linux.NEWNET)
ours = here()
lan = spawn_lan.set_up_cluster(Netlink(), "10.0.0.1", 16, "10.96.0.0/16", "10.96.0.1")
one, other = a_pod("10.0.0.2"), a_pod("10.0.0.3")
print(type(lan).__name__, seen(one, other, "10.0.0.2"), seen(ours, one, "10.96.0.1"), seen(other, ours, "10.0.0.3"))
"""


@pytest.mark.parametrize("user", ["as-we-are", "rootless"])
@pytest.mark.parametrize("lan", ["Macvlan", "Bridge"])
def test_pods_and_the_cluster_reach_one_another_by_address(lan: str, user: str) -> None:
    """`Macvlan` stands for the fastest there is, which may be the other on this kernel."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, lan, user], capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    laid, *sources = done.stdout.split()
    assert laid in {lan, "Bridge"}
    assert sources == ["10.0.0.3", "10.0.0.2", "10.0.0.1"]
