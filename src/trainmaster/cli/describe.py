"""`trainmaster describe`: for someone whose job does not do what it should.

Gathers what the API knows (the job, its pods, events, the end of one log) and tells it from cause to remedy. Objects
that are not jobs are shown as they are, with their events.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.api.status import status_of
from trainmaster.cli import description, podgroups, ranks, targets
from trainmaster.cli.advice import Case, keeping_of
from trainmaster.cli.connection import Choice, Failure, Session, carry_out
from trainmaster.cli.ranks import Ending, RankView
from trainmaster.cli.targets import Found
from trainmaster.kube.errors import KubeError
from trainmaster.objects.resource import EVENTS, PODS

TAIL = 10
"""Lines of the log of the rank that failed first."""


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    words: tuple[str, ...]
    selector: str = ""


def run(choice: Choice, options: DescribeOptions) -> int:
    return carry_out("describe", choice, lambda session: describe(session, options))


async def describe(session: Session, options: DescribeOptions) -> int:
    found: list[Found] = []
    for target in await targets.parse(session, options.words):
        found += await targets.stored(session, target, options.selector)
    if not found:
        raise Failure("there is nothing to describe; list what is there with: trainmaster get -A")
    for number, one in enumerate(found):
        text = await (_job(session, one) if one.entry.framework is not None else _other(session, one))
        print("\n\n" + text if number else text)
    return 0


async def _job(session: Session, job: Found) -> str:
    status = status_of(job.body.get("status"))
    its_ranks = await ranks.of(session, job)
    groups = await podgroups.of(session.client, job.namespace, job.name, job.uid)
    about = {job.uid, *(one["metadata"].get("uid") for one in (*groups, *(rank.pod for rank in its_ranks)))}
    events = await _events(session, job, about)
    policy = (job.body.get("spec") or {}).get("runPolicy") or {}
    target = f"{job.entry.resource.kind.lower()}/{job.name}"
    failed = ranks.first_to_fail(its_ranks)
    tail = await _tail(session, *failed) if failed is not None and not status.is_true("Succeeded") else []
    case = Case(
        target if job.namespace == session.namespace else f"{target} -n {job.namespace}",
        job.entry.resource.kind,
        status,
        its_ranks,
        events,
        is_suspended=bool(policy.get("suspend")),
        tail=tail,
        keeping=keeping_of(job.entry.resource, job.body.get("spec")),
        gang=next((held for group in groups if (held := podgroups.obstacle_of(group)) is not None), None),
    )
    return description.of_job(job.body, case, session.now())


async def _other(session: Session, found: Found) -> str:
    events = await _events(session, found, {found.uid}) if found.uid else []
    return description.of_object(found.body, events, session.now())


async def _events(session: Session, found: Found, uids: set[Any]) -> list[dict[str, Any]]:
    """Events about any of these, oldest first."""
    try:
        page = await session.client.list(EVENTS, found.namespace or "default")
    except KubeError as error:
        print(f"warning: events cannot be read: {error}", file=sys.stderr)
        return []
    about = [event for event in page.items if (event.get("involvedObject") or {}).get("uid") in uids]
    return sorted(about, key=description.moment)


async def _tail(session: Session, rank: RankView, ending: Ending) -> Sequence[str]:
    namespace = rank.pod["metadata"]["namespace"]
    params = [("container", ending.container), ("tailLines", str(TAIL))]
    if ending.was_restarted:
        params.append(("previous", "true"))
    try:
        body = await session.client.request("GET", PODS.path(namespace, rank.name, "log"), params=tuple(params))
    except KubeError as error:
        return [f"(its log cannot be read: {error})"]
    return body.decode(errors="replace").splitlines()[-TAIL:]
