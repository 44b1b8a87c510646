"""One small job of every kind, as users write them."""

from collections.abc import Iterable

from trainmaster.testing.scene import Scene, a_job

ROLES = {
    "TFJob": {"PS": 1, "Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "MXJob": {"Scheduler": 1, "Server": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
    "MSJob": {"Scheduler": 1, "Worker": 2},
}
KINDS = tuple(ROLES)
LEADER = {
    "TFJob": "worker",
    "PyTorchJob": "master",
    "XGBoostJob": "master",
    "MXJob": "scheduler",
    "MSJob": "worker",
}
"""The replicas whose success ends the job; all of them where nothing is said."""

SERVED = {"MSJob": ("Scheduler",)}
"""The roles whose replicas have Services; all of them where nothing is said."""


def replicas_of(kind: str, roles: Iterable[str], name: str = "job") -> list[str]:
    """The names of the replicas that a small job has in these roles, sorted."""
    return sorted(f"{name}-{role.lower()}-{index}" for role in roles for index in range(ROLES[kind][role]))


def a_small(kind: str, name: str = "job", restart: str | None = None) -> Scene:
    scene = a_job(kind, name)
    for role, replicas in ROLES[kind].items():
        scene = scene.role(role, replicas, restart)
    return scene
