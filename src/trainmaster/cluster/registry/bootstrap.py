"""What a cluster has before anybody asks: namespaces, accounts, system priorities, gang schedulers' kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainmaster.cluster.registry.gang_kinds import DEFINITIONS as GANG_DEFINITIONS
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import ApiError

if TYPE_CHECKING:  # the registry calls this; at run time it would be a circle
    from trainmaster.cluster.registry.registry import Registry

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


async def bootstrap(registry: Registry) -> None:
    namespaces = _kind(registry, "", "v1", "namespaces")
    for name in SYSTEM_NAMESPACES:
        await _ensure(registry, namespaces, {"metadata": {"name": name}})
    for entry in registry.list(namespaces).items:
        if not entry.value["metadata"].get("deletionTimestamp"):
            await ensure_account(registry, entry.key)
    priorities = _kind(registry, "scheduling.k8s.io", "v1", "priorityclasses")
    for name, value in _PRIORITIES.items():
        await _ensure(registry, priorities, {"metadata": {"name": name}, "value": value})
    definitions = _kind(registry, "apiextensions.k8s.io", "v1", "customresourcedefinitions")
    for definition in GANG_DEFINITIONS:
        await _ensure(registry, definitions, definition)
    queues = _kind(registry, "scheduling.volcano.sh", "v1beta1", "queues")
    await _ensure(registry, queues, DEFAULT_QUEUE)


async def ensure_account(registry: Registry, namespace: str) -> None:
    """Every namespace has an account for pods that name none; one that is going away again needs none."""
    account = {"metadata": {"name": "default", "namespace": namespace}}
    try:
        await _ensure(registry, _kind(registry, "", "v1", "serviceaccounts"), account)
    except ApiError as error:
        if error.reason not in ("Forbidden", "NotFound"):
            raise


DEFAULT_QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "default"},
    "spec": {"weight": 1},
}


def _kind(registry: Registry, group: str, version: str, plural: str) -> Kind:
    found = registry.kinds.lookup(group, version, plural)
    if found is None:
        raise LookupError(f"{plural}.{group}/{version} is not served")
    return found


async def _ensure(registry: Registry, kind: Kind, obj: Mapping[str, Any]) -> None:
    """Looked up first: a restart over a full store writes nothing."""
    namespace, name = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
    if registry.store.get(kind.prefix, kind.key(namespace, name)) is not None:
        return
    try:
        await registry.create(kind, namespace, obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
