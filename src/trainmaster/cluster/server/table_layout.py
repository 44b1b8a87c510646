"""The columns that `kubectl get` shows for the built-in kinds: one layout per resource, keyed by group and plural.

A layout is a list of column names (a trailing `*` marks those of `-o wide`) and the function of `table_columns` that
makes the cells. Kinds without a layout get name and creation time; custom resources bring their own (`table`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainmaster.cluster.server import table_columns as cells
from trainmaster.cluster.server import table_pod
from trainmaster.objects.meta import Json


@dataclass(frozen=True, slots=True)
class Layout:
    columns: tuple[str, ...]
    make: Callable[[Json, float], list[Any]]

    def definitions(self) -> list[dict[str, Any]]:
        return [definition(name.rstrip("*"), wide=name.endswith("*")) for name in self.columns]


def definition(name: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    kind = "date" if name == "Created At" else kind
    form = "name" if name == "Name" else ""
    return {"name": name, "type": kind, "format": form, "description": "", "priority": int(wide)}


_TEMPLATE = ("Containers*", "Images*", "Selector*")
_POD = ("Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*")
_NODE = ("OS-Image*", "Kernel-Version*", "Container-Runtime*")
_BOUND = ("Name", "Role", "Age", "Users*", "Groups*", "ServiceAccounts*")
_HELD = ("StorageClass", "VolumeAttributesClass")
_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"

NAME_AND_TIME = Layout(("Name", "Created At"), cells.created)
NAME_AND_AGE = Layout(("Name", "Age"), cells.aged)
LAYOUTS: dict[tuple[str, str], Layout] = {
    ("", "pods"): Layout(_POD, table_pod.cells),
    ("", "services"): Layout(
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"), cells.service
    ),
    ("", "endpoints"): Layout(("Name", "Endpoints", "Age"), cells.endpoints),
    ("", "nodes"): Layout(
        ("Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", *_NODE), cells.node
    ),
    ("", "events"): Layout(
        ("Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*", "Name*"),
        cells.event,
    ),
    ("", "namespaces"): Layout(("Name", "Status", "Age"), cells.namespace),
    ("", "secrets"): Layout(("Name", "Type", "Data", "Age"), cells.secret),
    ("", "configmaps"): Layout(("Name", "Data", "Age"), cells.config_map),
    ("", "serviceaccounts"): Layout(("Name", "Secrets", "Age"), cells.service_account),
    ("", "persistentvolumes"): Layout(
        (
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            *_HELD,
            "Reason",
            "Age",
            "VolumeMode*",
        ),
        cells.volume,
    ),
    ("", "persistentvolumeclaims"): Layout(
        ("Name", "Status", "Volume", "Capacity", "Access Modes", *_HELD, "Age", "VolumeMode*"), cells.claim
    ),
    ("", "resourcequotas"): Layout(("Name", "Request", "Limit", "Age"), cells.quota),
    ("", "limitranges"): NAME_AND_TIME,
    ("batch", "jobs"): Layout(("Name", "Status", "Completions", "Duration", "Age", *_TEMPLATE), cells.job),
    ("batch", "cronjobs"): Layout(
        ("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age", *_TEMPLATE), cells.cron_job
    ),
    ("apps", "deployments"): Layout(("Name", "Ready", "Up-to-date", "Available", "Age", *_TEMPLATE), cells.deployment),
    ("apps", "statefulsets"): Layout(("Name", "Ready", "Age", *_TEMPLATE[:2]), cells.stateful_set),
    ("apps", "replicasets"): Layout(("Name", "Desired", "Current", "Ready", "Age", *_TEMPLATE), cells.replica_set),
    ("apps", "daemonsets"): Layout(
        ("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", *_TEMPLATE),
        cells.daemon_set,
    ),
    ("autoscaling", "horizontalpodautoscalers"): Layout(
        ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), cells.autoscaler
    ),
    ("scheduling.k8s.io", "priorityclasses"): Layout(
        ("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), cells.priority_class
    ),
    ("coordination.k8s.io", "leases"): Layout(("Name", "Holder", "Age"), cells.lease),
    ("policy", "poddisruptionbudgets"): Layout(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), cells.disruption_budget
    ),
    ("storage.k8s.io", "storageclasses"): Layout(
        ("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        cells.storage_class,
    ),
    ("discovery.k8s.io", "endpointslices"): Layout(
        ("Name", "AddressType", "Ports", "Endpoints", "Age"), cells.endpoint_slice
    ),
    (_RBAC, "roles"): NAME_AND_TIME,
    (_RBAC, "clusterroles"): NAME_AND_TIME,
    (_RBAC, "rolebindings"): Layout(_BOUND, cells.binding),
    (_RBAC, "clusterrolebindings"): Layout(_BOUND, cells.binding),
    (_HOOKS, "mutatingwebhookconfigurations"): Layout(("Name", "Webhooks", "Age"), cells.webhooks),
    (_HOOKS, "validatingwebhookconfigurations"): Layout(("Name", "Webhooks", "Age"), cells.webhooks),
}
LAYOUTS["events.k8s.io", "events"] = LAYOUTS["", "events"]
