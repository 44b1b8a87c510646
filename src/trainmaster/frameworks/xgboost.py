"""XGBoostJob: a master that starts the tracker, workers that join it; LightGBM rides on the worker list."""

from __future__ import annotations

from trainmaster.api.framework import Alias, Env, Framework, Role
from trainmaster.api.job import Job, Member


class XGBoost(Framework):
    name, kind, plural, replicas_field = "xgboost", "XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"
    aliases = (Alias("xgboostjob.kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"),)
    container, port, port_name = "xgboost", 9999, "xgboostjob-port"
    container_aliases = ("xgboostjob",)
    roles = (Role("Master", min=1, max=1, leader=True, required=True), Role("Worker"))
    decides = ("Master",)
    replaces_evicted = False
    always_ran = True

    def env(self, member: Member) -> Env:
        job = member.job
        env: dict[str, str | int] = {
            "MASTER_PORT": job.ports["Master"],
            "MASTER_ADDR": job.host("Master"),
            "WORLD_SIZE": job.world,
            "RANK": member.rank,
            "PYTHONUNBUFFERED": 1,
        }
        if job.count("Worker"):
            env |= {"WORKER_PORT": job.ports["Worker"], "WORKER_ADDRS": job.once(_workers)}
        return env


def _workers(job: Job) -> str:
    return ",".join(job.hosts("Worker"))
