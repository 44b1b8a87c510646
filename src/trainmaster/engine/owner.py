"""The mark by which an object belongs to a job, and goes when the job goes."""

from __future__ import annotations

from trainmaster.api.job import Job
from trainmaster.objects.meta import Json


def owner_reference(job: Job) -> Json:
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
