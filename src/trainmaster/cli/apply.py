"""`trainmaster apply`: brings objects to what manifests say, by server-side apply, as the manager `trainmaster`.

Jobs are checked here first, all of them, so that a mistake is told before anything is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainmaster.api.settings import Settings
from trainmaster.cli import applying, documents, printing
from trainmaster.cli.connection import Choice, Misuse, Session, carry_out
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.resources import Resources, UnknownKind
from trainmaster.cli.submit import checked
from trainmaster.kube.errors import KubeError, NotFound
from trainmaster.objects.resource import Resource


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
    _refuse_generated(everything)
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
    try:
        before: dict[str, Any] | None = await session.client.get(
            resource, metadata["name"], metadata.get("namespace", "")
        )
    except NotFound:
        before = None
    force, dry_run = options.force_conflicts, options.dry_run == "server"
    try:
        after = await applying.apply(session.client, resource, body, force=force, dry_run=dry_run)
    except KubeError as error:
        raise applying.refusal(document, error) from error
    return after, _outcome(before, after)


def _placed(session: Session, options: ApplyOptions, document: Document, resource: Resource) -> dict[str, Any]:
    named = document.metadata.get("namespace")
    if resource.namespaced and named and options.namespace and named != options.namespace:
        raise BadDocument(f"{document}: metadata.namespace is {named}, but -n says {options.namespace}; drop one")
    return applying.placed(document.body, (named or session.namespace) if resource.namespaced else "")


def _refuse_generated(everything: Sequence[Document]) -> None:
    for document in everything:
        if document.is_generated:
            raise BadDocument(
                f"{document}: metadata.generateName makes a new object each time, and apply finds objects by their "
                f"names; give it a metadata.name, or use: kubectl create -f FILE"
            )


def _outcome(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    if before is None:
        return "created"
    return "unchanged" if _essence(before) == _essence(after) else "configured"


def _essence(item: dict[str, Any]) -> dict[str, Any]:
    """Without the server's bookkeeping and without the status, which controllers write meanwhile."""
    kept = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": kept}


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
