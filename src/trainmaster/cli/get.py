"""`trainmaster get`: objects as kubectl shows them; without a kind, every training job in one table."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from trainmaster.cli import printing, watching
from trainmaster.cli.catalog import Entry
from trainmaster.cli.connection import Choice, Misuse, Session, carry_out, in_words
from trainmaster.cli.tables import Answer, Printer, Shape, as_table, overview
from trainmaster.cli.targets import Target, parse
from trainmaster.cli.watching import DOCUMENTS, TABLE, TABLES, Documents, version_of, watched
from trainmaster.kube.client import JSON
from trainmaster.kube.errors import Forbidden, NotFound
from trainmaster.kube.watch import Changed, Listed, Selection


@dataclass(frozen=True, slots=True)
class GetOptions:
    words: tuple[str, ...] = ()
    output: Literal["", "wide", "yaml", "json", "name"] = ""
    watch: bool = False
    selector: str = ""
    field_selector: str = ""
    show_labels: bool = False
    no_headers: bool = False
    ignore_not_found: bool = False


def run(choice: Choice, options: GetOptions) -> int:
    return carry_out("get", choice, lambda session: get(session, options))


async def get(session: Session, options: GetOptions) -> int:
    # Beside a selector a word can only be a kind: one that nobody knows is a mistake, and not an absent job.
    targets = await parse(session, options.words, lenient=options.ignore_not_found and not options.selector)
    if options.words and not targets:
        return 0
    if options.selector and any(target.name for target in targets):
        raise Misuse("-l chooses among all objects of a kind; leave out either it or the names")
    if options.output in ("yaml", "json", "name"):
        return await _forms(session, options, targets)
    if not options.words:
        return await _overview(session, options, targets)
    return await _tables(session, options, targets)


async def _tables(session: Session, options: GetOptions, targets: Sequence[Target]) -> int:
    """One table per kind, and with -w the changes below them."""
    answers = [(target, await _asked(session, options, target, TABLE)) for target in targets]
    kinds = list(dict.fromkeys(target.entry for target in targets))
    printers = {entry: _printer(session, options, entry, several=len(kinds) > 1) for entry in kinds}
    count = 0
    for entry in kinds:
        merged = _merged([answer for target, answer in answers if target.entry == entry], session.now())
        if count and merged["rows"]:
            print()
        count += printers[entry].show(merged)
    if not count:
        _say_nothing_found(session, options, targets)
    if options.watch:
        sys.stdout.flush()
        async with asyncio.TaskGroup() as group:
            for target, answer in answers:
                version, printer = version_of(answer), printers[target.entry]
                group.create_task(_follow(session, options, target, version, printer), name=f"watch {target}")
    return 0


def _merged(answers: Sequence[Answer], now: float) -> Answer:
    tables = [as_table(answer, now) for answer in answers]
    rows = [row for table in tables for row in table.get("rows") or ()]
    return {**tables[0], "rows": rows}


async def _follow(session: Session, options: GetOptions, target: Target, version: str, printer: Printer) -> None:
    async with aclosing(_events(session, options, target, version, TABLES)) as events:
        async for answer in events:
            printer.show(answer)
            sys.stdout.flush()


async def _overview(session: Session, options: GetOptions, targets: Sequence[Target]) -> int:
    """All jobs of all kinds, as far as one may see them."""
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_jobs(session, options, target), name=f"list {target}") for target in targets]
    pages = [(target, page) for target, task in zip(targets, asked, strict=True) if (page := task.result()) is not None]
    jobs = [(target.entry.resource.kind, job) for target, page in pages for job in page.get("items") or ()]
    printer = Printer(_shape(options, with_namespace=session.everywhere), session.now)
    if not printer.show(overview(jobs, session.now())):
        _say_nothing_found(session, options, targets)
    if options.watch:
        sys.stdout.flush()
        async with asyncio.TaskGroup() as group:
            for target, page in pages:
                work = _follow_jobs(session, options, target, version_of(page), printer)
                group.create_task(work, name=f"watch {target}")
    return 0


async def _jobs(session: Session, options: GetOptions, target: Target) -> dict[str, Any] | None:
    try:
        return await watching.listed(session.client, _selection(session, options, target))
    except NotFound:
        return None
    except Forbidden as error:
        print(f"warning: {in_words(error)}", file=sys.stderr)
        return None


async def _follow_jobs(session: Session, options: GetOptions, target: Target, version: str, printer: Printer) -> None:
    async with aclosing(_events(session, options, target, version, DOCUMENTS)) as events:
        async for job in events:
            printer.show(overview([(target.entry.resource.kind, job)], session.now()))
            sys.stdout.flush()


async def _forms(session: Session, options: GetOptions, targets: Sequence[Target]) -> int:
    answers = [(target, await _asked(session, options, target, JSON)) for target in targets]
    found = [(target, item) for target, answer in answers for item in _items(target, answer)]
    if options.output == "name" or options.watch:
        for target, item in found:
            _print_form(options, target, item)
    elif len(targets) == 1 and targets[0].name and not found:
        return 0  # --ignore-not-found
    else:
        is_one = len(targets) == 1 and targets[0].name
        items = [item for _, item in found]
        print(printing.text(printing.bare(items[0]) if is_one else printing.as_list(items), _form(options)))
    if options.watch:
        sys.stdout.flush()
        async with asyncio.TaskGroup() as group:
            for target, answer in answers:
                work = _follow_forms(session, options, target, version_of(answer))
                group.create_task(work, name=f"watch {target}")
    return 0


async def _follow_forms(session: Session, options: GetOptions, target: Target, version: str) -> None:
    async with aclosing(_events(session, options, target, version, DOCUMENTS)) as events:
        async for item in events:
            _print_form(options, target, item)
            sys.stdout.flush()


def _print_form(options: GetOptions, target: Target, item: dict[str, Any]) -> None:
    if options.output == "name":
        print(f"{target.entry.title}/{item['metadata']['name']}")
        return
    text = printing.text(printing.bare(item), _form(options))
    print(f"---\n{text}" if options.output == "yaml" else text)


def _form(options: GetOptions) -> printing.Form:
    return "json" if options.output == "json" else "yaml"


def _items(target: Target, answer: Answer) -> list[dict[str, Any]]:
    items = answer["items"] or [] if "items" in answer else [answer]
    return [_headed(target, item) for item in items]


def _headed(target: Target, item: Answer) -> Answer:
    """Items of a List do not say what they are; here they do."""
    resource = target.entry.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


async def _asked(session: Session, options: GetOptions, target: Target, accept: str) -> Answer:
    selection = _selection(session, options, target)
    if not target.name or session.everywhere or options.watch:
        answer = await watching.listed(session.client, selection, accept)
        if target.name and not (answer.get("rows") or answer.get("items")) and not options.ignore_not_found:
            await _one(session, target, accept)  # the server says best that there is none
        return answer
    try:
        return await _one(session, target, accept)
    except NotFound:
        if not options.ignore_not_found:
            raise
        return {"items": []}


async def _one(session: Session, target: Target, accept: str) -> Answer:
    resource = target.entry.resource
    if session.everywhere and resource.namespaced:
        raise Misuse(f"{target}: an object cannot be named across all namespaces; use -n instead of -A")
    path = resource.path(session.scope(resource), target.name)
    answer: Answer = msgspec.json.decode(await session.client.request("GET", path, accept=accept))
    return answer


async def _events(
    session: Session, options: GetOptions, target: Target, version: str, form: Documents
) -> AsyncGenerator[Answer, None]:
    """Changes for ever. Where history has a gap, everything is shown again."""
    selection = _selection(session, options, target)
    async with aclosing(watched(session.client, selection, session.outage, form, since=version)) as messages:
        async for message in messages:
            match message:
                case Listed(items):
                    for item in items:
                        yield _headed(target, item)
                case Changed(_, item):
                    yield item


def _selection(session: Session, options: GetOptions, target: Target) -> Selection:
    resource = target.entry.resource
    return Selection(resource, session.scope(resource), target.name, options.selector, options.field_selector)


def _printer(session: Session, options: GetOptions, entry: Entry, *, several: bool) -> Printer:
    is_across = session.everywhere and entry.resource.namespaced
    prefix = f"{entry.title}/" if several else ""
    return Printer(_shape(options, with_namespace=is_across, prefix=prefix), session.now)


def _shape(options: GetOptions, *, with_namespace: bool, prefix: str = "") -> Shape:
    return Shape(
        wide=options.output == "wide",
        with_namespace=with_namespace,
        with_labels=options.show_labels,
        headers=not options.no_headers,
        prefix=prefix,
    )


def _say_nothing_found(session: Session, options: GetOptions, targets: Sequence[Target]) -> None:
    if options.ignore_not_found:
        return
    place = session.place(targets[0].entry.resource) if targets else ""
    print(f"No {'resources' if options.words else 'training jobs'} found{place}.", file=sys.stderr)
