"""Jobs of batch.paddlepaddle.org for tests."""

from __future__ import annotations

from typing import Any

from trainmaster.objects.meta import Json
from trainmaster.testing.scene import Scene, a_job, body

GROUP = "batch.paddlepaddle.org"
CONTAINERS: list[dict[str, Any]] = [
    {"name": "resnet", "image": "example/train:1", "env": [{"name": "MINE", "value": "1"}]},
    {"name": "log", "image": "x"},
]


def a_paddle(ps: int | None = None, worker: int | None = None, heter: int | None = None, **spec: Any) -> Scene:
    scene = a_job("PaddleJob", group=GROUP, **spec)
    for role, replicas in (("ps", ps), ("worker", worker), ("heter", heter)):
        if replicas is not None:
            scene = scene.role(role, replicas)
    return scene


def addressed(scene: Scene, phase: str = "Pending") -> Scene:
    """Every replica with its Service, its pod in that phase and at an address: 10.0.0.1 and so on, in order."""
    for number, member in enumerate(scene.job.members(), start=1):
        scene = scene.pod(member.role, member.index, phase, ip=f"10.0.0.{number}")
    return scene.served()


def the_pod(scene: Scene, name: str = "job-worker-0") -> Json:
    return body(scene.plan(), name)


def env_of(pod: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["spec"]["containers"][0]["env"]}
