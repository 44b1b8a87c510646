"""`trainmaster delete`: objects by name, label or manifest; returns when they are gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainmaster.cli import documents, duration, targets
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.documents import Document
from trainmaster.cli.targets import Found, Target
from trainmaster.cli.watching import DOCUMENTS, watched
from trainmaster.kube.errors import Conflict, NotFound
from trainmaster.kube.watch import Changed, Listed, Selection


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    words: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    selector: str = ""
    all_of_kind: bool = False
    cascade: Literal["background", "foreground", "orphan"] = "background"
    now: bool = False
    force: bool = False
    grace_period: int = -1
    wait: bool = True
    timeout: str = "0s"
    ignore_not_found: bool = False
    output: Literal["", "name"] = ""

    @property
    def grace_seconds(self) -> int | None:
        """None is what the object itself says."""
        if self.force:
            return 0
        if self.now:
            return 1
        return self.grace_period if self.grace_period >= 0 else None


def run(choice: Choice, options: DeleteOptions) -> int:
    return carry_out("delete", choice, lambda session: delete(session, options))


async def delete(session: Session, options: DeleteOptions) -> int:
    patience = duration.seconds(options.timeout, "--timeout")
    found = await _found(session, options)
    if not found and not options.ignore_not_found:
        print("No resources found.", file=sys.stderr)
    deleted = [one for one in found if await _delete(session, options, one)]
    if options.wait:
        await until_gone(session, deleted, patience or None)
    return 0


async def _found(session: Session, options: DeleteOptions) -> list[Found]:
    if options.files and (options.words or options.selector or options.all_of_kind):
        raise Misuse("-f already says what to delete; leave out names, -l and --all")
    if options.now and (options.force or options.grace_period >= 0):
        raise Misuse("--now, --force and --grace-period exclude one another")
    if options.files:
        meant = await _in_files(session, options.files)
        lenient = options.ignore_not_found
        return [one for target, place in meant for one in await targets.stored(place, target, lenient=lenient)]
    if not options.words:
        raise Misuse("say what to delete: KIND NAME, JOB, KIND -l LABELS, KIND --all, or -f FILE")
    return await targets.objects(
        session,
        options.words,
        selector=options.selector,
        all_of_kind=options.all_of_kind,
        lenient=options.ignore_not_found,
    )


async def _in_files(session: Session, files: Sequence[str]) -> list[tuple[Target, Session]]:
    """Each object of the manifests, and a session in its namespace."""
    meant = []
    for document in documents.read(files):
        group, _, _ = str(document.body["apiVersion"]).rpartition("/")
        kind = document.body["kind"]
        entry = await session.catalog.find(f"{kind}.{group}" if group else kind)
        if entry is None:
            raise Misuse(f"{document}: the cluster serves no such kind")
        metadata = document.metadata
        if not metadata.get("name"):
            raise Misuse(f"{document}: it has no metadata.name{_generated(document)}")
        namespace = str(metadata.get("namespace") or session.namespace)
        place = replace(session, namespace=namespace, everywhere=False)
        meant.append((Target(entry, str(metadata["name"])), place))
    return meant


def _generated(document: Document) -> str:
    return "; the server made one of its metadata.generateName, so delete it by that" if document.is_generated else ""


async def _delete(session: Session, options: DeleteOptions, found: Found) -> bool:
    try:
        await session.client.delete(
            found.entry.resource,
            found.name,
            found.namespace,
            uid=found.uid,
            propagation=options.cascade.capitalize(),
            grace_seconds=options.grace_seconds,
        )
    except NotFound:
        return False
    except Conflict as error:
        if "Precondition" not in error.message:
            raise
        return False  # someone else deleted it, and made another of its name
    forcibly = " forcibly" if options.force else ""
    print(str(found) if options.output == "name" else f'{found.entry.title} "{found.name}"{forcibly} deleted')
    return True


async def until_gone(session: Session, deleted: Sequence[Found], patience: float | None) -> None:
    """Raises Failure when the time runs out."""
    try:
        async with asyncio.timeout(patience):
            for found in deleted:
                await _gone(session, found)
    except TimeoutError:
        names = ", ".join(map(str, deleted))
        raise Failure(
            f"not all of {names} are gone within {patience:g} s: see their metadata.finalizers, or wait longer"
        ) from None


async def _gone(session: Session, found: Found) -> None:
    selection = Selection(found.entry.resource, found.namespace, found.name)
    async with aclosing(watched(session.client, selection, session.outage, DOCUMENTS)) as messages:
        async for message in messages:
            match message:
                case Listed(items) if not any(_is_same(found, item) for item in items):
                    return
                case Changed("DELETED", item) if _is_same(found, item):
                    return


def _is_same(found: Found, item: Mapping[str, Any]) -> bool:
    return not found.uid or item["metadata"].get("uid") == found.uid
