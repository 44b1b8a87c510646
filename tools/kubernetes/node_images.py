"""The images of the pods on a real node, made without a registry: layers are tar files, images are lists of layers.

They stand on one layer of Debian's packages. The archive has the form that `docker save` gives, with all images in it,
so that a shared layer is there once. The operator's image is no business of ours: `tools.image` makes that.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tools.environments_openmpi import SETTINGS
from tools.image_archive import ARCHITECTURES
from tools.kubernetes import node_packages
from tools.kubernetes.binaries import node_binaries
from tools.kubernetes.node_config import PAUSE

RANKS = "trainmaster.test/ranks:1"
DELIVERY = "trainmaster.test/kubectl-delivery:1"
PROGRAMS = "/programs"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
SSH = {
    # A mounted Secret lies in a directory that anybody may write to.
    "etc/ssh/sshd_config": "StrictModes no\nUsePAM no\n",
    # Hosts that were never met before are all there are.
    "etc/ssh/ssh_config.d/node.conf": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
}
APPLETS = ("cat", "cp", "grep", "sleep", "touch")
"""Of busybox, which stands in for what is too much to fetch."""


@dataclass(frozen=True, slots=True)
class Image:
    name: str
    layers: tuple[Path, ...]
    command: tuple[str, ...] = ()


class Layer:
    """A tar file in the making; all in it is root's."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def tree(self, source: Path, at: str) -> None:
        self._archive.add(source, at, filter=_plain)

    def file(self, name: str, content: str | bytes, mode: int = 0o644) -> None:
        data = content.encode() if isinstance(content, str) else content
        entry = tarfile.TarInfo(name)
        entry.mode, entry.size = mode, len(data)
        self._archive.addfile(entry, io.BytesIO(data))

    def link(self, name: str, target: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
        self._archive.addfile(entry)

    def directory(self, name: str, mode: int = 0o755) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._archive.addfile(entry)


def archive(directory: Path, programs: Path) -> Path:
    """Writes all of them, the one for ranks with these programs in it."""
    base, pause = directory / "base.tar", directory / "pause.tar"
    delivery, ranks = directory / "delivery.tar", directory / "ranks.tar"
    with _layer(base) as layer:
        _write_base(layer)
    busybox = node_packages.tree(node_packages.IMAGE) / "usr/bin/busybox"
    with _layer(pause) as layer:
        layer.tree(busybox, "busybox")
    with _layer(delivery) as layer:
        layer.tree(node_binaries()["kubectl"], "usr/bin/kubectl")
    with _layer(ranks) as layer:
        layer.tree(programs, PROGRAMS.lstrip("/"))
    images = (
        Image(PAUSE, (pause,), ("/busybox", "sleep", "inf")),
        Image(RANKS, (base, ranks)),
        Image(DELIVERY, (base, delivery), ("sh", "-c", 'cp /usr/bin/kubectl "$TARGET_DIR/kubectl"')),
    )
    return _write(images, directory / "images.tar")


def _write_base(layer: Layer) -> None:
    """Does what the packages' scripts would have done, as far as anybody here needs it."""
    root = node_packages.tree(node_packages.IMAGE)
    for part in sorted(root.iterdir()):
        layer.tree(part, part.name)
    for directory, mode in {"root": 0o700, "run/sshd": 0o755, "tmp": 0o1777, "var/empty": 0o755}.items():
        layer.directory(directory, mode)
    for name, text in (ACCOUNTS | SSH).items():
        layer.file(name, text)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
    layer.file("etc/ssh/ssh_host_ed25519_key", private, 0o600)
    layer.file("etc/openmpi/openmpi-mca-params.conf", SETTINGS)
    layer.link("usr/bin/mpirun", "mpirun.openmpi")
    for name in APPLETS:
        if not (root / "usr/bin" / name).exists():
            layer.link(f"usr/bin/{name}", "busybox")


@contextmanager
def _layer(path: Path) -> Iterator[Layer]:
    with tarfile.open(path, "w") as opened:
        yield Layer(opened)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _write(images: Sequence[Image], path: Path) -> Path:
    digests = {layer: _digest(layer) for image in images for layer in image.layers}
    with tarfile.open(path, "w") as opened:
        for layer, digest in digests.items():
            opened.add(layer, f"{digest}.tar", filter=_plain)
        written = Layer(opened)
        index = []
        for image in images:
            config = json.dumps(_config(image, [digests[layer] for layer in image.layers])).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            written.file(name, config)
            layers = [f"{digests[layer]}.tar" for layer in image.layers]
            index.append({"Config": name, "RepoTags": [image.name], "Layers": layers})
        written.file("manifest.json", json.dumps(index))
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _config(image: Image, digests: Sequence[str]) -> dict[str, object]:
    return {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [PATH], "Cmd": list(image.command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
