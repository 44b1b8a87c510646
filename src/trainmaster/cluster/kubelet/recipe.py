"""How a container of a manifest becomes a command with an environment, mounts and limits on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainmaster.cluster.kubelet import environment
from trainmaster.cluster.kubelet.beneath import step
from trainmaster.cluster.kubelet.hosts import hostname_of
from trainmaster.cluster.kubelet.images import ResolvedImage
from trainmaster.cluster.kubelet.launcher import ContainerConfig, Mount
from trainmaster.cluster.kubelet.podscene import Scene
from trainmaster.cluster.kubelet.sandbox import SCRATCH
from trainmaster.objects import quantity
from trainmaster.objects.meta import Json

_FROM_MACHINE = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""All that a container gets of our own environment; everything else is the manifest's, as on a cluster."""

_MESSAGE_LIMIT = 4096


class RootError(Exception):
    """A container that must not run as root would."""


async def configure(scene: Scene, container: Json, attempt: int) -> ContainerConfig:
    """MissingReference, ImageError, VolumeError or RootError when the container cannot be configured."""
    _check_user(scene.pod, container)
    image = scene.house.images.resolve(container.get("image", ""))
    declared = await _declared_env(scene, container)
    argv = image.argv(_expanded(container.get("command"), declared), _expanded(container.get("args"), declared))
    env = _whole_env(scene, container, image, declared)
    if (tools := scene.house.tools) is not None and not image.has_own_ssh:
        argv = [tools.text(scene.pod, word) for word in argv]
        env = {name: tools.text(scene.pod, value) if name != "PATH" else value for name, value in env.items()}
    identity = _identity(scene.pod, container)
    limits = (container.get("resources") or {}).get("limits") or {}
    return ContainerConfig(
        name=f"{scene.uid}/{container['name']}/{attempt}",
        argv=argv,
        env=env,
        cwd=container.get("workingDir") or image.workdir or scene.house.workdir,
        log=scene.log_path(container["name"], attempt),
        mounts=_mounts(scene, container, image, declared, attempt),
        memory=int(quantity.parse(limits["memory"])) if "memory" in limits else None,
        cpu=float(quantity.parse(limits["cpu"])) if "cpu" in limits else None,
        processes=scene.house.processes,
        stdin=bool(container.get("stdin")),
        tty=bool(container.get("tty")),
        **identity,
    )


def _expanded(words: list[str] | None, env: Mapping[str, str]) -> list[str]:
    return [environment.expand(str(word), env) for word in words or ()]


async def _declared_env(scene: Scene, container: Json) -> dict[str, str]:
    namespace = scene.pod["metadata"]["namespace"]
    found: dict[str, dict[str, Json]] = {"ConfigMap": {}, "Secret": {}}
    for kind, name in sorted(set(_references(container))):
        if (held := await scene.house.api.get(kind, namespace, name)) is not None:
            found[kind][name] = held
    return environment.container_env(
        scene.pod,
        container,
        config_maps=found["ConfigMap"],
        secrets=found["Secret"],
        services=_services(scene),
        node=scene.node,
        pod_ip=scene.ip,
        host_ip=scene.house.sandbox.host_ip,
    )


def _services(scene: Scene) -> list[Json]:
    tools, services = scene.house.tools, scene.house.hosts.services()
    return services if tools is None else [tools.reachable(scene.pod, service) for service in services]


def _references(container: Json) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                yield kind, source[key].get("name", "")
    for variable in container.get("env") or ():
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if reference := (variable.get("valueFrom") or {}).get(key):
                yield kind, reference.get("name", "")


def _whole_env(scene: Scene, container: Json, image: ResolvedImage, declared: Mapping[str, str]) -> dict[str, str]:
    machine = {name: os.environ[name] for name in _FROM_MACHINE if name in os.environ}
    defaults = {
        "HOSTNAME": hostname_of(scene.pod),
        "PYTHONUNBUFFERED": "1",
        **({"TERM": "xterm"} if container.get("tty") else {}),
        **({"TMPDIR": SCRATCH} if scene.house.sandbox.kind == "namespaces" else {}),
    }
    gpus = scene.house.gpus.env(scene.pod, container, scene.node)
    env = {**machine, **defaults, **gpus, **image.env, **declared}
    prefix = [str(path) for path in image.path_prefix]
    if (tools := scene.house.tools) is not None and not image.has_own_ssh:
        return tools.env(scene.pod, env, prefix)
    env["PATH"] = os.pathsep.join([*prefix, env.get("PATH") or os.defpath])
    return env


def _mounts(
    scene: Scene, container: Json, image: ResolvedImage, env: Mapping[str, str], attempt: int
) -> tuple[Mount, ...]:
    """Volumes win over what the image has at the same place."""
    mounts = {
        os.path.normpath(target): Mount(str(source), os.path.normpath(target))
        for target, source in image.overlays.items()
    }
    mounts |= {mount.target: mount for mount in scene.volumes.mounts(container, env)}
    target = os.path.normpath(container.get("terminationMessagePath") or "/dev/termination-log")
    mounts[target] = Mount(str(_message_file(scene, container["name"], attempt)), target)
    return tuple(mounts.values())


def _message_path(scene: Scene, container: str, attempt: int) -> Path:
    return scene.directory / step(container) / f"{attempt}.termination"


def _message_file(scene: Scene, container: str, attempt: int) -> Path:
    path = _message_path(scene, container, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o666)
    return path


def termination_message(scene: Scene, container: str, attempt: int) -> str:
    """What the container left at its terminationMessagePath."""
    try:
        with _message_path(scene, container, attempt).open("rb") as file:
            return file.read(_MESSAGE_LIMIT).decode(errors="replace")
    except OSError:
        return ""


def _check_user(pod: Json, container: Json) -> None:
    """Images are not unpacked here, so what one says of its user is not known: a container runs as we do."""
    context = _context(pod, container)
    if not context.get("runAsNonRoot"):
        return
    metadata = pod["metadata"]
    whose = f'(pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {container["name"]})'
    if context.get("runAsUser") == 0:
        raise RootError(f"container's runAsUser breaks non-root policy {whose}")
    if context.get("runAsUser") is None and os.geteuid() == 0:
        remedy = "set runAsUser, or run the cluster as an ordinary user"
        raise RootError(f"container has runAsNonRoot and image will run as root {whose}: {remedy}")


def _context(pod: Json, container: Json) -> dict[str, Any]:
    return {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}


def _identity(pod: Json, container: Json) -> dict[str, Any]:
    """Only root can give a process another user; for anyone else containers run as they are."""
    context = _context(pod, container)
    no_new = context.get("allowPrivilegeEscalation") is False
    if os.geteuid() != 0:
        return {"no_new_privileges": no_new}
    groups = [*(context.get("supplementalGroups") or ())]
    if context.get("fsGroup") is not None:
        groups.append(context["fsGroup"])
    return {
        "user": context.get("runAsUser"),
        "group": context.get("runAsGroup"),
        "groups": groups,
        "no_new_privileges": no_new,
    }
