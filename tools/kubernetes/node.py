"""A real node for the control plane: containerd, runc, kubelet, kube-proxy and name service, inside a room of its own.

    with control_plane(ADDRESS, controllers=EVERY) as plane, node(plane, archives) as running:
        ...

Its images come from archives, for there is no registry and no network to reach one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from tools.kubernetes import node_config
from tools.kubernetes.binaries import Unavailable, node_binaries
from tools.kubernetes.controlplane import ControlPlane
from tools.kubernetes.node_room import ADDRESS, HOME, is_inside

PATIENCE = 90.0
LAST_LINES = 8


class Node:
    """Its processes are children of this one; the containers are the room's, and end with it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._binaries = node_binaries()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubectl(self) -> list[str]:
        """The command with all that it needs; what it remembers of servers it would leave in the user's home."""
        flags = [f"--kubeconfig={self._plane.kubeconfig}", f"--cache-dir={HOME / 'kubectl'}"]
        return [str(self._binaries["kubectl"]), *flags]

    def start(self, archives: Sequence[Path]) -> None:
        self._start_containerd()
        for archive in archives:
            self._control("images", "import", str(archive))
        self._start_names()
        self._start_kubelet()
        self._start_proxy()
        self._wait(self._is_ready, "the node did not become ready")

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.terminate()
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)
            child.kill()
            child.wait()

    def log(self, name: str) -> str:
        """What a program of the node has said so far."""
        return (HOME / f"{name}.log").read_text(errors="replace")

    def _start_containerd(self) -> None:
        node_config.NETWORKS.mkdir()
        (node_config.NETWORKS / "10-trainmaster.conflist").write_text(json.dumps(node_config.network()))
        config = HOME / "containerd.toml"
        config.write_text(node_config.containerd())
        self._start("containerd", "containerd", "--config", str(config))
        self._wait(lambda: self._control("version", check=False) == 0, "containerd does not answer")

    def _start_names(self) -> None:
        self._start("dns", sys.executable, "-m", "tools.kubernetes.dns", str(self._plane.kubeconfig), ADDRESS)

    def _start_kubelet(self) -> None:
        resolver = HOME / "resolv.conf"
        resolver.touch()
        config = HOME / "kubelet.yaml"
        config.write_text(yaml.safe_dump(node_config.kubelet(self._plane.authority, resolver)))
        self._start(
            "kubelet",
            str(self._binaries["kubelet"]),
            f"--config={config}",
            f"--kubeconfig={self._kubeconfig('kubelet')}",
            "--hostname-override=node",
            f"--node-ip={ADDRESS}",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{node_config.SOCKET}",
            f"--root-dir={HOME / 'kubelet'}",
            f"--cert-dir={HOME / 'certificates'}",
        )

    def _start_proxy(self) -> None:
        config = HOME / "proxy.yaml"
        config.write_text(yaml.safe_dump(node_config.proxy(self._kubeconfig("proxy"))))
        self._start("kube-proxy", str(self._binaries["kube-proxy"]), f"--config={config}")

    def _kubeconfig(self, user: str) -> Path:
        return self._plane.write_kubeconfig(HOME / f"{user}.kubeconfig", user, self._plane.token_of(user))

    def _start(self, name: str, *command: str) -> None:
        with (HOME / f"{name}.log").open("wb") as log:
            self._children[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _control(self, *words: str, check: bool = True) -> int:
        command = ["ctr", "--address", str(node_config.SOCKET), "--namespace", "k8s.io", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if check and done.returncode:
            raise Unavailable(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.returncode

    def _is_ready(self) -> bool:
        path = "{.status.conditions[?(@.type=='Ready')].status}"
        command = [*self.kubectl, "get", "node", "node", f"--output=jsonpath={path}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.stdout == "True"

    def _wait(self, is_so: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise Unavailable(f"{name} ended with {child.returncode}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise Unavailable(f"{complaint} within {PATIENCE:g} s:\n{self._tail([*self._children][-1])}")
            time.sleep(0.1)

    def _tail(self, name: str) -> str:
        return "\n".join(self.log(name).splitlines()[-LAST_LINES:])


@contextlib.contextmanager
def node(plane: ControlPlane, archives: Sequence[Path]) -> Iterator[Node]:
    """A running one, ready for pods of the images in these archives."""
    if not is_inside():
        raise Unavailable("a node runs in a room of its own: python -m tools.kubernetes.node_room COMMAND…")
    running = Node(plane)
    try:
        running.start(archives)
        yield running
    finally:
        running.stop()
