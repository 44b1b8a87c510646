"""PaddleJob of kubeflow.org: where paddle's own launcher finds the rendezvous; it deals out ranks by itself."""

from __future__ import annotations

from trainmaster.api import schema
from trainmaster.api.framework import QUALIFIED, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.frameworks.pytorch import with_elastic_bounds
from trainmaster.objects.template import EnvValue

ELASTIC_POLICY = schema.record(
    {
        "minReplicas": schema.told(schema.integer(), "Fewest workers; maxReplicas, or their number, if unset."),
        "maxReplicas": schema.told(
            schema.integer(maximum=schema.MAX_REPLICAS), "Most workers; minReplicas, or their number, if unset."
        ),
        "maxRestarts": schema.told(schema.integer(), "Kept; Paddle's launcher has settings of its own."),
        "metrics": schema.told(schema.array(schema.ANYTHING), "Kept; no HPA is made of it."),
    }
)


class Paddle(Framework):
    """With a master the job is in parameter-server mode; without one, worker 0 is where the others meet."""

    name, kind, plural, replicas_field = "paddle", "PaddleJob", "paddlejobs", "paddleReplicaSpecs"
    container, port, port_name = "paddle", 36543, "master"
    roles = (Role("Master", leader=True), Role("Worker"))
    decides = ("Master", "Worker")
    restart_policy = "OnFailure"
    scalable_role = "Worker"
    fields = {"elasticPolicy": schema.told(ELASTIC_POLICY, "Between how many workers the job may go on.")}

    def default(self, job: Job) -> Job:
        return with_elastic_bounds(job)

    def env(self, member: Member) -> Env:
        job = member.job
        meeting_role = "Master" if job.has("Master") else "Worker"
        host, port = job.host(meeting_role), job.ports[meeting_role]
        env: dict[str, EnvValue] = {"PYTHONUNBUFFERED": 1, "PADDLE_JOB_ID": job.name, "PADDLE_NNODES": job.world}
        if member.name == host:
            # Its own Service may not resolve yet, so it listens on its address. The kubelet expands $(POD_IP_DUMMY)
            # only because that variable stands before it.
            env["POD_IP_DUMMY"] = {"fieldRef": {"fieldPath": "status.podIP"}}
            host = "$(POD_IP_DUMMY)"
        env["PADDLE_MASTER"] = f"{host}:{port}"
        if meeting_role == "Master":
            env["PADDLE_SERVER_NUM" if member.role == "Master" else "PADDLE_TRAINER_NUM"] = 1
        return env

    def messages(self, job: Job) -> Messages:
        return Messages() if job.has("Master") else QUALIFIED
