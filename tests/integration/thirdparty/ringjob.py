"""A framework of somebody else's: everything it takes to run RingJobs, in one file."""

from trainmaster.api.framework import Env, Framework, Role
from trainmaster.api.job import Member


class Ring(Framework):
    """Every rank talks to its right neighbour; the job is done when all ranks are."""

    group, version = "ring.example", "v1"
    name, kind, plural, replicas_field = "ring", "RingJob", "ringjobs", "ringReplicaSpecs"
    container, port, port_name = "ring", 7000, "ring-port"
    roles, decides = (Role("Rank", min=2, required=True),), ("Rank",)
    scalable_role = "Rank"

    def env(self, member: Member) -> Env:
        job = member.job
        right = (member.index + 1) % job.count("Rank")
        return {"RING_RANK": member.rank, "RING_SIZE": job.world, "RING_RIGHT": f"{job.host('Rank', right)}:7000"}
