"""Jobs in namespaces that this operator does not watch: silence would leave their authors guessing.

An operator that is confined to one namespace looks over the fence once a minute. A job there that nobody has touched
for a while gets a Warning event that says who watches what. Where the right to look is missing, this is said in the
log, once, and asked for again now and then: it may be granted later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.kube import logs
from trainmaster.kube.client import Client
from trainmaster.kube.errors import Forbidden, KubeError
from trainmaster.kube.recorder import EventType, Recorder, Reference
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Object
from trainmaster.objects.resource import Resource
from trainmaster.operator.observe import decoded

log = logs.get(__name__)

EVERY, RARELY = 60.0, 600.0
"""Seconds between two looks, and while we may not look."""

PATIENCE = 30.0
"""Seconds after which another operator, if there is one, would have written a status."""

REASON = "NamespaceNotWatched"
WARNING: EventType = "Warning"


class Outside:
    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        jobs: Mapping[Resource, Framework],
        namespace: str,
        now: Callable[[], float],
        is_leading: Callable[[], bool],
    ) -> None:
        self._client, self._recorder, self._jobs = client, recorder, jobs
        self._namespace, self._now, self._is_leading = namespace, now, is_leading

    async def run(self) -> None:
        is_refused = False
        while True:
            await asyncio.sleep(RARELY if is_refused else EVERY)
            if not self._is_leading():
                continue
            try:
                await self.look()
                is_refused = False
            except Forbidden as error:
                if not is_refused:
                    log.warning("jobs in other namespaces cannot be told that nobody runs them", error=str(error))
                is_refused = True
            except KubeError as error:
                log.info("could not look into other namespaces", error=str(error))

    async def look(self) -> None:
        for resource, framework in self._jobs.items():
            page = await self._client.list(resource, resource_version="0", type=Object)
            for job in page.items:
                if self._is_left_alone(job) and not reading.is_managed_elsewhere(framework, decoded(job)):
                    self._tell(resource, job)

    def _is_left_alone(self, job: Object) -> bool:
        born = timestamp.parse(job.metadata.creation_timestamp) or self._now()
        is_old = self._now() - born >= PATIENCE
        return job.metadata.namespace != self._namespace and is_old and not job.at("status", "conditions")

    def _tell(self, resource: Resource, job: Object) -> None:
        meta = job.metadata
        regarding = Reference(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)
        message = (
            f"Nobody runs this job: the operator watches namespace {self._namespace} only. Create the job there, or "
            f"start the operator without --namespace"
        )
        self._recorder.event(regarding, WARNING, REASON, message, repeat=False)
