"""Every object a job would have when fully started, in the order of creation: what `trainmaster plan` prints."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.engine import companions, gang
from trainmaster.engine.actions import Create, Stage
from trainmaster.engine.delegates import job_of
from trainmaster.engine.observed import Observed
from trainmaster.engine.pods import pod_of
from trainmaster.engine.services import plan_services
from trainmaster.objects.resource import JOBS, PODS


def blueprint(observed: Observed) -> Iterator[Create]:
    """Made from the same pieces as a plan, for a job of which nothing exists yet and nothing is waited for."""
    planned = (*gang.plan_group(observed), *companions.plan_companions(observed), *plan_services(observed))
    yield from (action for action in planned if isinstance(action, Create))
    for member in observed.job.members():
        if observed.framework.role(member.role).delegated:
            yield Create(JOBS, job_of(observed.framework, member), Stage.PODS)
        else:
            yield Create(PODS, pod_of(observed.framework, member), Stage.PODS)
