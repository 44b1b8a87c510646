"""What the operator's flags decide, as far as plans depend on it. Frozen, passed in, never global."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS, Resource

COORDINATOR_IMAGE = "docker.io/library/alpine:3.10"
KUBECTL_DELIVERY_IMAGE = "kubeflow/kubectl-delivery:latest"
InitContainerMode = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class InitContainer:
    """How PyTorch workers wait for their master before their own containers start.

    `auto` waits in the worker's own image, so nothing foreign is pulled; `always` runs `image` with nslookup as
    training-operator 1.9 does; `never` adds nothing. A `template` (the list from a file) replaces both.
    """

    mode: InitContainerMode = "auto"
    image: str = "alpine:3.10"
    max_tries: int = 100
    template: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    compat_2021: bool = False
    """Behave as the single-framework operators of 2021 where training-operator 1.9 differs."""

    cluster_domain: str = ""
    gang_scheduler: str = ""
    """Empty: no gang scheduling. `volcano`, `kube-batch`, or the schedulerName of scheduler-plugins."""

    init_container: InitContainer = InitContainer()
    kubectl_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    """Brings kubectl to the launchers of MPIJobs that start their ranks with it."""

    coordinator_image: str = COORDINATOR_IMAGE
    """Runs in the pods of paddle-operator's jobs until the names of their peers resolve; empty adds nothing."""

    etcd_servers: tuple[str, ...] = ()
    """Of the etcd through which elastic Paddle jobs learn how many they are to be; none does without."""

    strict_topology: bool = False
    """Refuse new jobs whose replicas could not find one another, instead of warning of it."""

    autoscaling_version: str = "v2"
    """`v2beta2` on Kubernetes before 1.23."""

    def adapted(self, resource: Resource) -> Resource:
        """The version of a resource that this cluster serves."""
        return (
            replace(resource, version=self.autoscaling_version) if resource == HORIZONTAL_POD_AUTOSCALERS else resource
        )


DEFAULT = Settings()
