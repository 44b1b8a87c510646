"""What happened to jobs, for Prometheus, under the names that training-operator's dashboards know."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from trainmaster.engine.actions import Mark
from trainmaster.objects.meta import Object
from trainmaster.objects.resource import PODS, SERVICES, Resource

LABELS = ("job_namespace", "framework")
MARKS: tuple[Mark, ...] = ("created", "deleted", "successful", "failed", "restarted")


class JobMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = {
            mark: Counter(f"training_operator_jobs_{mark}_total", f"Jobs {mark}", LABELS, registry=registry)
            for mark in MARKS
        }
        self._mpi = {
            mark: Counter(f"mpi_operator_jobs_{mark}_total", f"MPIJobs {mark}", registry=registry) for mark in MARKS
        }
        leads = "1 while this process may write: it leads, or there is no election"
        self._mpi_leads = Gauge("mpi_operator_is_leader", leads, registry=registry)
        held = ("launcher", "namespace")
        self._mpi_jobs = Gauge("mpi_operator_job_info", "1 for every MPIJob that there is", held, registry=registry)
        texts = {
            "created_pods": "Pods created",
            "deleted_pods": "Pods deleted",
            "created_pod_groups": "PodGroups created",
            "deleted_pod_groups": "PodGroups deleted",
            "succeeded_service_creation": "Services created",
            "failed_service_creation": "Services that could not be created",
        }
        self._objects = {name: Counter(f"{name}_total", text, registry=registry) for name, text in texts.items()}
        self._failed_pods = Counter("failed_pods_total", "Pods that failed and were replaced", registry=registry)

    def marked(self, mark: Mark, namespace: str, framework: str) -> None:
        self._jobs[mark].labels(namespace, framework).inc()
        if framework == "mpi":  # again under the names of mpi-operator's dashboards
            self._mpi[mark].inc()
        if mark == "restarted":
            self._failed_pods.inc()

    def leading(self, is_leader: Callable[[], bool]) -> None:
        """Whom to ask, when somebody wants to know."""
        self._mpi_leads.set_function(is_leader)

    def on_mpi_job(self, old: Object | None, new: Object | None) -> None:
        """Follows a cache of MPIJobs."""
        if new is None and old is not None:
            self._mpi_jobs.remove(f"{old.metadata.name}-launcher", old.metadata.namespace)
        elif old is None and new is not None:
            self._mpi_jobs.labels(f"{new.metadata.name}-launcher", new.metadata.namespace).set(1)

    def created(self, resource: Resource) -> None:
        self._count({PODS: "created_pods", SERVICES: "succeeded_service_creation"}, resource, "created_pod_groups")

    def not_created(self, resource: Resource) -> None:
        if resource == SERVICES:
            self._objects["failed_service_creation"].inc()

    def deleted(self, resource: Resource) -> None:
        self._count({PODS: "deleted_pods"}, resource, "deleted_pod_groups")

    def _count(self, names: dict[Resource, str], resource: Resource, group: str) -> None:
        name = names.get(resource) or (group if resource.kind == "PodGroup" else "")
        if name:
            self._objects[name].inc()
