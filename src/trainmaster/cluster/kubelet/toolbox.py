"""What the cluster gives to every pod beside its image: ways to reach the API server and the other pods.

A directory per namespace, which pods see at `sandbox.INSIDE`: `bin/` with `ssh`, `sshd` and `kubectl-delivery`, on
their PATH, `kubectl`, which is not, and `account/` by which these reach the API server. All of it is small shell
scripts that start this very Python on `inside_*`, whatever the container's own PATH and variables are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trainmaster.cluster.kubelet.beneath import step, write_file
from trainmaster.cluster.kubelet.rewriting import HERE, replace_paths
from trainmaster.cluster.kubelet.sandbox import DOOR, INSIDE, Sandbox
from trainmaster.cluster.kubelet.token_files import Access, token_access
from trainmaster.objects.meta import Json

_SOURCE = Path(__file__).parents[3]
_PROGRAM = (
    "import sys; sys.path.append({source!r}); from trainmaster.cluster.kubelet.{module} import main; sys.exit(main())"
)
_SYSTEM = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin")
_REPLACED = {
    "/usr/sbin/sshd": "bin/sshd",
    "/usr/local/sbin/sshd": "bin/sshd",
    "/usr/bin/ssh": "bin/ssh",
    "/usr/local/bin/ssh": "bin/ssh",
}
_DELIVERY = """#!/bin/sh
mkdir -p "${TARGET_DIR:=/opt/kube}" && cp "$(dirname "$0")/../kubectl" "$TARGET_DIR/kubectl"
"""
_ACCOUNT = "default"
_PROGRAM_ACCESS = Access(0o755)


class Toolbox:
    """`port` is the API server's on this machine; `token(namespace, account)` makes tokens that it accepts."""

    def __init__(self, root: Path, sandbox: Sandbox, *, port: int, ca: str, token: Callable[[str, str], str]) -> None:
        self._root = root
        self._has_namespaces = sandbox.kind == "namespaces"
        self._port = port
        self._ca = ca
        self._token = token
        self._made: dict[tuple[str, bool, Access], Path] = {}
        shutil.rmtree(root, ignore_errors=True)  # an earlier cluster's, with tokens for the users of its pods

    def directory_of(self, pod: Json) -> Path:
        """The pod's; it is there when this returns."""
        key = (pod["metadata"]["namespace"], self._is_outside(pod), token_access(pod))
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def env(self, pod: Json, env: dict[str, str], prefix: Sequence[str]) -> dict[str, str]:
        """With our programs found after the image's own but before those of this machine."""
        ours = f"{self._shown(pod)}/bin"
        paths = [ours, *prefix] if set(prefix) & set(_SYSTEM) else [*prefix, ours]
        return {**env, "PATH": os.pathsep.join([*paths, env.get("PATH") or os.defpath])}

    def text(self, pod: Json, text: str) -> str:
        """An argument or a variable, with our programs in place of those that it names by path."""
        shown = self._shown(pod)
        return replace_paths(text, {path: f"{shown}/{ours}" for path, ours in _REPLACED.items()})

    def reachable(self, pod: Json, service: Json) -> Json:
        """The API server's Service, with an address that works also from this machine's own network."""
        metadata = service["metadata"]
        if not self._is_outside(pod) or (metadata["namespace"], metadata["name"]) != ("default", "kubernetes"):
            return service
        ports = [{**port, "port": self._port} for port in service["spec"]["ports"]]
        return {**service, "spec": {**service["spec"], "clusterIP": HERE, "ports": ports}}

    def _is_outside(self, pod: Json) -> bool:
        return not self._has_namespaces or (bool(pod["spec"].get("hostNetwork")) and os.geteuid() == 0)

    def _shown(self, pod: Json) -> str:
        return INSIDE if self._has_namespaces else str(self.directory_of(pod))

    def _make(self, namespace: str, is_outside: bool, access: Access) -> Path:
        reader = "" if access == Access() else f".{access.mode:o}.{access.user}.{access.group}"
        directory = self._root / f"{step(namespace)}{'.outside' if is_outside else ''}{reader}"
        shown = INSIDE if self._has_namespaces else str(directory)
        host, port = (HERE, self._port) if is_outside else DOOR
        files = {"server": f"{host}:{port}", "namespace": namespace, "ca.crt": self._ca}
        for name, text in files.items():
            _write(directory / "account" / name, text, Access(0o644))
        _write(directory / "account" / "token", self._token(namespace, _ACCOUNT), access)
        for name in ("ssh", "sshd"):
            _write(directory / "bin" / name, _script(f"inside_{name}", shown), _PROGRAM_ACCESS)
        _write(directory / "bin" / "kubectl-delivery", _DELIVERY, _PROGRAM_ACCESS)
        _write(directory / "kubectl", _script("inside_kubectl", shown), _PROGRAM_ACCESS)
        return directory


def _script(module: str, shown: str) -> str:
    """With this machine's libraries: those a container brings may not fit this Python."""
    libraries = os.environ.get("LD_LIBRARY_PATH")
    setting = f"export LD_LIBRARY_PATH={shlex.quote(libraries)}" if libraries else "unset LD_LIBRARY_PATH"
    program = _PROGRAM.format(source=str(_SOURCE), module=module)
    words = [sys.executable, "-I", "-S", "-X", "utf8", "-c", program, f"{shown}/account"]
    return f'#!/bin/sh\nunset LD_PRELOAD\n{setting}\nexec {shlex.join(words)} "$@"\n'


def _write(path: Path, text: str, access: Access) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    above = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_file(above, [path.name], text.encode(), access.mode, access.owner)
    finally:
        os.close(above)
