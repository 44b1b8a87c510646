"""JAXJob: every worker is one process; worker 0 is the coordinator."""

from __future__ import annotations

from trainmaster.api.framework import QUALIFIED, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member


class JAX(Framework):
    name, kind, plural, replicas_field = "jax", "JAXJob", "jaxjobs", "jaxReplicaSpecs"
    container, port, port_name = "jax", 6666, "jaxjob-port"
    roles, decides = (Role("Worker"),), ("Worker",)
    scalable_role = "Worker"

    def env(self, member: Member) -> Env:
        job = member.job
        return {
            "PYTHONUNBUFFERED": 1,
            "COORDINATOR_PORT": job.ports["Worker"],
            "COORDINATOR_ADDRESS": job.host("Worker"),
            "NUM_PROCESSES": job.world,
            "PROCESS_ID": member.rank,
        }

    def is_leader(self, member: Member) -> bool:
        return member.index == 0

    def messages(self, job: Job) -> Messages:
        return QUALIFIED
