"""From manifests to objects on a cluster: checked here first, so that a mistake is told before anything is made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.problem import Problem
from trainmaster.api.settings import Settings
from trainmaster.cli import applying
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.follow import JobRef
from trainmaster.cli.resources import Resources, UnknownKind
from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists, Invalid, KubeError, Unreachable
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


@dataclass(frozen=True, slots=True)
class Submission:
    """What was read, in the order of the files: jobs last, since they use the rest."""

    others: tuple[Document, ...]
    jobs: tuple[Document, ...]
    advice: tuple[str, ...]
    told: tuple[str, ...] = ()
    """The same advice in the words of the events that the cluster will make of it."""


def checked(documents: Sequence[Document], settings: Settings) -> Submission:
    """Raises BadDocument with all problems of all jobs."""
    jobs, others, advice, told, problems = [], [], [], [], []
    for document in documents:
        found = frameworks.serving(document.body.get("apiVersion"), document.body["kind"])
        if found is None:
            others.append(document)
            if not document.metadata.get("name") and not document.is_generated:
                problems.append(f"{document}: metadata.name is needed")
            continue
        framework, resource = found
        read = reading.read(framework, document.named, settings, resource)
        jobs.append(document)
        advice += [f"{document}: {item.message}" for item in read.advice]
        told += [item.message for item in read.advice]
        if read.problems:
            told_of = naming(document, read.problems)
            listed = "\n".join(f"  {item}" for item in (*told_of, *(one.message for one in read.advice)))
            problems.append(f"{document} is not valid:\n{listed}")
    if problems:
        raise BadDocument("\n".join(problems))
    return Submission(tuple(others), tuple(jobs), tuple(advice), tuple(told))


def naming(document: Document, problems: Iterable[Problem]) -> Iterator[Problem]:
    """What is wrong with a name that stands in for another is wrong with what the user gave."""
    for problem in problems:
        is_of_ours = document.is_generated and problem.path == "metadata.name"
        yield replace(problem, path="metadata.generateName") if is_of_ours else problem


def refuse_twins(jobs: Iterable[Document], namespace: str) -> None:
    """Raises BadDocument. `namespace` is that of jobs that name none."""
    seen: dict[tuple[object, ...], Document] = {}
    for document in jobs:
        if document.is_generated:
            continue
        found = frameworks.serving(document.body.get("apiVersion"), document.body["kind"])
        kind = (found[1].group, found[1].plural) if found is not None else ()
        key = (*kind, document.metadata.get("namespace") or namespace, document.metadata.get("name"))
        first = seen.setdefault(key, document)
        if first is not document:
            where = f", first in {first.source}" if first.source != document.source else ""
            raise BadDocument(f"{document}: it is given twice{where}; leave one out, or rename one")


class Submitter:
    def __init__(self, client: Client, namespace: str, *, makes_namespaces: bool) -> None:
        self._client = client
        self._resources = Resources(client)
        self._namespace = namespace
        self._makes_namespaces = makes_namespaces

    async def submit(self, submission: Submission, made: dict[JobRef, float]) -> None:
        """Jobs are put into `made` one by one, as they are there: who is interrupted must know which are. Beside each
        is when that was, by the clock of the event loop."""
        clock = asyncio.get_running_loop().time
        if self._makes_namespaces:
            await self._make_namespaces([*submission.others, *submission.jobs])
        for document in submission.others:
            await self._apply(document)
        for document in submission.jobs:
            resource = await self._resource(document)
            began = clock()
            made[_reference(resource, await self._create(document, resource))] = began

    async def _make_namespaces(self, documents: Sequence[Document]) -> None:
        """On a cluster of one's own there is nobody else to make them."""
        wanted = {str(document.metadata.get("namespace") or "") for document in documents} | {self._namespace}
        for name in sorted(wanted - {"", "default"}):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                await self._client.create(NAMESPACES, body)
            except AlreadyExists:
                continue

    async def _resource(self, document: Document) -> Resource:
        try:
            return await self._resources.of(str(document.body["apiVersion"]), document.body["kind"])
        except UnknownKind as error:
            raise BadDocument(f"{document}: {error}") from error

    async def _apply(self, document: Document) -> None:
        """What jobs use may be there from an earlier run; they are to find it as it is written now."""
        resource = await self._resource(document)
        if document.is_generated:
            await self._create(document, resource)
            return
        body = applying.placed(document.body, self._where(document, resource))
        try:
            await applying.apply(self._client, resource, body)
        except Unreachable:  # no fault of the document's
            raise
        except KubeError as error:
            refused = applying.refusal(document, error, "trainmaster apply --force-conflicts -f FILE")
            raise BadDocument(f"{document}: {error}") if refused is error else refused from error

    async def _create(self, document: Document, resource: Resource) -> dict[str, Any]:
        where = self._where(document, resource)
        place = {"namespace": where} if where else {}
        try:
            return await self._client.create(
                resource, {**document.body, "metadata": {**document.metadata, **place}}, where
            )
        except AlreadyExists as error:
            raise BadDocument(f"{document}: it exists already; delete it first, or rename yours") from error
        except Invalid as error:
            raise BadDocument(f"{document}: {error.message}") from error
        except Unreachable:  # no fault of the document's
            raise
        except KubeError as error:
            raise BadDocument(f"{document}: {error}") from error

    def _where(self, document: Document, resource: Resource) -> str:
        return str(document.metadata.get("namespace") or self._namespace) if resource.namespaced else ""


def _reference(resource: Resource, made: Json) -> JobRef:
    metadata = made["metadata"]
    return JobRef(resource, metadata.get("namespace", ""), metadata["name"], metadata["uid"])
