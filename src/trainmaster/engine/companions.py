"""Objects beside pods and Services: made when missing, mended when what we want has changed, removed when not wanted.

What we want has changed when it no longer has the hash of what we last wrote, which is kept on the object. A `spec` is
not compared with what stands there: defaults filled in by the server are no drift. Files, rights and who has them are:
servers keep those as they were written, so that any difference is somebody's hand. What another owner holds is never
touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from trainmaster.api.job import Job
from trainmaster.engine import labels
from trainmaster.engine.actions import Claim, Create, Delete, Patch, Stage
from trainmaster.engine.observed import Observed
from trainmaster.engine.owner import owner_reference
from trainmaster.engine.recipe import Given
from trainmaster.objects.meta import FiledObject, Json, Object, Service
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import ROLE_BINDINGS, Resource

CONTENT = ("spec", "data", "rules", "subjects", "roleRef", "type")
"""The parts of an object that we write."""

KEPT_AS_WRITTEN = ("data", "rules", "subjects")

Held = Object | Service


def plan_companions(observed: Observed, *, lasting_only: bool = False) -> Iterator[Create | Patch]:
    for companion in observed.framework.companions(observed.job):
        if companion.frozen or (lasting_only and not companion.keep):
            continue
        held = observed.companions.get((companion.resource.kind, companion.body["metadata"]["name"]))
        if companion.keep and held is not None and not held.metadata.is_controlled_by(observed.job.meta.uid):
            held = None  # pods depend on what lasts: asked to make it, the server says that the name is taken
        resource = observed.job.settings.adapted(companion.resource)
        body = _labelled(observed, companion.body)
        yield from plan_object(observed.job, resource, body, held, companion.secret)


def plan_narrowing(observed: Observed, left: Callable[[Pod], bool]) -> Iterator[Create | Patch]:
    """What names pods, once a job that stops has those that are left. The same plan deletes the others: as soon as
    a name is free, somebody else may have it."""
    staying = replace(observed, pods=tuple(pod for pod in observed.pods if left(pod)))
    for companion in observed.framework.companions(staying.job):
        held = observed.companions.get((companion.resource.kind, companion.body["metadata"]["name"]))
        if companion.names_pods and held is not None:
            resource = observed.job.settings.adapted(companion.resource)
            yield from plan_object(observed.job, resource, _labelled(observed, companion.body), held)


def claims_of(observed: Observed) -> Iterator[Claim]:
    """Names that pods will look for, as far as it is not known already that the job has them. Our watches see only
    what bears our labels, so that a user's own object of such a name is not in the picture."""
    for resource, name in observed.framework.claims(observed.job):
        held = observed.companions.get((resource.kind, name))
        if held is None or not held.metadata.is_controlled_by(observed.job.meta.uid):
            yield Claim(observed.job.settings.adapted(resource), name)


def plan_removals(observed: Observed, *, is_active: bool) -> Iterator[Delete]:
    """Companions that the job no longer asks for, and those that do not outlive its activity."""
    kept = {
        (companion.resource.kind, companion.body["metadata"]["name"])
        for companion in observed.framework.companions(observed.job)
        if companion.keep or is_active
    }
    resources = {resource.kind: resource for resource in observed.framework.companion_resources}
    for (kind, name), held in observed.companions.items():
        if (kind, name) not in kept and kind in resources:
            yield from plan_removal(observed.job, observed.job.settings.adapted(resources[kind]), held)


def plan_object(
    job: Job, resource: Resource, body: Json, held: Held | None, secret: Callable[[], Json] | None = None
) -> Iterator[Create | Patch]:
    digest = _digest(body)
    if held is None:
        stage = Stage.BINDINGS if resource == ROLE_BINDINGS else Stage.COMPANIONS
        yield Create(resource, Given(_owned(job, body, digest)), stage, secret)
    elif _is_ours(job, held) and (held.metadata.annotations.get(labels.APPLIED) != digest or _is_altered(held, body)):
        yield Patch(resource, held.metadata, _mended(body, held, digest))


def _is_altered(held: Held, body: Json) -> bool:
    if not isinstance(held, FiledObject):
        return False
    return any(not _has(held.part(part), body[part]) for part in KEPT_AS_WRITTEN if part in body)


def _has(current: Any, wanted: Any) -> bool:
    """Whether all that is wanted stands there. Lists have nothing else; objects may, be it a default or a note."""
    if isinstance(wanted, Mapping):
        fields = current if isinstance(current, dict) else {}
        return all(key in fields and _has(fields[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        items = current if isinstance(current, list) else []
        return len(items) == len(wanted) and all(map(_has, items, wanted))
    return bool(current == wanted)


def plan_removal(job: Job, resource: Resource, held: Held | None) -> Iterator[Delete]:
    if held is not None and _is_ours(job, held):
        yield Delete(resource, held.metadata)


def _is_ours(job: Job, held: Held) -> bool:
    return held.metadata.is_controlled_by(job.meta.uid) and not held.metadata.is_terminating


def _digest(body: Json) -> str:
    content = {part: body[part] for part in CONTENT if part in body}
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]


def _labelled(observed: Observed, body: Json) -> Json:
    """Our watches see only what is marked as a job's: a cluster has many Secrets, and most are none of our business."""
    metadata = body["metadata"]
    marks = {**metadata.get("labels", {}), **labels.job_labels(observed.framework, observed.job)}
    return {**body, "metadata": {**metadata, "labels": marks}}


def _owned(job: Job, body: Json, digest: str) -> Json:
    metadata = body["metadata"]
    annotations = {**metadata.get("annotations", {}), labels.APPLIED: digest}
    return {**body, "metadata": {**metadata, "annotations": annotations, "ownerReferences": [owner_reference(job)]}}


def _mended(body: Json, held: Held, digest: str) -> Json:
    content: dict[str, Any] = {part: body[part] for part in CONTENT if part in body}
    if "spec" in content and isinstance(held, Object):
        content["spec"] = _replacing(held.at("spec"), content["spec"])
    annotations = {**body["metadata"].get("annotations", {}), labels.APPLIED: digest}
    return {
        "metadata": {"resourceVersion": held.metadata.resource_version, "annotations": annotations},
        **content,
    }


def _replacing(current: Any, wanted: Any) -> Any:
    """A merge patch that leaves nothing but what is wanted: it must say null for every field that is to go."""
    if not isinstance(current, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    gone = dict.fromkeys(key for key in current if key not in wanted)
    return {**{key: _replacing(current.get(key), value) for key, value in wanted.items()}, **gone}
