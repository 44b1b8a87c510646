"""What the processes of a paddle-operator job are told: addresses, ports, and the ConfigMap that says so.

The ConfigMap is a gate. Pods take their environment from it and so do not start before it is there, and it is not made
before every pod has an address. A pod that is made again gets another address, so the gate closes until that is known.
Where endpoints are names of Services nothing changes, and the gate stays open.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainmaster.api import schema
from trainmaster.api.framework import Companion
from trainmaster.api.job import Job
from trainmaster.objects.meta import Json, Object, Service
from trainmaster.objects.number import number_of
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import CONFIG_MAPS

POD_IP, SERVICE, HOST = INTRANETS = ("PodIP", "Service", "Host")
LOOPBACK = "127."
FIRST_PORT, HIGHEST = 36000, 65535
PORTS = 20
"""A process may open so many ports from its first one on."""

SPREAD = 20000
HOST_PORT = "host-port"
"""Annotation of a job: the first of the ports that are its own on every node."""

SIZES = "trainmaster.dev/sizes"
"""Annotation of the ConfigMap: for how many replicas of each role it was made."""

WIRING = "trainmaster.dev/wiring"
"""Annotation of the ConfigMap: how those for whom it was made reach each other."""

Slot = tuple[str, int]
Parties = Mapping[str, Sequence[Slot]]
"""The replicas by what they are to Paddle: PSERVER, TRAINER, HETER …; in the order in which it counts them."""


def intranet(job: Job) -> str:
    asked = job.spec.get("intranet", "")
    return asked if asked in (SERVICE, HOST) else POD_IP


def is_elastic(job: Job) -> bool:
    """The level is nobody's business: being there is enough, and 0 is a level too."""
    return job.spec.get("elastic") is not None


def first_port(job: Job) -> int:
    """One number for the whole job, and the same whenever it is asked for."""
    if intranet(job) == SERVICE:
        return FIRST_PORT
    allotted = number_of(job.meta.annotations.get(HOST_PORT, ""), HIGHEST + 1 - PORTS)
    if intranet(job) == HOST and allotted:
        return allotted
    return FIRST_PORT + zlib.crc32((job.meta.uid or job.meta.key).encode()) % SPREAD


def hosts(job: Job, slots: Sequence[Slot]) -> list[str]:
    return [_host(job, slot) for slot in slots]


def endpoints(job: Job, slots: Sequence[Slot], offset: int = 0) -> list[str]:
    """Replicas that all have the address of their machine, as some sandboxes give them, are told apart by name."""
    port = first_port(job) + offset
    given = zip(slots, hosts(job, slots), strict=True)
    found = [job.host(*slot) if host.startswith(LOOPBACK) else host for slot, host in given]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in found]


def _host(job: Job, slot: Slot) -> str:
    pod = job.seen.pods.get(slot)
    # A replica that is done and whose pod was removed has no address any more; nobody will call it.
    is_named = intranet(job) == SERVICE or pod is None
    return job.host(*slot) if is_named or pod is None else pod.status.pod_ip


def variables(job: Job, parties: Parties) -> dict[str, str]:
    """The contract of ps, worker and heter."""
    servers, trainers, heters = (parties.get(party) for party in ("PSERVER", "TRAINER", "HETER"))
    data = {"TRAINER_PORTS_NUM": str(PORTS), "PADDLE_PORT": str(first_port(job))}
    if servers is not None:
        data["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(endpoints(job, servers))
    if trainers is not None:
        data["PADDLE_TRAINER_ENDPOINTS"] = ",".join(endpoints(job, trainers))
        data["PADDLE_TRAINERS"] = ",".join(hosts(job, trainers))
        data["PADDLE_TRAINERS_NUM"] = str(len(trainers))
    if heters is not None:  # under the name of today, and the one of 2021
        data["PADDLE_HETER_ENDPOINTS"] = ",".join(endpoints(job, heters))
        data["PADDLE_HETER_TRAINER_IP_PORT_LIST"] = data["PADDLE_HETER_ENDPOINTS"]
    return {**data, **_gloo(job, servers or ())}


def _gloo(job: Job, servers: Sequence[Slot]) -> dict[str, str]:
    level = job.spec.get("withGloo", 0)
    if level <= 0 or not servers:
        return {}
    [meeting] = endpoints(job, servers[:1], PORTS - 2)
    return {
        "PADDLE_WITH_GLOO": str(level),
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": meeting,
    }


def config_map(job: Job, data: Mapping[str, str]) -> Json:
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": {"paddle-res-name": job.name},
            "annotations": {SIZES: _sizes(job), WIRING: _wiring(job)},
        },
        "data": dict(data),
    }


def gate(job: Job, data: Mapping[str, str]) -> Iterator[Companion]:
    """The ConfigMap as it should be now: open, left as it stands, or (nothing) closed."""
    body = config_map(job, data)
    if _is_settled(job):
        yield Companion(CONFIG_MAPS, body, keep=True, frozen=True)
    elif has_addresses(job):
        yield Companion(CONFIG_MAPS, body, keep=True)
    elif intranet(job) == SERVICE or is_elastic(job):
        yield Companion(CONFIG_MAPS, body, keep=True, frozen=True)


def _is_settled(job: Job) -> bool:
    """Whether what stands must not change: the job has ended; or processes live by it, and it was made for another
    number of replicas, for another way to reach each other, or by another operator with other ports. One of those for
    whom it was made, who starts again, changes that: it would start with an address that is no longer its own."""
    held = job.seen.companions.get((CONFIG_MAPS.kind, job.name))
    if job.status.is_finished:
        return True
    if is_elastic(job) or held is None or not _has_passed(job.seen.pods.values()):
        return False
    made_for = held.metadata.annotations.get(SIZES, "")
    is_another = made_for != _sizes(job) or held.metadata.annotations.get(WIRING, _wiring(job)) != _wiring(job)
    return _is_ours(job, held) and is_another and not _starts_again(job, made_for)


def _is_ours(job: Job, held: Object | Service) -> bool:
    return held.metadata.is_controlled_by(job.meta.uid) and not held.metadata.is_terminating


def _has_passed(pods: Iterable[Pod]) -> bool:
    """Whether any process has started, and so read the ConfigMap; a pod that waits for it is Pending."""
    return any(pod.status.phase in ("Running", "Succeeded", "Failed") for pod in pods)


def _starts_again(job: Job, made_for: str) -> bool:
    sizes = {role: number_of(size, schema.MAX_REPLICAS) or 0 for role, _, size in _pairs(made_for)}
    slots = [(role, index) for role in job.replicas for index in range(min(job.count(role), sizes.get(role, 0)))]
    return any(_is_to_start(job, slot) for slot in slots)


def _is_to_start(job: Job, slot: Slot) -> bool:
    pod = job.seen.pods.get(slot)
    return pod.status.phase == "Pending" if pod is not None else not is_done(job, slot)


def _pairs(sizes: str) -> Iterator[tuple[str, str, str]]:
    return (entry.partition("=") for entry in sizes.split(",") if entry)


def has_addresses(job: Job) -> bool:
    return all(is_reachable(job, (member.role, member.index)) for member in job.members())


def is_reachable(job: Job, slot: Slot) -> bool:
    pod = job.seen.pods.get(slot)
    return bool(pod.status.pod_ip) if pod is not None else is_done(job, slot)


def is_done(job: Job, slot: Slot) -> bool:
    """Whether the replica has succeeded and is not started again."""
    return slot in job.once(_done)


def _done(job: Job) -> frozenset[Slot]:
    seen = (slot for slot, pod in job.seen.pods.items() if pod.status.phase == "Succeeded")
    return frozenset(((role, n) for role, indices in job.status.completed.items() for n in indices)).union(seen)


def _wiring(job: Job) -> str:
    return f"{intranet(job)}:{first_port(job)},gloo={job.spec.get('withGloo', 0)}"


def _sizes(job: Job) -> str:
    return ",".join(f"{role}={replica.replicas}" for role, replica in job.replicas.items())
