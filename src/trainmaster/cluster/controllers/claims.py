"""Volumes for claims: binds what fits, makes a directory where nothing does, and cleans up behind released claims.

A claim that names a volume, or that a volume was reserved for, gets that one; another gets the smallest unclaimed
volume of its class, modes and size. If there is none, a directory of this machine becomes one, whatever the class: a
manifest written for a cloud's disks runs here too. Only the class "" asks for existing volumes alone, as on a cluster.

When a claim goes, its volume is Released: kept if its policy is Retain, removed with its directory if it is one of ours
and the policy is Delete. Claims in use by a pod and bound volumes are held by the usual protection finalizers.
`chosen`, `provisioned` and `phase_of` are pure.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

from trainmaster.cluster.controllers.control import (
    Loop,
    Objects,
    Registry,
    has_finalizer,
    is_terminating,
    key_of,
    with_metadata,
    without_finalizer,
)
from trainmaster.cluster.storage.store import Change
from trainmaster.objects import quantity

Json: TypeAlias = Mapping[str, Any]
Work: TypeAlias = tuple[Literal["claim", "volume"], str]

PROVISIONER = "trainmaster.dev/directory"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def class_of(claim: Json) -> str | None:
    """None is "whatever is there"; the empty class means that nothing is to be made."""
    annotated = (claim["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    named = annotated if annotated is not None else claim["spec"].get("storageClassName")
    return None if named is None else str(named)


def size_of(claim: Json) -> Fraction:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity.parse(requests.get("storage", 0))


def is_reserved_for(volume: Json, claim: Json) -> bool:
    """Its claimRef names this claim: by uid once bound, by name alone where a person wrote it beforehand."""
    reference = volume["spec"].get("claimRef") or {}
    metadata = claim["metadata"]
    same_name = (reference.get("namespace"), reference.get("name")) == (metadata["namespace"], metadata["name"])
    return same_name and reference.get("uid", metadata["uid"]) in ("", metadata["uid"])


def chosen(claim: Json, volumes: Iterable[Json]) -> Json | None:
    """The volume this claim gets, of all there are."""
    named = claim["spec"].get("volumeName")
    free = [volume for volume in volumes if _is_free_for(volume, claim)]
    if named:
        return next((volume for volume in free if volume["metadata"]["name"] == named), None)
    reserved = next((volume for volume in free if volume["spec"].get("claimRef")), None)
    if reserved is not None:
        return reserved
    fitting = [volume for volume in free if _fits(volume, claim)]
    return min(fitting, key=lambda volume: (_capacity(volume), volume["metadata"]["name"]), default=None)


def _is_free_for(volume: Json, claim: Json) -> bool:
    if is_terminating(volume) or (volume.get("status") or {}).get("phase") in ("Released", "Failed"):
        return False
    return not volume["spec"].get("claimRef") or is_reserved_for(volume, claim)


def _fits(volume: Json, claim: Json) -> bool:
    held, wanted = volume["spec"], claim["spec"]
    labels = volume["metadata"].get("labels") or {}
    return (
        (held.get("storageClassName") or "") == (class_of(claim) or "")
        and (held.get("volumeMode") or "Filesystem") == (wanted.get("volumeMode") or "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(held.get("accessModes") or ())
        and _selects(wanted.get("selector") or {}, labels)
        and _capacity(volume) >= size_of(claim)
    )


def _selects(selector: Json, labels: Json) -> bool:
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_satisfied(each, labels) for each in selector.get("matchExpressions") or ())


def _satisfied(requirement: Json, labels: Json) -> bool:
    key, values = str(requirement.get("key")), requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _capacity(volume: Json) -> Fraction:
    return quantity.parse((volume["spec"].get("capacity") or {}).get("storage", 0))


def may_provision(claim: Json) -> bool:
    """Not for a claim that asks for one certain volume: by name, by labels, or by the empty class."""
    return not claim["spec"].get("volumeName") and not claim["spec"].get("selector") and class_of(claim) != ""


def provisioned(claim: Json, root: Path) -> dict[str, Any]:
    """A new volume for this claim alone: a directory under `root`."""
    name = f"pvc-{claim['metadata']['uid']}"
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [VOLUME_PROTECTION],
        },
        "spec": {
            "accessModes": list(claim["spec"].get("accessModes") or ["ReadWriteOnce"]),
            "capacity": {"storage": requests.get("storage", "1Gi")},
            "claimRef": reference_to(claim),
            "hostPath": {"path": str(root / name), "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class_of(claim) or "",
            "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        },
    }


def reference_to(claim: Json) -> dict[str, Any]:
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }


def phase_of(volume: Json, claim: Json | None) -> str:
    """`claim` is what now has the name in the volume's claimRef."""
    reference = volume["spec"].get("claimRef")
    if not reference:
        return "Available"
    if claim is None or not is_reserved_for(volume, claim):
        return "Released" if reference.get("uid") else "Available"
    return "Bound" if claim["spec"].get("volumeName") == volume["metadata"]["name"] else "Available"


def is_bound(claim: Json) -> bool:
    return BIND_COMPLETED in (claim["metadata"].get("annotations") or {}) and bool(claim["spec"].get("volumeName"))


def directory_of(volume: Json, root: Path) -> Path | None:
    """The directory we made for it; None if it is not ours to remove."""
    annotations = volume["metadata"].get("annotations") or {}
    expected = root / str(volume["metadata"]["name"])
    path = (volume["spec"].get("hostPath") or {}).get("path")
    return expected if annotations.get(PROVISIONED_BY) == PROVISIONER and path == str(expected) else None


class ClaimKeeper:
    """`root` is where directories for claims are made."""

    def __init__(self, registry: Registry, *, root: Path) -> None:
        self._root = root
        self._claims = Objects.of(registry, "", "v1", "persistentvolumeclaims")
        self._volumes = Objects.of(registry, "", "v1", "persistentvolumes")
        self._pods = Objects.of(registry, "", "v1", "pods")
        sources = {
            self._claims.kind.prefix: self._claim_changed,
            self._volumes.kind.prefix: self._volume_changed,
            self._pods.kind.prefix: self._pod_changed,
        }
        self._loop: Loop[Work] = Loop("claims", registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _claim_changed(self, change: Change) -> Iterator[Work]:
        yield "claim", change.entry.key
        if name := change.entry.value["spec"].get("volumeName"):
            yield "volume", name

    def _volume_changed(self, change: Change) -> Iterator[Work]:
        yield "volume", change.entry.key
        reference = change.entry.value["spec"].get("claimRef")
        if reference:
            yield "claim", f"{reference.get('namespace')}/{reference.get('name')}"
        elif change.type != "DELETED":
            yield from (("claim", key_of(claim)) for claim in self._claims.list() if not is_bound(claim))

    def _pod_changed(self, change: Change) -> Iterator[Work]:
        """A pod that ended may have been the last to use a claim that is to go."""
        pod = change.entry.value
        if change.type == "DELETED" or _has_ended(pod):
            for name in _claims_of(pod):
                claim = self._claims.get(f"{pod['metadata']['namespace']}/{name}")
                if claim is not None and is_terminating(claim):
                    yield "claim", key_of(claim)

    async def _reconcile(self, work: Work) -> None:
        sort, key = work
        obj = (self._claims if sort == "claim" else self._volumes).get(key)
        if obj is None:
            return
        if sort == "volume":
            await self._keep_volume(obj)
        elif is_terminating(obj):
            await self._let_claim_go(obj)
        elif is_bound(obj):
            await self._check_claim(obj)
        else:
            await self._serve_claim(obj)

    async def _serve_claim(self, claim: Json) -> None:
        volume = chosen(claim, self._volumes.list())
        if volume is None:
            if not may_provision(claim):
                await self._set_phase(self._claims, claim, {"phase": "Pending"})
                return
            volume = await self._provision(claim)
        if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            spec = {**volume["spec"], "claimRef": reference_to(claim)}
            volume = await self._volumes.update(_held({**volume, "spec": spec}, VOLUME_PROTECTION))
        annotations = {**(claim["metadata"].get("annotations") or {}), BIND_COMPLETED: "yes"}
        if not claim["spec"].get("volumeName"):
            annotations[BOUND_BY_CONTROLLER] = "yes"
        spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
        bound = with_metadata(_held({**claim, "spec": spec}, CLAIM_PROTECTION), annotations=annotations)
        await self._check_claim(await self._claims.update(bound))

    async def _provision(self, claim: Json) -> dict[str, Any]:
        wanted = provisioned(claim, self._root)
        path = Path(wanted["spec"]["hostPath"]["path"])
        await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
        return await self._volumes.create(wanted)

    async def _check_claim(self, claim: Json) -> None:
        """A bound claim says what it got; one whose volume was taken from under it is Lost."""
        volume = self._volumes.get(claim["spec"]["volumeName"])
        if volume is None or not is_reserved_for(volume, claim):
            await self._set_phase(self._claims, claim, {"phase": "Lost"})
            return
        held = volume["spec"]
        status = {"phase": "Bound", "accessModes": held.get("accessModes"), "capacity": held.get("capacity")}
        await self._set_phase(self._claims, claim, status)

    async def _let_claim_go(self, claim: Json) -> None:
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        in_use = any(name in _claims_of(pod) and not _has_ended(pod) for pod in self._pods.list(namespace))
        if has_finalizer(claim, CLAIM_PROTECTION) and not in_use:
            await self._claims.update(without_finalizer(claim, CLAIM_PROTECTION))

    async def _keep_volume(self, volume: dict[str, Any]) -> None:
        reference = volume["spec"].get("claimRef") or {}
        phase = phase_of(volume, self._claims.get(f"{reference.get('namespace')}/{reference.get('name')}"))
        if is_terminating(volume):
            if has_finalizer(volume, VOLUME_PROTECTION) and phase != "Bound":
                await self._volumes.update(without_finalizer(volume, VOLUME_PROTECTION))
        elif phase == "Released" and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self._reclaim(volume)
        else:
            await self._set_phase(self._volumes, volume, {"phase": phase})

    async def _reclaim(self, volume: dict[str, Any]) -> None:
        directory = directory_of(volume, self._root)
        if directory is None:
            message = "this cluster deletes only directories it made itself: remove the data and the volume by hand"
            await self._set_phase(self._volumes, volume, {"phase": "Failed", "message": message})
            return
        await self._set_phase(self._volumes, volume, {"phase": "Released"})
        await asyncio.to_thread(_remove, directory)
        await self._volumes.delete(volume)

    async def _set_phase(self, objects: Objects, obj: Json, status: dict[str, Any]) -> None:
        before = obj.get("status") or {}
        if any(before.get(name) != value for name, value in status.items()):
            await objects.update({**obj, "status": {**before, **status}}, subresource="status")


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


def _held(obj: Json, finalizer: str) -> dict[str, Any]:
    finalizers = list(obj["metadata"].get("finalizers") or ())
    return with_metadata(obj, finalizers=[*finalizers, *([] if finalizer in finalizers else [finalizer])])


def _has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _claims_of(pod: Json) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    names = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes)
    return {str(name) for name in names if name}
