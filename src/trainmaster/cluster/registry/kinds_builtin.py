"""The kinds of Kubernetes that this cluster serves, as one table.

What the flags say is how the real API server treats the kind: whether a PUT may create it, whether a PUT without
resourceVersion is taken, whether DELETE answers with the object. Behaviour is elsewhere (`admission`).
"""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.kinds import VERBS, Kind, ScalePaths

_SCALE = ScalePaths(selector=".status.selector")


def _kind(path: str, kind: str, **options: Any) -> Kind:
    """`path` is group/version/plural; the core group is empty."""
    group, version, plural = path.split("/")
    return Kind(group, version, plural, kind, shape=definitions.shape(group, version, kind), **options)


def _core() -> list[Kind]:
    pod_subresources = ("attach", "binding", "eviction", "exec", "log", "portforward", "proxy")
    return [
        _kind("/v1/bindings", "Binding", verbs=("create",)),
        _kind("/v1/configmaps", "ConfigMap", short_names=("cm",)),
        _kind("/v1/endpoints", "Endpoints", short_names=("ep",), singular="endpoints", create_on_update=True),
        _kind("/v1/events", "Event", short_names=("ev",), create_on_update=True),
        _kind("/v1/limitranges", "LimitRange", short_names=("limits",), create_on_update=True),
        _kind(
            "/v1/namespaces",
            "Namespace",
            short_names=("ns",),
            namespaced=False,
            status=True,
            subresources=("finalize",),
            verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
            returns_deleted=True,
        ),
        _kind("/v1/nodes", "Node", short_names=("no",), namespaced=False, status=True, subresources=("proxy",)),
        _kind(
            "/v1/persistentvolumeclaims",
            "PersistentVolumeClaim",
            short_names=("pvc",),
            status=True,
            returns_deleted=True,
        ),
        _kind(
            "/v1/persistentvolumes",
            "PersistentVolume",
            short_names=("pv",),
            namespaced=False,
            status=True,
            returns_deleted=True,
        ),
        _kind(
            "/v1/pods",
            "Pod",
            short_names=("po",),
            categories=("all",),
            status=True,
            subresources=pod_subresources,
            returns_deleted=True,
        ),
        _kind("/v1/resourcequotas", "ResourceQuota", short_names=("quota",), status=True, returns_deleted=True),
        _kind("/v1/secrets", "Secret"),
        _kind("/v1/serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True),
        _kind(
            "/v1/services", "Service", short_names=("svc",), categories=("all",), status=True, subresources=("proxy",)
        ),
    ]


def _workloads() -> list[Kind]:
    return [
        _kind("apps/v1/controllerrevisions", "ControllerRevision"),
        _kind("apps/v1/daemonsets", "DaemonSet", short_names=("ds",), categories=("all",), status=True),
        _kind(
            "apps/v1/deployments", "Deployment", short_names=("deploy",), categories=("all",), status=True, scale=_SCALE
        ),
        _kind("apps/v1/replicasets", "ReplicaSet", short_names=("rs",), categories=("all",), status=True, scale=_SCALE),
        _kind(
            "apps/v1/statefulsets", "StatefulSet", short_names=("sts",), categories=("all",), status=True, scale=_SCALE
        ),
        _kind("batch/v1/cronjobs", "CronJob", short_names=("cj",), categories=("all",), status=True),
        _kind("batch/v1/jobs", "Job", categories=("all",), status=True),
        _kind("autoscaling/v2/horizontalpodautoscalers", "HorizontalPodAutoscaler", **_HPA, versions=("v1",)),
        _kind("autoscaling/v1/horizontalpodautoscalers", "HorizontalPodAutoscaler", **_HPA, versions=("v2",)),
        _kind("policy/v1/poddisruptionbudgets", "PodDisruptionBudget", **_PDB),
    ]


_HPA: dict[str, Any] = {
    "short_names": ("hpa",),
    "categories": ("all",),
    "status": True,
    "storage_version": "v2",
    "storage_group": "autoscaling",
}
_PDB: dict[str, Any] = {"short_names": ("pdb",), "status": True, "unconditional_update": False}
_WIDE: dict[str, Any] = {"namespaced": False, "unconditional_update": False}


def _machinery() -> list[Kind]:
    crd = {"short_names": ("crd", "crds"), "status": True, "categories": ("api-extensions",)}
    rbac = {"create_on_update": True}
    return [
        _kind("coordination.k8s.io/v1/leases", "Lease", create_on_update=True, unconditional_update=False),
        # The same objects as the core group's events: stored there, shown here in newer words.
        _kind("events.k8s.io/v1/events", "Event", short_names=("ev",), create_on_update=True, storage_version="core"),
        _kind("scheduling.k8s.io/v1/priorityclasses", "PriorityClass", short_names=("pc",), namespaced=False),
        _kind("rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole", namespaced=False, **rbac),
        _kind("rbac.authorization.k8s.io/v1/clusterrolebindings", "ClusterRoleBinding", namespaced=False, **rbac),
        _kind("rbac.authorization.k8s.io/v1/roles", "Role", **rbac),
        _kind("rbac.authorization.k8s.io/v1/rolebindings", "RoleBinding", **rbac),
        _kind(
            "storage.k8s.io/v1/storageclasses",
            "StorageClass",
            short_names=("sc",),
            namespaced=False,
            returns_deleted=True,
        ),
        _kind("apiextensions.k8s.io/v1/customresourcedefinitions", "CustomResourceDefinition", **crd, **_WIDE),
        _kind(
            "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "MutatingWebhookConfiguration", **_HOOKS
        ),
        _kind(
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            **_HOOKS,
        ),
        _kind("discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
        _kind("networking.k8s.io/v1/ingresses", "Ingress", short_names=("ing",), status=True),
        _kind("networking.k8s.io/v1/networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    ]


_HOOKS: dict[str, Any] = {**_WIDE, "categories": ("api-extensions",)}

BUILTIN: tuple[Kind, ...] = (*_core(), *_workloads(), *_machinery())
