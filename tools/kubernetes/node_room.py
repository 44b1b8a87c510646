"""Runs a command in a room of its own, where a node may do to the machine what nodes do: the machine keeps none of it.

    python -m tools.kubernetes.node_room COMMAND…

A node writes below /run and /var, mounts, makes bridges and packet filters, sets kernel parameters and starts processes
that outlive whoever started them. In the room all of that is private: mounts, network and process ids are namespaces,
which end with the command however it ends; /run and /var are thrown away; kernel parameters that no namespace holds are
files there. What has no such walls, control groups, lies below one directory and is removed afterwards. There is no way
out to any network, either.

The programs that a node needs and this machine lacks appear in /usr, from the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.kubernetes import node_packages
from tools.kubernetes.binaries import Unavailable, cache_root

HOME = Path("/run/trainmaster")
"""In memory, and there only inside."""

ADDRESS = "10.88.0.1"
BRIDGE = "trainmaster0"
CGROUP = "trainmaster-node"
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet sets for the whole machine. It gets files to write to instead."""

ALTERNATIVES = tuple(f"{family}{way}" for family in ("iptables", "ip6tables") for way in ("", "-save", "-restore"))
PATIENCE = 20.0


def enter(command: Sequence[str]) -> int:
    """Runs it inside, and says how it ended."""
    if os.geteuid() != 0:
        raise Unavailable("a real node needs root: it makes namespaces, mounts and control groups")
    packages = node_packages.tree(node_packages.NODE)
    # Whoever of us is killed, the kernel kills the rest.
    walls = ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child"]
    walls += ["--mount", "--net", "--pid", "--mount-proc", "--propagation", "private"]
    own = [sys.executable, "-m", __spec__.name, "--inside", str(packages)]
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with alone(), _control_groups():
        return subprocess.run([*walls, *own, *command], check=False).returncode


def is_inside() -> bool:
    return (HOME / "room").exists()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Control groups are the machine's: two nodes would take each other's away."""
    path = cache_root() / "node.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            complaint = f"another node runs on this machine and holds {path}; wait until it has ended"
            raise Unavailable(complaint) from error
        yield


def _hierarchies() -> list[Path]:
    """Where control groups are made; one place, or one for each controller."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(target) for _, target, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]


@contextlib.contextmanager
def _control_groups() -> Iterator[None]:
    groups = [hierarchy / CGROUP for hierarchy in _hierarchies()]
    remove(groups)
    for group in groups:
        group.mkdir()
    try:
        yield
    finally:
        remove(groups)


def remove(groups: Sequence[Path]) -> None:
    """Deepest first. A group can go when its processes have, and those that were killed take a moment."""
    deadline = time.monotonic() + PATIENCE
    for group in groups:
        while group.exists():
            for directory, _, _ in sorted(os.walk(group), reverse=True):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
            if group.exists() and time.monotonic() > deadline:
                raise Unavailable(f"{group} is still in use; end its processes, see {group}/cgroup.procs")
            time.sleep(0.02)


def _furnish(packages: Path) -> None:
    # Larger than memory may be: the node offers what it says, and nobody uses it up.
    for directory, mode in {"/run": "755", "/dev/shm": "1777"}.items():
        _mount("tmpfs", directory, "-t", "tmpfs", "-o", f"mode={mode},size=32g")
    _lay_out_files(packages)
    _hide_settings()
    _lay_out_network()
    (HOME / "room").touch()


def _lay_out_files(packages: Path) -> None:
    links, upper, work = HOME / "alternatives", HOME / "var", HOME / "var.work"
    for directory in (links / "sbin", upper, work):
        directory.mkdir(parents=True)
    for name in ALTERNATIVES:
        (links / "sbin" / name).symlink_to(name.replace("tables", "tables-nft"))
    # The machine's own programs come first: what it has, works with the rest of it.
    _mount("overlay", "/usr", "-t", "overlay", "-o", f"lowerdir=/usr:{packages / 'usr'}:{links}")
    _mount("overlay", "/var", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}")


def _hide_settings() -> None:
    for held in (Path("/proc/sys") / setting for setting in SETTINGS):
        if held.exists():
            private = HOME / held.name
            private.write_text(held.read_text())
            _mount(str(private), str(held), "--bind")


def _lay_out_network() -> None:
    for words in (
        ("link", "set", "lo", "up"),
        ("link", "add", BRIDGE, "type", "bridge"),
        ("address", "add", f"{ADDRESS}/16", "dev", BRIDGE),
        ("link", "set", BRIDGE, "up"),
        ("route", "add", "default", "dev", BRIDGE),  # to nowhere, but Services are found only on the way there
    ):
        subprocess.run(["ip", *words], check=True)


def _mount(source: str, target: str, *options: str) -> None:
    subprocess.run(["mount", *options, source, target], check=True)


def _keep_house(command: Sequence[str]) -> int:
    """As the first process, which inherits the children of all that end before them."""
    temporary = HOME / "tmp"
    temporary.mkdir()
    child = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    while True:
        process, status = os.wait()
        if process == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--inside"]:
        _furnish(Path(arguments[1]))
        return _keep_house(arguments[2:])
    try:
        return enter(arguments)
    except Unavailable as error:
        sys.stderr.write(f"node: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
