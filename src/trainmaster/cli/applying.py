"""Server-side apply of one object, as the manager `trainmaster`: what is sent, and how a refusal is told.

`apply` does it to everything; `run` to what its jobs use, so that they find it as the manifest says today.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainmaster.cli.connection import Failure
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.kube.client import Client
from trainmaster.kube.errors import Conflict, Invalid, KubeError, NotFound
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource

MANAGER = "trainmaster"
APPLY_PATCH = "application/apply-patch+yaml"

_SERVERS_OWN = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


def placed(body: Json, namespace: str) -> dict[str, Any]:
    """Without what only the server may say; in that namespace, which is empty for objects that live in none."""
    dropped = ("namespace", *_SERVERS_OWN)
    kept = {key: value for key, value in body["metadata"].items() if key not in dropped}
    where = {"namespace": namespace} if namespace else {}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": {**kept, **where}}


async def apply(
    client: Client, resource: Resource, body: Json, *, force: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """What is stored then, or would be."""
    metadata = body["metadata"]
    flags = (("force", "true"),) * force + (("dryRun", "All"),) * dry_run
    answer = await client.request(
        "PATCH",
        resource.path(metadata.get("namespace", ""), metadata["name"]),
        params=(("fieldManager", MANAGER), *flags),
        body=msgspec.json.encode(body),
        content_type=APPLY_PATCH,
    )
    after: dict[str, Any] = msgspec.json.decode(answer)
    return after


def refusal(document: Document, error: KubeError, takeover: str = "--force-conflicts") -> Exception:
    """`takeover` is what to type so that the fields of others become ours."""
    if isinstance(error, Conflict):
        return Failure(
            f"{document}: {error.message}\nOther programs own these fields. Take them over with {takeover}, "
            f"or leave them out of the manifest."
        )
    if isinstance(error, Invalid):
        return BadDocument(f"{document}: {error.message}")
    if isinstance(error, NotFound):
        return Failure(f"{document}: {error.message or error}; does its namespace exist?")
    return error
