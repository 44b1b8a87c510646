"""A headless Service per replica, of the replica's name: how ranks find each other by DNS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.api.framework import Framework
from trainmaster.api.job import Member
from trainmaster.engine import labels
from trainmaster.engine.actions import Create, Delete, Stage
from trainmaster.engine.observed import Observed
from trainmaster.engine.owner import owner_reference
from trainmaster.engine.recipe import ReplicaRecipe
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import SERVICES


@dataclass(frozen=True, slots=True, repr=False)
class ServiceRecipe(ReplicaRecipe):
    """Only of replicas that have a Service."""

    def build(self) -> Json:
        body = service_of(self.framework, self.member)
        assert body is not None
        return body


def service_of(framework: Framework, member: Member) -> Json | None:
    selector = labels.selector_labels(framework, member)
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": member.name,
            "namespace": member.job.namespace,
            "labels": selector,
            "ownerReferences": [owner_reference(member.job)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            "ports": _ports(framework, member),
            # A rank must be able to resolve its peers before they are ready, or all wait for one another.
            "publishNotReadyAddresses": True,
        },
    }
    return framework.service(body, member)


def _ports(framework: Framework, member: Member) -> list[Json]:
    container = template.container_named(member.replica.template, framework.container_names) or {}
    ports = template.ports_of(container)
    return [
        {
            # A Service with several ports must name them all.
            "name": port.get("name") or f"port-{port['containerPort']}",
            "port": port["containerPort"],
            "targetPort": port["containerPort"],
            **({"protocol": port["protocol"]} if port.get("protocol") else {}),
        }
        for port in ports
        if "containerPort" in port
    ]


def plan_services(observed: Observed) -> Iterator[Create | Delete]:
    """Services for the replicas there should be; none for replicas scaled away."""
    existing = {service.metadata.name for service in observed.owned_services}
    for member in observed.job.members():
        if member.name not in existing and service_of(observed.framework, member) is not None:
            yield Create(SERVICES, ServiceRecipe(observed.framework, member), Stage.SERVICES)
    for service in observed.owned_services:
        slot = observed.slot_of(service.metadata.name)
        if slot is not None and not observed.is_wanted(slot) and not service.metadata.is_terminating:
            yield Delete(SERVICES, service.metadata)
