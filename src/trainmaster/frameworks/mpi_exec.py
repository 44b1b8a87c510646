"""MPIJob v1 and v1alpha2: mpirun reaches the workers by `kubectl exec`, so they need neither sshd nor keys.

The launcher gets kubectl from an init container, and `kubexec.sh` as mpirun's remote shell. Horovod looks for exactly
that path in exactly that variable, so both are fixed for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainmaster.api.framework import QUALIFIED, Companion, Count, Env, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Problem, unsupported
from trainmaster.frameworks import mpi_base as base
from trainmaster.frameworks.mpi_base import LAUNCHER, WORKER, MPIBase
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from trainmaster.objects.template import EnvValue

AGENT = "/etc/mpi/kubexec.sh"
HYDRA_HOSTFILE = "hostfile.hydra"
"""The same hosts in the notation of Intel MPI and MPICH."""

KUBECTL = "mpi-job-kubectl"
KUBECTL_PATH = "/opt/kube"
DISTRIBUTIONS = ("OpenMPI", "IntelMPI", "MPICH")
COPYING_IMAGE = "kubeflow/kubectl-delivery"
"""A delivery image known to copy kubectl and no more; others wait for the workers, too, and watch them."""

FLAT: dict[str, EnvValue] = {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"}
"""The launcher reaches every worker itself. Beyond 64 of them Open MPI would have workers reach others, and they have
neither kubectl nor the right to use it."""

OF_SSH = {
    "sshAuthMountPath": "ranks are started by kubectl exec, without keys",
    "launcherCreationPolicy": "the launcher always waits for the workers",
    "runLauncherAsWorker": "write the job as kubeflow.org/v2beta1 to have ranks beside the launcher",
}
RBAC = "rbac.authorization.k8s.io"
EXEC_RULE: Json = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}


class MPIExec(MPIBase):
    """v1, as training-operator ran it; with compat=2021 as mpi-operator did."""

    companion_resources = (CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
    grants = (EXEC_RULE,)
    foreign = {"mpiImplementation": "Open MPI, Intel MPI and MPICH are all provided for", **OF_SSH}

    def validate(self, job: Job) -> Iterator[Problem]:
        given = job.spec.get("mpiDistribution")
        if given is not None and given not in DISTRIBUTIONS:
            yield unsupported("spec.mpiDistribution", given, DISTRIBUTIONS)
        main = job.spec.get("mainContainer")
        if main and job.has(WORKER):
            known = [str(c.get("name")) for c in template.containers_of(job.replicas[WORKER].template)]
            if main not in known:
                yield unsupported("spec.mainContainer", main, known)

    def env(self, member: Member) -> Env:
        if member.role != LAUNCHER:
            return {}
        given = base.environment_of(member.replica)
        env: dict[str, EnvValue] = {
            "OMPI_MCA_plm_rsh_agent": AGENT,
            "OMPI_MCA_orte_default_hostfile": base.HOSTFILE,
            "PRTE_MCA_plm_ssh_agent": AGENT,  # Open MPI 5 knows only these
            "PRTE_MCA_prte_default_hostfile": base.HOSTFILE,
        }
        if self.hides_gpus(member):
            env |= base.NO_GPU
        more = {**base.AS_ROOT, **FLAT, **_hydra(member.job)}
        return env | {name: value for name, value in more.items() if name not in given}

    def hides_gpus(self, member: Member) -> bool:
        return not base.has_gpus(member.replica)

    def companions(self, job: Job) -> Iterator[Companion]:
        name = f"{job.name}-launcher"
        account = account_of(job)
        if account == name:
            yield Companion(SERVICE_ACCOUNTS, base.named(job, "v1", "ServiceAccount", name), keep=True)
        yield Companion(CONFIG_MAPS, base.config_map(job, files(job)), keep=True)
        role = base.named(job, f"{RBAC}/v1", "Role", name, rules=rules(job))
        yield Companion(ROLES, role, keep=True, names_pods=True)
        binding = {
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": job.namespace}],
        }
        yield Companion(ROLE_BINDINGS, base.named(job, f"{RBAC}/v1", "RoleBinding", name, **binding), keep=True)

    def service(self, body: Json, member: Member) -> Json | None:
        return None

    def annotations(self, member: Member) -> Mapping[str, str]:
        return base.hosts_annotation(discover_hosts(member.job)) if member.role == LAUNCHER else {}

    def decorate(self, pod: Json, member: Member) -> Json:
        return _worker(pod, member.job) if member.role == WORKER else _launcher(pod, member.job)

    def is_running(self, job: Job, counts: Mapping[str, Count]) -> bool:
        if not job.settings.compat_2021:
            return super().is_running(job, counts)
        return bool(counts[LAUNCHER].active) and len(counts.get(WORKER, Count()).active) == job.count(WORKER)

    def tolerates_failure(self, job: Job, role: str) -> bool:
        """mpi-operator left it to mpirun to notice a dead worker."""
        return job.settings.compat_2021 and self.leaves_to_mpirun(job, role)

    def labels(self, member: Member) -> Mapping[str, str]:
        if not member.job.settings.compat_2021:
            return {}
        return {"mpi-job-name": member.job.name, "mpi-job-role": member.role.lower()}

    def forgets(self, job: Job, role: str) -> bool:
        return role == WORKER and job.settings.compat_2021

    def messages(self, job: Job) -> Messages:
        if not job.settings.compat_2021:
            return Messages(replacing=Messages().restarting)
        failed = base.STRANDED if self.is_launcher_awaited(job) else HAS_FAILED
        return replace(QUALIFIED, created="{kind} {namespace}/{name} is created.", failed=failed, failing=failed)


HAS_FAILED = "{kind} {namespace}/{name} has failed"
IS_RESTARTING = "{kind} {namespace}/{name} is restarting."


class MPIAlpha2(MPIExec):
    """v1alpha2: workers are restarted for ever, the launcher a few times, in a new pod each time: its last log stays.

    There, a Job made the launcher, and a StatefulSet the workers: both replaced whatever was lost.
    """

    version = "v1alpha2"
    roles = (
        Role(LAUNCHER, min=1, max=1, leader=True, required=True, numbered=False, restart_policy="OnFailure"),
        Role(WORKER, replicas=0, serves=True, restart_policy="Always"),
    )
    tallies_attempts = True
    foreign = {"mpiImplementation": "did you mean mpiDistribution (OpenMPI, IntelMPI or MPICH)?", **OF_SSH}

    def default(self, job: Job) -> Job:
        job = super().default(job)
        policies = {role.name: role.restart_policy for role in self.roles}
        replicas = {role: replace(held, restart_policy=policies[role]) for role, held in job.replicas.items()}
        limit = job.policy.backoff_limit
        return replace(job, replicas=replicas, policy=replace(job.policy, backoff_limit=6 if limit is None else limit))

    def decorate(self, pod: Json, member: Member) -> Json:
        pod = super().decorate(pod, member)
        return template.with_spec(pod, restartPolicy="Never") if member.role == LAUNCHER else pod

    def counts_restarts(self, role: str) -> bool:
        return role == LAUNCHER

    def replaces_failed(self, job: Job) -> bool:
        return True

    def ends_by_eviction(self, job: Job, role: str) -> bool:
        return False

    def forgets(self, job: Job, role: str) -> bool:
        return role == WORKER

    def cleaning_at_limit(self, job: Job) -> str:
        return job.policy.clean_pod_policy if job.settings.compat_2021 else base.cleaned_at_limit(job)

    def hides_gpus(self, member: Member) -> bool:
        return True

    def labels(self, member: Member) -> Mapping[str, str]:
        own = {"group_name": self.group, "mpi_job_name": member.job.name, "mpi_role_type": member.role.lower()}
        return {**super().labels(member), **own}

    def messages(self, job: Job) -> Messages:
        return replace(
            QUALIFIED,
            created="{kind} {namespace}/{name} is created.",
            restarting=IS_RESTARTING,
            replacing=IS_RESTARTING,
        )


def account_of(job: Job) -> str:
    """The launcher's account; one that the user chose is the user's to make."""
    chosen = job.replicas[LAUNCHER].template.get("spec", {}).get("serviceAccountName")
    return str(chosen or f"{job.name}-launcher")


def rules(job: Job) -> list[Json]:
    """To start processes in the job's own workers. An empty list of names would mean every pod there is."""
    workers = own_workers(job)
    pods: Json = {"apiGroups": [""], "resources": ["pods"]}
    found: list[Json] = []
    if workers:
        found = [{**pods, "verbs": ["get"], "resourceNames": workers}, {**EXEC_RULE, "resourceNames": workers}]
    if job.count(WORKER) and COPYING_IMAGE not in job.settings.kubectl_delivery_image:
        found.append({**pods, "verbs": ["list", "watch"]})
    return found


def own_workers(job: Job) -> list[str]:
    """Names of the workers that are there and the job's own. Another's pod may bear the name of a worker that is not
    there: that of one which is yet to be made, or, from one moment to the next, of one that has ended or is leaving."""
    pods = ((index, pod) for (role, index), pod in job.seen.pods.items() if role == WORKER)
    standing = [(index, pod.name) for index, pod in pods if not pod.is_finished and not pod.metadata.is_terminating]
    return [name for _, name in sorted(standing)]


def files(job: Job) -> dict[str, str]:
    """What lies in /etc/mpi."""
    return {
        "hostfile": hostfile(job, is_hydra=job.spec.get("mpiDistribution") in ("IntelMPI", "MPICH")),
        HYDRA_HOSTFILE: hostfile(job, is_hydra=True),
        "kubexec.sh": kubexec(job),
        "discover_hosts.sh": discover_hosts(job),
    }


def hostfile(job: Job, *, is_hydra: bool) -> str:
    form = "{host}:{slots}\n" if is_hydra else "{host} slots={slots}\n"
    return "".join(form.format(host=host, slots=base.slots(job)) for host in _hosts(job))


def _hosts(job: Job) -> list[str]:
    return [*([job.host(LAUNCHER)] if _has_ranks_on_launcher(job) else []), *job.hosts(WORKER)]


def _has_ranks_on_launcher(job: Job) -> bool:
    return job.version == MPIExec.version and base.has_gpus(job.replicas[LAUNCHER])


def kubexec(job: Job) -> str:
    """mpirun calls it as HOST COMMAND…, hydra with flags of ssh before that. The remote shell sees one text.

    Hydra's proxies call back the launcher by its name, which no Service announces: so it goes into their hosts file,
    in place of what an earlier launcher left there. That file is mounted: it can be written, but not replaced.
    """
    # Said even where it is the first: a mesh may put a container of its own before it.
    first = base.first_container(job.replicas[WORKER]).get("name") if job.has(WORKER) else None
    container = job.spec.get("mainContainer") or first
    chosen = f" --container {container}" if container else ""
    return rf"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
pod=$1
shift
remote="$*"
me=${{HOSTNAME:-{job.host(LAUNCHER)}}}
address=$(while read -r ip names; do
  for name in $names; do [ "$name" != "$me" ] || [ "${{ip#127.}}" != "$ip" ] || echo "$ip"; done
done </etc/hosts)
if [ -n "$address" ]; then
  address=${{address%%[[:space:]]*}} untold=""
  known="grep -qE '^$address[[:space:]](.*[[:space:]])?$me([[:space:]]|\$)' /etc/hosts"
  told="old=\$(grep -v '[[:space:]]$me\$' /etc/hosts); printf '%s\n' \"\$old\" '$address $me' >/etc/hosts"
  complaint="$pod cannot be told where $me is: its /etc/hosts is not writable"
  case $remote in *hydra*) untold="|| echo '$complaint' >&2" ;; esac
  remote="( $known || {{ $told; }} ) 2>/dev/null $untold; $remote"
fi
exec {KUBECTL_PATH}/kubectl exec "$pod"{chosen} -- /bin/sh -c "$remote"
"""


def discover_hosts(job: Job) -> str:
    """For elastic Horovod, which asks every second: the workers that run now."""
    lines = [f"echo {name}:{base.slots(job)}" for name in base.running_workers(job)]
    if _has_ranks_on_launcher(job):
        lines.insert(0, f"echo {job.host(LAUNCHER)}:{base.slots(job)}")
    return "\n".join(["#!/bin/sh", *lines])


def _hydra(job: Job) -> dict[str, EnvValue]:
    hosts = f"{base.CONFIG_PATH}/{HYDRA_HOSTFILE}"
    return {
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": AGENT,
        "I_MPI_HYDRA_HOST_FILE": hosts,
        "I_MPI_HYDRA_BRANCH_COUNT": max(len(_hosts(job)), 1),  # flat as well; from 17 hosts on it would be a tree
        "I_MPI_PERHOST": base.slots(job),
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": AGENT,
        "HYDRA_HOST_FILE": hosts,
    }


def _worker(pod: Json, job: Job) -> Json:
    """Open MPI looks for the remote shell on every node. A worker without a command waits for ranks to be started."""
    volume = base.config_volume({"kubexec.sh": 0o555}, job)
    pod = _with_config(
        template.with_volume(pod, volume, {"mountPath": base.CONFIG_PATH}), job.spec.get("mainContainer")
    )
    container = template.containers_of(pod)[0]
    if container.get("command"):
        return pod
    return template.with_container(pod, lambda c: {**c, "command": ["sleep"], "args": ["365d"]})


def _with_config(pod: Json, main: str | None) -> Json:
    """The files where ranks start, too, if that is not the first container; unless the user has put them there."""

    def mounted(container: Json) -> Json:
        mounts = container.get("volumeMounts") or []
        if any(str(mount.get("mountPath", "")).rstrip("/") == base.CONFIG_PATH for mount in mounts):
            return container
        return {**container, "volumeMounts": [*mounts, {"name": base.CONFIG, "mountPath": base.CONFIG_PATH}]}

    return template.with_container(pod, mounted, (main,)) if main else pod


def _launcher(pod: Json, job: Job) -> Json:
    modes = {"kubexec.sh": 0o555, "hostfile": 0o444, HYDRA_HOSTFILE: 0o444, "discover_hosts.sh": 0o555}
    pod = template.with_volume(pod, {"name": KUBECTL, "emptyDir": {}}, {"mountPath": KUBECTL_PATH})
    pod = template.with_volume(pod, base.config_volume(modes, job), {"mountPath": base.CONFIG_PATH})
    pod = template.with_init_containers(pod, [_delivery(job)])
    return template.with_spec(pod, serviceAccountName=account_of(job))


def _delivery(job: Job) -> dict[str, Any]:
    amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    return {
        "name": "kubectl-delivery",
        "image": job.settings.kubectl_delivery_image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": KUBECTL_PATH}, {"name": "NAMESPACE", "value": job.namespace}],
        "volumeMounts": [
            {"name": KUBECTL, "mountPath": KUBECTL_PATH},
            {"name": base.CONFIG, "mountPath": base.CONFIG_PATH},
        ],
        "resources": {"requests": amounts, "limits": amounts},
    }
