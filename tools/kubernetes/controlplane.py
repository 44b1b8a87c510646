"""Starts and stops a real control plane on free ports, with throwaway data and RBAC on."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tools.kubernetes.binaries import Unavailable, binaries

PATIENCE = 90.0
SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
healthzBindAddress: "127.0.0.1:{port}"
metricsBindAddress: "127.0.0.1:{port}"
clientConnection: {{kubeconfig: {kubeconfig}, qps: 1000, burst: 2000}}
"""
USERS = {
    "admin": ("admin", "system:masters"),
    "manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("system:node:node", "system:nodes"),
    "proxy": ("system:kube-proxy", ""),
}
"""Who each token speaks for, and the group; a real node, where there is one, is called node."""

EVERY = ("*",)
NODELESS = ("*", "-podgc")
"""The controllers of a plane whose pods run nowhere and whose kubelet a test plays. The pod collector deletes what is
terminating and on no node, by its name alone: it may hit the pod that was made in place of the one it meant. Pods that
ran on a node are none of its business, so it meets no job of a real cluster there."""

ONE_STREAM_EACH = {"DISABLE_HTTP2": "true"}
"""Every watch of the manager and the scheduler has a connection of its own. All on one, the manager's watch of Services
falls silent after some minutes of load, in about every second run: no new Service gets Endpoints from then on."""


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler as children of this process."""

    def __init__(
        self,
        directory: Path,
        address: str = "127.0.0.1",
        flags: Sequence[str] = (),
        controllers: Sequence[str] = NODELESS,
    ) -> None:
        self._home = directory
        self._address = address
        self._flags = tuple(flags)
        self._controllers = tuple(controllers)
        self._binaries = binaries()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens = {user: secrets.token_hex(16) for user in USERS}
        self._ports = dict(zip(("etcd", "peer", "api", "manager", "scheduler", "health"), _free_ports(6), strict=True))

    @property
    def kubeconfig(self) -> Path:
        return self._home / "kubeconfig"

    @property
    def url(self) -> str:
        return f"https://{self._address}:{self._ports['api']}"

    @property
    def authority(self) -> Path:
        """The certificate of who signed the server's."""
        return self._home / "ca.crt"

    @property
    def token(self) -> str:
        return self._tokens["admin"]

    def token_of(self, name: str) -> str:
        """Of one of USERS."""
        return self._tokens[name]

    def write_kubeconfig(self, path: Path, user: str, token: str, server: str = "") -> Path:
        """For any other user, say one with the operator's own rights; perhaps by way of another address."""
        cluster = {"server": server or self.url, "certificate-authority": str(self.authority)}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }
        path.write_text(yaml.safe_dump(body))
        return path

    def start(self) -> None:
        self._write_keys()
        self._start_etcd()
        self._start_api()
        self._wait_for("/readyz")
        self._start_manager()
        self._start_scheduler()
        self._wait_for("/api/v1/namespaces/default/serviceaccounts/default")

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.terminate()
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(2)
            child.kill()
            child.wait()

    def stop_apiserver(self, number: int = signal.SIGTERM) -> None:
        """The others stay and wait for it. Returns when it is gone: asked kindly, it takes new connections no more but
        serves those that it has, watches too, for as long as its --request-timeout."""
        server = self._children.pop("kube-apiserver")
        server.send_signal(number)
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def start_apiserver(self, *more: str) -> None:
        """Where it was, on the same port and etcd, perhaps with more flags. Returns when it is ready."""
        self._start_api(*more)
        self._wait_for("/readyz")

    def compact(self) -> int:
        """etcd forgets all of its history but the present. Returns the revision up to which it did."""
        header = self._ask_etcd("/v3/kv/range", {"key": "AA==", "count_only": True})["header"]
        revision = int(header["revision"])
        self._ask_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports['etcd']}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _write_keys(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        server = authority.issue_cert(self._address, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc")
        server.private_key_and_cert_chain_pem.write_to_path(str(self._home / "api.pem"))
        # A name beside the common one, for trustme would leave that part empty, and Go does not accept it so.
        name = "kube-apiserver"
        client = authority.issue_cert(name, common_name=name, organization_name="system:masters")
        client.private_key_and_cert_chain_pem.write_to_path(str(self._home / "kubelet-client.pem"))
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self._home / "sa.key").write_bytes(private)
        (self._home / "sa.pub").write_bytes(public)
        lines = [f'{self._tokens[name]},{user},{name},"{group}"\n' for name, (user, group) in USERS.items()]
        (self._home / "tokens.csv").write_text("".join(lines))
        self.write_kubeconfig(self.kubeconfig, "admin", self.token)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._start(
            "etcd",
            "--name=lab",
            f"--data-dir={self._home / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
        )

    def _start_api(self, *more: str) -> None:
        home = self._home
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--bind-address={self._address}",
            f"--secure-port={self._ports['api']}",
            f"--tls-cert-file={home / 'api.pem'}",
            f"--tls-private-key-file={home / 'api.pem'}",
            f"--client-ca-file={self.authority}",
            f"--kubelet-client-certificate={home / 'kubelet-client.pem'}",
            f"--kubelet-client-key={home / 'kubelet-client.pem'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={home / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={home / 'sa.pub'}",
            f"--service-account-signing-key-file={home / 'sa.key'}",
            *self._flags,
            *more,
        )

    def _start_manager(self) -> None:
        kubeconfig = self.write_kubeconfig(self._home / "manager.kubeconfig", "manager", self._tokens["manager"])
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['manager']}",
            "--port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--controllers={','.join(self._controllers)}",
            f"--service-account-private-key-file={self._home / 'sa.key'}",
            f"--root-ca-file={self.authority}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )

    def _start_scheduler(self) -> None:
        kubeconfig = self.write_kubeconfig(self._home / "scheduler.kubeconfig", "scheduler", self._tokens["scheduler"])
        config = self._home / "scheduler.yaml"
        config.write_text(SCHEDULER.format(port=self._ports["health"], kubeconfig=kubeconfig))
        self._start(
            "kube-scheduler",
            f"--config={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['scheduler']}",
            "--port=0",
        )

    def _start(self, name: str, *arguments: str) -> None:
        log = (self._home / f"{name}.log").open("ab")
        with log:
            self._children[name] = subprocess.Popen(
                [str(self._binaries[name]), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={**os.environ, **ONE_STREAM_EACH},
            )

    def _wait_for(self, path: str) -> None:
        context = ssl.create_default_context(cafile=str(self.authority))
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._check_children()
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(request, context=context, timeout=5).close()
                return
            time.sleep(0.1)
        raise Unavailable(f"{self.url}{path} did not answer within {PATIENCE:g} s; see the logs in {self._home}")

    def _check_children(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                lines = (self._home / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
                raise Unavailable(f"{name} ended with {child.returncode}:\n" + "\n".join(lines))


@contextlib.contextmanager
def control_plane(
    address: str = "127.0.0.1", flags: Sequence[str] = (), controllers: Sequence[str] = NODELESS
) -> Iterator[ControlPlane]:
    """A running one that listens there, in memory where the machine has room for that: etcd syncs after every write.
    The flags are for its API server, the controllers those that its manager runs."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    home = Path(tempfile.mkdtemp(prefix="trainmaster-kubernetes-", dir=parent))
    plane = ControlPlane(home, address, flags, controllers)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(home, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
