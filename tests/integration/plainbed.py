"""The embedded cluster alone, without the operator, in either sandbox; pods are what a test writes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.bed import Bed, Json, in_thread

from trainmaster.cluster.cluster import Cluster, ClusterOptions
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.sandbox import Kind
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.transport import HttpTransport


@contextmanager
def plain_bed(home: Path, sandbox: Kind, images: Images | None = None) -> Iterator[Bed]:
    @contextlib.asynccontextmanager
    async def cluster() -> AsyncIterator[Client]:
        running = Cluster(ClusterOptions(home, sandbox=sandbox, images=images or Images()), ending=Ending(limit=0.0))
        async with running.running():
            client = Client(HttpTransport(kubeconfig.load(str(running.kubeconfig))))
            try:
                yield client
            finally:
                await client.close()

    with in_thread(cluster) as reached:
        yield reached


def a_pod(name: str, script: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod that runs a shell script once; keyword arguments go into its spec, `container` into its container."""
    own = {
        "name": "main",
        "image": "any",
        "command": ["sh", "-c", script],
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels or {},
            "annotations": spec.pop("annotations", {}),
        },
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [own], **spec},
    }


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def has_ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def told(cluster: Bed, pod: Json) -> str:
    """What a pod printed, once it has ended."""
    cluster.submit(pod)
    name = pod["metadata"]["name"]
    cluster.pod(name, has_ended)
    return cluster.log(name)
