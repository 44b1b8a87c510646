"""Who may read the file with a ServiceAccount token that a pod gets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trainmaster.objects.meta import Json


@dataclass(frozen=True, slots=True)
class Access:
    """Mode and owner of a file; -1 leaves the user or the group as it is."""

    mode: int = 0o600
    user: int = -1
    group: int = -1

    @property
    def owner(self) -> tuple[int, int]:
        return self.user, self.group


def token_access(pod: Json) -> Access:
    """Nobody but the user of the pod's containers, and `fsGroup`.

    Containers of several users leave no owner to give the file to: all of them can read it then, as on a cluster.
    """
    if os.geteuid() != 0:
        return Access()  # containers run as we do, whatever the pod asks for
    users = {user for user in _users(pod) if user}
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    user = users.pop() if len(users) == 1 else -1
    if group is not None:
        return Access(0o640, user, group)
    return Access(0o644) if users else Access(0o600, user)


def _users(pod: Json) -> list[Any]:
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    shared = (spec.get("securityContext") or {}).get("runAsUser")
    own = [(container.get("securityContext") or {}).get("runAsUser") for container in containers]
    return [shared if user is None else user for user in own]
