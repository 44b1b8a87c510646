"""Files made of config maps, secrets and the downward API, and how they are put into a directory so that readers never
see half of a change.

The directory has the form every kubelet gives it: real files in a dated directory, `..data` a link to it that is
replaced in one step, and a link per name that leads through `..data`.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cluster.kubelet.beneath import steps_of, write_file
from trainmaster.cluster.kubelet.environment import field_value, resource_value
from trainmaster.objects.meta import Json


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int
    owner: tuple[int, int] = (-1, -1)
    """User and group; -1 is who publishes it."""


Files = dict[str, File]


class VolumeError(Exception):
    """A volume cannot be mounted, perhaps not yet; the message is for an event."""


class BadVolumeError(VolumeError):
    """A volume that waiting does not mend: what defines it has to change."""


def config_map_files(found: Json | None, source: Json, default_mode: int, name: str) -> Files:
    if found is None:
        return _absent(source, f'configmap "{name}" not found')
    texts = {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
    return _chosen(texts | _decoded(found.get("binaryData")), source, default_mode, f'configmap "{name}"')


def secret_files(found: Json | None, source: Json, default_mode: int, name: str) -> Files:
    if found is None:
        return _absent(source, f'secret "{name}" not found')
    return _chosen(_decoded(found.get("data")), source, default_mode, f'secret "{name}"')


def downward_files(pod: Json, items: list[Json], default_mode: int, node: Json, ip: str, host_ip: str) -> Files:
    files: Files = {}
    for item in items:
        if "fieldRef" in item:
            text = field_value(pod, item["fieldRef"]["fieldPath"], pod_ip=ip, host_ip=host_ip)
        else:
            text = resource_value(pod, item["resourceFieldRef"], {}, node)
        files[item["path"]] = File(text.encode(), item.get("mode", default_mode))
    return files


def _absent(source: Json, message: str) -> Files:
    if source.get("optional"):
        return {}
    raise VolumeError(message)


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value or "") for key, value in (data or {}).items()}
    except binascii.Error as error:
        raise VolumeError(f"not base64: {error}") from error


def _chosen(contents: Mapping[str, bytes], source: Json, default_mode: int, what: str) -> Files:
    items = source.get("items")
    if not items:
        return {key: File(content, default_mode) for key, content in contents.items()}
    files: Files = {}
    for item in items:
        if item["key"] in contents:
            files[item["path"]] = File(contents[item["key"]], item.get("mode", default_mode))
        elif not source.get("optional"):
            raise VolumeError(f"{what} has no key {item['key']!r}, which the volume's items name")
    return files


def publish(directory: Path, files: Files) -> None:
    """Replace the directory's files atomically: a reader sees either all old files or all new ones.

    OSError if a path leads out of the directory, or through another file; nothing has changed then.
    """
    wanted = {tuple(steps_of(path)): file for path, file in files.items()}
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)  # whatever our umask: a container of another user reads it too
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    try:
        _fill(fresh, wanted)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    current = directory / "..data"
    old = os.readlink(current) if current.is_symlink() else ""
    link = directory / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.replace(current)
    _link_names(directory, {steps[0] for steps in wanted})
    if old.startswith("..") and old != ".." and "/" not in old:
        shutil.rmtree(directory / old, ignore_errors=True)


def _fill(directory: Path, files: Mapping[tuple[str, ...], File]) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for steps, file in files.items():
            write_file(opened, steps, file.content, file.mode & 0o777, file.owner)
        os.fchmod(opened, 0o755)
    finally:
        os.close(opened)


def _link_names(directory: Path, wanted: set[str]) -> None:
    shown = {entry.name for entry in directory.iterdir() if entry.is_symlink() and not entry.name.startswith("..")}
    for name in wanted - shown:
        (directory / name).symlink_to(f"..data/{name}")
    for name in shown - wanted:
        (directory / name).unlink()
