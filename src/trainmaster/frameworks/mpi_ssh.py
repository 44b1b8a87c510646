"""MPIJob v2beta1: mpirun reaches the workers by ssh, with a key pair of the job's own; the launcher is a Job."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainmaster.api.framework import Companion, Count, Ending, Env, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Advice, Problem, required, unsupported
from trainmaster.frameworks import mpi_base as base
from trainmaster.frameworks.mpi_base import LAUNCHER, WORKER, MPIBase
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, SECRETS, SERVICES
from trainmaster.objects.template import EnvValue

IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")
CREATION_POLICIES = ("AtStartup", "WaitForWorkersReady")
DEFAULT_SSH_PATH = "/root/.ssh"
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"
LONGEST = 1024
PREFIX = "training.kubeflow.org/"
OPERATOR = "mpi-operator"
RETRY_SSH = "-o ConnectionAttempts=10"


class MPISsh(MPIBase):
    version = "v2beta1"
    roles = (
        Role(
            LAUNCHER,
            min=1,
            max=1,
            required=True,  # and no leader: job-role says launcher here
            numbered=False,
            delegated=True,
            restart_policy="OnFailure",
        ),
        Role(WORKER, min=1, replicas=0, serves=True),
    )
    restart_policies = ("Never", "OnFailure")
    announced = ("Created", "Running")
    outlives_ttl = True
    prepares_suspended = True
    replaces_deleted = True  # sshd ends well when it is told to stop; its worker is missing all the same
    companion_resources = (CONFIG_MAPS, SECRETS, SERVICES)
    operator_name = OPERATOR
    foreign = {
        "mpiDistribution": "did you mean mpiImplementation (OpenMPI, Intel or MPICH)?",
        "mainContainer": "ranks start in the first container, where sshd runs",
    }

    def default(self, job: Job) -> Job:
        """The launcher's Job keeps the limits, the deadline once there is a Job. Its TTL is ours to keep: a Job that
        removed itself before we saw its end would be made again, and train again."""
        job = super().default(job)
        policy = job.policy
        limits = {"activeDeadlineSeconds": policy.active_deadline_seconds, "backoffLimit": policy.backoff_limit}
        # A launcher that is going away still holds its workers: the next one comes when it is gone.
        told = {**{k: v for k, v in limits.items() if v is not None}, "podReplacementPolicy": "Failed"}
        return replace(job, policy=replace(policy, backoff_limit=None), delegated=told)

    def validate(self, job: Job) -> Iterator[Problem]:
        if job.spec.get("sshAuthMountPath") == "":
            yield required("spec.sshAuthMountPath", "must not be empty; leave it out for /root/.ssh")
        if implementation(job) not in IMPLEMENTATIONS:
            yield unsupported("spec.mpiImplementation", implementation(job), IMPLEMENTATIONS)

    def advice(self, job: Job) -> Iterator[Advice]:
        yield from super().advice(job)
        policy = job.spec.get("launcherCreationPolicy")
        if policy is not None and policy not in CREATION_POLICIES:
            known = " or ".join(CREATION_POLICIES)
            message = f"spec.launcherCreationPolicy {policy} is neither {known}; the launcher waits for the workers"
            yield Advice("UnknownLauncherCreationPolicy", message)

    def launcher_waits(self, job: Job) -> bool:
        return bool(job.spec.get("launcherCreationPolicy", "AtStartup") != "AtStartup")

    def env(self, member: Member) -> Env:
        if member.role == WORKER:
            return {"K_MPI_JOB_ROLE": "worker"}
        job = member.job
        hidden = {} if is_worker_too(job) else base.NO_GPU
        given = base.environment_of(member.replica)
        more = {name: value for name, value in _MORE[implementation(job)].items() if name not in given}
        return {"K_MPI_JOB_ROLE": "launcher", **_ENVIRONMENTS[implementation(job)](job), **hidden, **more}

    def companions(self, job: Job) -> Iterator[Companion]:
        yield Companion(SERVICES, _service(job), keep=True)
        yield Companion(CONFIG_MAPS, base.config_map(job, files(job)), keep=True)
        secret = base.named(job, "v1", "Secret", f"{job.name}-ssh", type="kubernetes.io/ssh-auth")
        yield Companion(SECRETS, secret, keep=True, secret=key_pair)

    def service(self, body: Json, member: Member) -> Json | None:
        return None  # one for all of them is enough

    def labels(self, member: Member) -> Mapping[str, str]:
        own = {PREFIX + "job-role": member.role.lower()}
        if is_worker_too(member.job):
            own[PREFIX + "replica-index"] = str(member.rank)
        return own

    def annotations(self, member: Member) -> Mapping[str, str]:
        return base.hosts_annotation(files(member.job)["discover_hosts.sh"]) if member.role == LAUNCHER else {}

    def decorate(self, pod: Json, member: Member) -> Json:
        pod = _addressed(pod, member)
        pod = template.with_volume(pod, _keys(member.job), {"mountPath": ssh_path(member.job)})
        if member.role == WORKER:
            return template.with_container(pod, _waiting)
        modes = {"hostfile": 0o444, "discover_hosts.sh": 0o555}
        return template.with_volume(pod, base.config_volume(modes, member.job), {"mountPath": base.CONFIG_PATH})

    def is_running(self, job: Job, counts: Mapping[str, Count]) -> bool:
        return bool(counts[LAUNCHER].active) and len(counts.get(WORKER, Count()).active) == job.count(WORKER)

    def ends_by_eviction(self, job: Job, role: str) -> bool:
        return role == WORKER  # the launcher's Job has its own mind

    def forgets(self, job: Job, role: str) -> bool:
        return role == WORKER

    def cleaning_at_limit(self, job: Job) -> str:
        return base.cleaned_at_limit(job)

    def tolerates_failure(self, job: Job, role: str) -> bool:
        """A dead worker makes mpirun fail, and the launcher's Job tries again as often as it may."""
        return self.leaves_to_mpirun(job, role)

    def ending(self, job: Job, counts: Mapping[str, Count]) -> Ending | None:
        delegate = job.seen.delegates.get(LAUNCHER)
        if delegate is None or delegate.failure is None:
            return super().ending(job, counts)
        reason, message = delegate.failure
        reason, message = reason or f"{job.kind}Failed", message or f"{job.kind} {job.meta.key} has failed"
        failed = [pod for pod in delegate.pods if pod.status.phase == "Failed"]
        if reason == "BackoffLimitExceeded" and failed:
            last = max(failed, key=lambda pod: pod.metadata.creation_timestamp)
            reason += f"/{last.status.reason}" if last.status.reason else ""
            message += f": {last.status.message}" if last.status.message else ""
        return Ending(reason, message if len(message) <= LONGEST else message[: LONGEST - 3] + "...")

    def messages(self, job: Job) -> Messages:
        return Messages(
            created="{kind} {namespace}/{name} is created.",
            running="{kind} {namespace}/{name} is running.",
            suspended="{kind} suspended",
            stopped="{kind} {namespace}/{name} is suspended.",
            resumed="{kind} resumed",
            succeeded="{kind} {namespace}/{name} successfully completed.",
            never_ran="{kind} {namespace}/{name} is finished but Running condition was never set.",
            failed=base.STRANDED,  # nothing else but a launcher's Job fails here, which has its own words
        )


def implementation(job: Job) -> str:
    return str(job.spec.get("mpiImplementation", "OpenMPI"))


def is_worker_too(job: Job) -> bool:
    """Whether ranks run in the launcher's pod as well."""
    return bool(job.spec.get("runLauncherAsWorker"))


def ssh_path(job: Job) -> str:
    return str(job.spec.get("sshAuthMountPath", DEFAULT_SSH_PATH))


def domain(job: Job) -> str:
    suffix = f".{job.settings.cluster_domain}" if job.settings.cluster_domain else ""
    return f"{job.name}.{job.namespace}.svc{suffix}"


def files(job: Job) -> dict[str, str]:
    form = "{host} slots={slots}\n" if implementation(job) == "OpenMPI" else "{host}:{slots}\n"
    first = [job.host(LAUNCHER)] if is_worker_too(job) else []
    hosts = [f"{name}.{domain(job)}" for name in (*first, *job.hosts(WORKER))]
    found = [f"{name}.{domain(job)}" for name in (*first, *base.running_workers(job))]
    return {
        "hostfile": "".join(form.format(host=host, slots=base.slots(job)) for host in hosts),
        "discover_hosts.sh": "".join(["#!/bin/sh\n", *(f"echo {host}\n" for host in found)]),
    }


def key_pair() -> Json:
    """As ssh's own tools would make it; the files bear RSA's names because images look for those."""
    # Here, because only a job that is really created needs it, and it takes a while to load.
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.TraditionalOpenSSL, forms.NoEncryption())
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH) + b"\n"
    pair = {PRIVATE_KEY: private, PUBLIC_KEY: public}
    return {"data": {name: base64.b64encode(text).decode() for name, text in pair.items()}}


def _service(job: Job) -> dict[str, Any]:
    selector = {PREFIX + "operator-name": OPERATOR, PREFIX + "job-name": job.name}
    spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": is_worker_too(job)}
    return base.named(job, "v1", "Service", job.name, spec=spec)


def _keys(job: Job) -> dict[str, Any]:
    files = ((PRIVATE_KEY, "id_rsa"), (PUBLIC_KEY, "id_rsa.pub"), (PUBLIC_KEY, "authorized_keys"))
    secret: dict[str, Any] = {"secretName": f"{job.name}-ssh", "items": [{"key": k, "path": p} for k, p in files]}
    if ssh_path(job) == DEFAULT_SSH_PATH:  # another user's files are root's, and must stay readable to that user
        secret["defaultMode"] = 0o600
    return {"name": "ssh-auth", "secret": secret}


def _addressed(pod: Json, member: Member) -> dict[str, Any]:
    """Names by which ssh and hydra find the pods."""
    job = member.job
    changes: dict[str, Any] = {"hostname": member.name, "subdomain": job.name}
    if pod["spec"].get("hostNetwork"):
        changes["dnsPolicy"] = "ClusterFirstWithHostNet"
    if member.role == WORKER:  # hydra's proxies call the launcher by its bare name
        config = pod["spec"].get("dnsConfig") or {}
        search = f"{job.name}.{job.namespace}.svc.{job.settings.cluster_domain or 'cluster.local'}"
        changes["dnsConfig"] = {**config, "searches": [*(config.get("searches") or []), search]}
    return template.with_spec(pod, **changes)


def _waiting(container: Json) -> Json:
    if container.get("command") or container.get("args"):
        return container
    return {**container, "command": ["/usr/sbin/sshd", "-De"]}


def _open_mpi(job: Job) -> dict[str, EnvValue]:
    """For Open MPI 4, and again under the names that Open MPI 5 knows."""
    return {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": base.HOSTFILE,
        "OMPI_MCA_plm_rsh_args": RETRY_SSH,
        "OMPI_MCA_orte_set_default_slots": base.slots(job),
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_default_hostfile": base.HOSTFILE,
        "PRTE_MCA_plm_ssh_args": RETRY_SSH,
        "PRTE_MCA_prte_set_default_slots": base.slots(job),
    }


def _intel(job: Job) -> dict[str, EnvValue]:
    return {
        "I_MPI_HYDRA_HOST_FILE": base.HOSTFILE,
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": RETRY_SSH,
        "I_MPI_PERHOST": base.slots(job),
    }


def _mpich(job: Job) -> dict[str, EnvValue]:
    """The second name is the one that hydra reads; the first is what mpi-operator set."""
    return {
        "HYDRA_HOST_FILE": base.HOSTFILE,
        "HYDRA_LAUNCH_EXTRA_ARGS": RETRY_SSH,
        "HYDRA_LAUNCHER_EXTRA_ARGS": RETRY_SSH,
    }


_ENVIRONMENTS = {"OpenMPI": _open_mpi, "Intel": _intel, "MPICH": _mpich}
_MORE: dict[str, Env] = {"OpenMPI": base.AS_ROOT, "Intel": {}, "MPICH": {}}
"""What the user may set otherwise."""
