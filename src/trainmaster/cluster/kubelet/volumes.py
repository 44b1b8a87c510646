"""A pod's volumes as directories of this machine, and where its containers have them mounted."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.cluster.controllers.claims import PROVISIONED_BY
from trainmaster.cluster.kubelet import beneath, environment, volume_files
from trainmaster.cluster.kubelet.kubelet_api import PodApi
from trainmaster.cluster.kubelet.launcher import Mount
from trainmaster.cluster.kubelet.machine_config import stand_in
from trainmaster.cluster.kubelet.rewriting import replace_paths
from trainmaster.cluster.kubelet.token_files import token_access
from trainmaster.cluster.kubelet.volume_files import BadVolumeError, Files, VolumeError
from trainmaster.objects import quantity
from trainmaster.objects.meta import Json

_FILES = ("configMap", "secret", "downwardAPI", "projected")
_ELSEWHERE = "is not available here: mount it on this machine and name its directory in a hostPath volume instead"
_SHARE = 'is not mounted here; say in trainmaster.yaml which directory stands for it: volumes: {{"{}": DIRECTORY}}'


@dataclass(frozen=True, slots=True)
class Volume:
    path: Path
    is_read_only: bool = False


class Volumes:
    """Of one pod. `prepare` before its containers start, `refresh` while they run, `remove` when the pod is gone."""

    def __init__(
        self,
        api: PodApi,
        directory: Path,
        token: Callable[[str, str], str],
        *,
        is_mounted: bool = True,
        stand_ins: Mapping[str, Path] | None = None,
    ) -> None:
        """Where nothing can be mounted, scripts in config maps name the directories themselves.

        `stand_ins` are directories for paths of a node (`/path`) and of NFS servers (`server:/path`).
        """
        self._api = api
        self._stand_ins = stand_ins or {}
        self._is_mounted = is_mounted
        self._directory = directory
        self._token = token
        self._published: dict[str, Files] = {}
        self.sources: set[tuple[str, str]] = set()
        """Kind and name of what the files are made of."""
        self._volumes: dict[str, Volume] = {}
        self.memory: dict[str, int] = {}
        """Directories that are to be memory file systems, and their size in bytes."""

    async def prepare(self, pod: Json, node: Json, host_ip: str) -> None:
        """VolumeError while something is missing; may be called again. The pod's address is not known yet."""
        for volume in pod["spec"].get("volumes") or ():
            self._volumes[volume["name"]] = await self._made(volume, pod, node, "", host_ip)

    async def refresh(self, pod: Json, node: Json, ip: str, host_ip: str) -> None:
        """What came of changed config maps, secrets and labels; what has gone missing stays as it was."""
        for volume in pod["spec"].get("volumes") or ():
            if any(kind in volume for kind in _FILES):
                try:
                    await self._made(volume, pod, node, ip, host_ip)
                except VolumeError:
                    continue

    def let_go(self) -> None:
        """Forget what was made: only `remove` is called after this."""
        self._published.clear()
        self._volumes.clear()
        self.sources.clear()

    async def remove(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def scratch(self) -> Path:
        """For temporary files; no volume can have this name."""
        path = self._directory / "..scratch"
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o1777)
        return path

    def mounts(self, container: Json, env: Mapping[str, str]) -> list[Mount]:
        return [self._mount(mount, env) for mount in container.get("volumeMounts") or ()]

    def _mount(self, mount: Json, env: Mapping[str, str]) -> Mount:
        volume = self._volumes.get(mount["name"])
        if volume is None:
            raise VolumeError(f"volume {mount['name']!r} is mounted but not defined")
        part = environment.expand(mount.get("subPathExpr") or "", env) or mount.get("subPath") or ""
        target, is_read_only = os.path.normpath(mount["mountPath"]), volume.is_read_only or bool(mount.get("readOnly"))
        if not part:
            return Mount(str(volume.path), target, is_read_only)
        return Mount(str(_inside(volume.path, part)), target, is_read_only, os.path.realpath(volume.path))

    async def _made(self, volume: Json, pod: Json, node: Json, ip: str, host_ip: str) -> Volume:
        try:
            return await self._make(volume, pod, node, ip, host_ip)
        except (OSError, environment.MissingReference) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise BadVolumeError(f"volume {volume['name']!r}: {reason}") from error

    async def _make(self, volume: Json, pod: Json, node: Json, ip: str, host_ip: str) -> Volume:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        source: Json = volume.get(kind) or {}
        path = self._directory / beneath.step(volume["name"])
        match kind:
            case "emptyDir" | "ephemeral":
                return self._empty(path, source, pod)
            case "hostPath":
                return Volume(self._host_path(source))
            case "nfs":
                return self._share(source, f"volume {volume['name']!r}")
            case "persistentVolumeClaim":
                return await self._claimed(source, pod["metadata"]["namespace"])
            case _ if kind in _FILES:
                files = await self._files(kind, source, pod, node, ip, host_ip)
                if self._published.get(volume["name"]) != files:
                    volume_files.publish(path, files)
                    self._published[volume["name"]] = files
                return Volume(path, is_read_only=True)
        raise VolumeError(f"volume {volume['name']!r}: kind {kind} {_ELSEWHERE}")

    def _paths(self, pod: Json) -> dict[str, str]:
        """Where the pod's volumes are for those who cannot have them mounted."""
        spec = pod["spec"]
        places = {
            volume["name"]: str(self._place(volume["hostPath"]["path"]))
            if "hostPath" in volume
            else str(self._directory / beneath.step(volume["name"]))
            for volume in spec.get("volumes") or ()
            if not volume.keys() & {"persistentVolumeClaim", "nfs"}
        }
        containers = (*(spec.get("initContainers") or ()), *spec["containers"])
        mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
        return {
            os.path.normpath(mount["mountPath"]): places[mount["name"]]
            for mount in mounts
            if mount["name"] in places and not mount.get("subPath") and not mount.get("subPathExpr")
        }

    async def _source(self, kind: str, namespace: str, name: str) -> Json | None:
        self.sources.add((kind, name))
        return await self._api.get(kind, namespace, name)

    def _empty(self, path: Path, source: Json, pod: Json) -> Volume:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and os.geteuid() == 0:
            os.chown(path, -1, group)
            path.chmod(0o2777)
        if source.get("medium") == "Memory":
            self.memory[str(path)] = int(quantity.parse(source.get("sizeLimit") or 0))
        return Volume(path)

    async def _claimed(self, source: Json, namespace: str) -> Volume:
        name = source["claimName"]
        claim = await self._api.get("PersistentVolumeClaim", namespace, name)
        if claim is None:
            raise VolumeError(f'persistentvolumeclaim "{name}" not found')
        bound = claim["spec"].get("volumeName")
        if not bound or (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeError(f'persistentvolumeclaim "{name}" is not bound to a volume yet')
        volume = await self._api.get("PersistentVolume", "", bound)
        if volume is None:
            raise VolumeError(f'persistentvolume "{bound}" of claim "{name}" not found')
        spec: Json = volume["spec"]
        read_only = bool(source.get("readOnly"))
        if "nfs" in spec:
            shared = self._share(spec["nfs"], f"persistentvolume {bound!r}")
            return replace(shared, is_read_only=shared.is_read_only or read_only)
        for kind in ("hostPath", "local"):
            if kind in spec:
                described = spec[kind] | {"type": "DirectoryOrCreate"}
                is_ours = PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
                return Volume(_existing(described) if is_ours else self._host_path(described), read_only)
        kinds = [key for key, value in spec.items() if isinstance(value, dict) and key not in ("claimRef", "capacity")]
        raise VolumeError(f"persistentvolume {bound!r}: kind {', '.join(kinds)} {_ELSEWHERE}")

    def _place(self, path: str) -> Path:
        return stand_in(self._stand_ins, path) or Path(path)

    def _host_path(self, source: Json) -> Path:
        return _existing({**source, "path": str(self._place(source["path"]))})

    def _share(self, source: Json, what: str) -> Volume:
        place = f"{source['server']}:{source['path']}"
        found = stand_in(self._stand_ins, source["path"], source["server"])
        if found is None:
            raise VolumeError(f"{what}: NFS share {place} {_SHARE.format(place)}")
        return Volume(_existing({"path": str(found)}), bool(source.get("readOnly")))

    async def _files(self, kind: str, source: Json, pod: Json, node: Json, ip: str, host_ip: str) -> Files:
        mode = source.get("defaultMode", 0o644)
        namespace = pod["metadata"]["namespace"]
        match kind:
            case "configMap":
                name = source.get("name", "")
                found = await self._source("ConfigMap", namespace, name)
                paths = {} if self._is_mounted else self._paths(pod)
                return volume_files.config_map_files(_relocated(found, paths), source, mode, name)
            case "secret":
                name = source.get("secretName") or source.get("name", "")
                return volume_files.secret_files(await self._source("Secret", namespace, name), source, mode, name)
            case "downwardAPI":
                return volume_files.downward_files(pod, source.get("items") or [], mode, node, ip, host_ip)
            case "serviceAccountToken":
                account = pod["spec"].get("serviceAccountName") or "default"
                access = token_access(pod)
                token = volume_files.File(self._token(namespace, account).encode(), access.mode, access.owner)
                return {source["path"]: token}
        files: Files = {}
        for part in source.get("sources") or ():
            for part_kind, part_source in part.items():
                if part_kind in (*_FILES[:3], "serviceAccountToken"):
                    merged = {"defaultMode": mode, **part_source}
                    files |= await self._files(part_kind, merged, pod, node, ip, host_ip)
        return files


def _relocated(found: Json | None, paths: Mapping[str, str]) -> Json | None:
    if found is None or not paths:
        return found
    return {**found, "data": {key: replace_paths(str(text), paths) for key, text in (found.get("data") or {}).items()}}


def _inside(root: Path, part: str) -> Path:
    """A path below a volume, made if it is missing; a link that leads out of the volume is refused."""
    whole = Path(os.path.realpath(root))
    path = Path(os.path.realpath(whole / part.strip("/")))
    if not path.is_relative_to(whole) or ".." in part.split("/"):
        raise BadVolumeError(f"subPath {part!r} leads out of its volume")
    if path != whole:
        try:
            beneath.make_directories(str(whole), path.relative_to(whole).parts)
        except OSError as error:
            raise BadVolumeError(f"subPath {part!r}: {error.strerror}") from error
    return path


_KINDS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def _existing(source: Json) -> Path:
    """The path of a hostPath, made if its type says so, and checked."""
    path, kind = Path(source["path"]), str(source.get("type") or "")
    try:
        if kind in ("", "DirectoryOrCreate") and not path.exists():
            path.mkdir(parents=True)
        elif kind == "FileOrCreate" and not path.exists():
            path.touch(0o644)
        mode = path.stat().st_mode
    except OSError as error:
        raise VolumeError(f"hostPath {path}: {error.strerror}") from error
    check, name = _KINDS.get(kind.removesuffix("OrCreate"), (lambda _mode: True, ""))
    if not check(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not {name}")
    return path
