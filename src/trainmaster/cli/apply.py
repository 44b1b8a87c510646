"""`trainmaster apply`: brings objects to what manifests say, by server-side apply, as the manager `trainmaster`.

Jobs are checked here first, all of them, so that a mistake is told before anything is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from trainmaster.api.settings import Settings
from trainmaster.cli import documents, printing
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.resources import Resources, UnknownKind
from trainmaster.cli.submit import checked
from trainmaster.kube.errors import Conflict, Invalid, KubeError, NotFound
from trainmaster.objects.resource import Resource

MANAGER = "trainmaster"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    files: tuple[str, ...]
    force_conflicts: bool = False
    dry_run: Literal["none", "server"] = "none"
    output: Literal["", "yaml", "json", "name"] = ""
    namespace: str = ""
    """As given with -n: then no object may name another."""


def run(choice: Choice, options: ApplyOptions) -> int:
    return carry_out("apply", choice, lambda session: apply(session, options))


async def apply(session: Session, options: ApplyOptions) -> int:
    if not options.files:
        raise Misuse("say what to apply: -f FILE, a directory, or - for stdin")
    submission = checked(list(documents.read(options.files)), Settings())
    for advice in submission.advice:
        print(f"warning: {advice}", file=sys.stderr)
    everything = (*submission.others, *submission.jobs)
    if not everything:
        raise Misuse(f"{', '.join(options.files)}: there is nothing in it")
    resources, applied = Resources(session.client), []
    for document in everything:
        resource = await _resource(session, resources, document)
        body, outcome = await _applied(session, options, document, resource)
        applied.append(body)
        _tell(options, resource, body, outcome)
    if options.output in ("yaml", "json"):
        _print(applied, options.output)
    return 0


async def _resource(session: Session, resources: Resources, document: Document) -> Resource:
    """Its kind may have been made by a CustomResourceDefinition a moment ago: then the server is asked anew."""
    wanted = str(document.body["apiVersion"]), document.body["kind"]
    for known in (resources, Resources(session.client)):
        try:
            return await known.of(*wanted)
        except UnknownKind as error:
            unknown = error
    raise BadDocument(f"{document}: {unknown}")


async def _applied(
    session: Session, options: ApplyOptions, document: Document, resource: Resource
) -> tuple[dict[str, Any], str]:
    """What is stored now, and what that was: created, configured or unchanged."""
    body = _placed(session, options, document, resource)
    metadata = body["metadata"]
    where = metadata.get("namespace", "")
    try:
        before: dict[str, Any] | None = await session.client.get(resource, metadata["name"], where)
    except NotFound:
        before = None
    try:
        answer = await session.client.request(
            "PATCH",
            resource.path(where, metadata["name"]),
            params=_params(options),
            body=msgspec.json.encode(body),
            content_type=APPLY_PATCH,
        )
    except KubeError as error:
        raise _refusal(document, error) from error
    after: dict[str, Any] = msgspec.json.decode(answer)
    return after, _outcome(before, after)


def _params(options: ApplyOptions) -> tuple[tuple[str, str], ...]:
    force = (("force", "true"),) if options.force_conflicts else ()
    dry = (("dryRun", "All"),) if options.dry_run == "server" else ()
    return (("fieldManager", MANAGER), *force, *dry)


def _placed(session: Session, options: ApplyOptions, document: Document, resource: Resource) -> dict[str, Any]:
    metadata = document.body.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise BadDocument(f"{document}: metadata.name is needed; apply finds an object by its name")
    named = metadata.get("namespace")
    if resource.namespaced and named and options.namespace and named != options.namespace:
        raise BadDocument(f"{document}: metadata.namespace is {named}, but -n says {options.namespace}; drop one")
    where = {"namespace": named or session.namespace} if resource.namespaced else {}
    dropped = ("namespace", "managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")
    kept = {key: value for key, value in metadata.items() if key not in dropped}
    body = {key: value for key, value in document.body.items() if key != "status"}
    return {**body, "metadata": {**kept, **where}}


def _outcome(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    if before is None:
        return "created"
    return "unchanged" if _essence(before) == _essence(after) else "configured"


def _essence(item: dict[str, Any]) -> dict[str, Any]:
    """Without the server's bookkeeping and without the status, which controllers write meanwhile."""
    kept = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": kept}


def _refusal(document: Document, error: KubeError) -> Exception:
    if isinstance(error, Conflict):
        return Failure(
            f"{document}: {error.message}\nOther programs own these fields. Take them over with --force-conflicts, "
            f"or leave them out of the manifest."
        )
    if isinstance(error, Invalid):
        return BadDocument(f"{document}: {error.message}")
    if isinstance(error, NotFound):
        return Failure(f"{document}: {error.message or error}; does its namespace exist?")
    return error


def _tell(options: ApplyOptions, resource: Resource, body: dict[str, Any], outcome: str) -> None:
    if options.output in ("yaml", "json"):
        return
    title = ".".join(part for part in (resource.kind.lower(), resource.group) if part)
    name = f"{title}/{body['metadata']['name']}"
    dry = " (server dry run)" if options.dry_run == "server" else ""
    print(name if options.output == "name" else f"{name} {outcome}{dry}")


def _print(applied: Sequence[dict[str, Any]], output: str) -> None:
    form: printing.Form = "json" if output == "json" else "yaml"
    body = printing.bare(applied[0]) if len(applied) == 1 else printing.as_list(applied)
    print(printing.text(body, form))
