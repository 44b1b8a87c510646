"""From manifests to objects on a cluster: checked here first, so that a mistake is told before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.settings import Settings
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
            continue
        framework, resource = found
        read = reading.read(framework, document.body, settings, resource)
        jobs.append(document)
        advice += [f"{document}: {item.message}" for item in read.advice]
        told += [item.message for item in read.advice]
        if read.problems:
            listed = "\n".join(f"  {item}" for item in (*read.problems, *(one.message for one in read.advice)))
            problems.append(f"{document} is not valid:\n{listed}")
    if problems:
        raise BadDocument("\n".join(problems))
    return Submission(tuple(others), tuple(jobs), tuple(advice), tuple(told))


class Submitter:
    def __init__(self, client: Client, namespace: str, *, makes_namespaces: bool) -> None:
        self._client = client
        self._resources = Resources(client)
        self._namespace = namespace
        self._makes_namespaces = makes_namespaces

    async def submit(self, submission: Submission, made: list[JobRef]) -> None:
        """Jobs are appended to `made` one by one, as they are there: who is interrupted must know which are."""
        if self._makes_namespaces:
            await self._make_namespaces([*submission.others, *submission.jobs])
        for document in submission.others:
            await self._create(document, is_job=False)
        for document in submission.jobs:
            job = await self._create(document, is_job=True)
            made.append(job)

    async def _make_namespaces(self, documents: Sequence[Document]) -> None:
        """On a cluster of one's own there is nobody else to make them."""
        wanted = {str(document.body.get("metadata", {}).get("namespace", "")) for document in documents}
        for name in sorted(wanted - {"", "default"}):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                await self._client.create(NAMESPACES, body)
            except AlreadyExists:
                continue

    async def _create(self, document: Document, *, is_job: bool) -> JobRef:
        body = document.body
        try:
            resource = await self._resources.of(str(body["apiVersion"]), body["kind"])
            made = await self._client.create(resource, self._placed(body, resource))
        except UnknownKind as error:
            raise BadDocument(f"{document}: {error}") from error
        except AlreadyExists as error:
            if is_job:
                raise BadDocument(f"{document}: it exists already; delete it first, or rename yours") from error
            made = await self._client.get(resource, body["metadata"]["name"], self._where(body, resource))
        except Invalid as error:
            raise BadDocument(f"{document}: {error.message}") from error
        except Unreachable:  # no fault of the document's
            raise
        except KubeError as error:
            raise BadDocument(f"{document}: {error}") from error
        return _reference(resource, made)

    def _where(self, body: Json, resource: Resource) -> str:
        return str(body["metadata"].get("namespace", self._namespace)) if resource.namespaced else ""

    def _placed(self, body: Json, resource: Resource) -> dict[str, Any]:
        where = self._where(body, resource)
        return {**body, "metadata": {**body["metadata"], **({"namespace": where} if where else {})}}


def _reference(resource: Resource, made: Json) -> JobRef:
    metadata = made["metadata"]
    return JobRef(resource, metadata.get("namespace", ""), metadata["name"], metadata["uid"])
