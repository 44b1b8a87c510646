"""Every object a job would have when fully started, in the order of creation: what `trainmaster plan` prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from trainmaster.engine import companions, gang
from trainmaster.engine.actions import Create, Stage
from trainmaster.engine.delegates import JobRecipe
from trainmaster.engine.observed import Observed
from trainmaster.engine.pods import PodRecipe
from trainmaster.engine.services import plan_services
from trainmaster.objects.meta import Meta, OwnerReference
from trainmaster.objects.pod import Pod, PodStatus
from trainmaster.objects.resource import JOBS, PODS


def blueprint(observed: Observed) -> Iterator[Create]:
    """Made from the same pieces as a plan, for a job of which nothing exists yet and nothing is waited for."""
    observed = _imagined(observed)
    planned = (*gang.plan_group(observed), *companions.plan_companions(observed), *plan_services(observed))
    yield from (action for action in planned if isinstance(action, Create))
    for member in observed.job.members():
        if observed.framework.role(member.role).delegated:
            yield Create(JOBS, JobRecipe(observed.framework, member), Stage.PODS)
        else:
            yield Create(PODS, PodRecipe(observed.framework, member), Stage.PODS)


def _imagined(observed: Observed) -> Observed:
    """With every pod there and waiting: some companions are made of their addresses."""
    meta = observed.job.meta
    job = observed.job if meta.uid else replace(observed.job, meta=msgspec.structs.replace(meta, uid="<uid>"))
    owner = (OwnerReference(uid=job.meta.uid, controller=True),)
    pods = [
        Pod(
            Meta(name=member.name, namespace=job.namespace, uid=f"<uid of {member.name}>", owner_references=owner),
            PodStatus(pod_ip=f"<address of {member.name}>"),
        )
        for member in job.members()
    ]
    return replace(observed, job=job, pods=tuple(pods))
