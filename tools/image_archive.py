"""Images as files: reproducible layers, and an archive that is an OCI layout and a Docker archive at once."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    content: bytes

    @classmethod
    def of(cls, root: Path, epoch: int) -> Layer:
        """A directory as a tar in which nothing tells when, where and by whom it was made."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(root.rglob("*")):
                entry = _entry(path, path.relative_to(root).as_posix(), epoch)
                with path.open("rb") if entry.isreg() else io.BytesIO() as content:
                    tar.addfile(entry, content)
        return cls(buffer.getvalue())

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def _entry(path: Path, name: str, epoch: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mtime = epoch
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        return entry
    mode = path.stat().st_mode
    if path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if mode & 0o1000 else 0o755
    else:
        entry.mode, entry.size = 0o755 if mode & 0o111 else 0o644, path.stat().st_size
    return entry


@dataclass(frozen=True, slots=True)
class Image:
    reference: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...]
    user: str
    epoch: int
    version: str

    @property
    def config(self) -> bytes:
        created = datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        running = {
            "User": self.user,
            "Entrypoint": list(self.entrypoint),
            "Env": ["PATH=/usr/local/bin", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"],
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.version": self.version},
        }
        return _json(
            {
                "created": created,
                "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": running,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
                "history": [{"created": created, "created_by": "trainmaster"} for _ in self.layers],
            }
        )

    @property
    def manifest(self) -> bytes:
        layers = [_descriptor(f"{OCI}.layer.v1.tar", layer.content) for layer in self.layers]
        config = _descriptor(f"{OCI}.config.v1+json", self.config)
        kind = f"{OCI}.manifest.v1+json"
        return _json({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers})

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()


def write_archive(image: Image, output: Path) -> None:
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in _files(image):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), image.epoch
            tar.addfile(entry, io.BytesIO(content))


def _files(image: Image) -> Iterator[tuple[str, bytes]]:
    """The blobs once, and two tables of contents: index.json for OCI, manifest.json for Docker."""
    for content in (*(layer.content for layer in image.layers), image.config, image.manifest):
        yield _blob(content), content
    names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
    found = {**_descriptor(f"{OCI}.manifest.v1+json", image.manifest), "annotations": names}
    yield "index.json", _json({"schemaVersion": 2, "manifests": [found]})
    layers = [_blob(layer.content) for layer in image.layers]
    yield "manifest.json", _json([{"Config": _blob(image.config), "RepoTags": [image.reference], "Layers": layers}])
    yield "oci-layout", _json({"imageLayoutVersion": "1.0.0"})


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
