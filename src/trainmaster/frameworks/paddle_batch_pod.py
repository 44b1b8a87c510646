"""What the pods of a paddle-operator job have beyond their templates: names, ports, the gate, the wait before it."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.job import Member
from trainmaster.frameworks.paddle_batch_contract import (
    FIRST_PORT,
    HOST,
    PORTS,
    SERVICE,
    intranet,
    is_done,
    is_elastic,
)
from trainmaster.objects import template
from trainmaster.objects.meta import Json

COORDINATOR = "coord-paddle"
GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO = "volcano"

# Called with the job's name, the names not to wait for, and ROLE=REPLICAS for every role. `getent` sees /etc/hosts too;
# busybox has only `nslookup`. A name that never resolves is not waited for for ever, since its replica may have been
# scaled away meanwhile, nor is it a failure: whoever is needed and late, the gate still waits for.
_WAIT = """\
done=" $1 "
try=1
shift
for role; do
  index=0
  while [ "$index" -lt "${role##*=}" ]; do
    name="$0-${role%=*}-$index"
    index=$((index + 1))
    case "$done" in *" $name "*) continue ;; esac
    until { getent hosts "$name" || nslookup "$name"; } >/dev/null 2>&1; do
      echo "check $try: $name has no address yet"
      [ "$try" -lt 1000 ] || break
      try=$((try + 1))
      sleep 1
    done
  done
done
sleep 2
"""


def decorate(pod: Json, member: Member, training: Iterable[str]) -> Json:
    """`training` are the roles whose scheduler is everybody's."""
    job = member.job
    pod = template.with_spec(pod, hostname=member.name, subdomain=member.name)
    if intranet(job) == HOST:
        # Without the policy a pod on the host's network asks the host's name server, which knows no Services.
        pod = template.with_spec(pod, hostNetwork=True, **_unless_set(pod, "dnsPolicy", "ClusterFirstWithHostNet"))
    if intranet(job) == SERVICE:
        pod = template.with_container(pod, _with_port)
    if not is_elastic(job):
        source = {"configMapRef": {"name": job.name}}
        pod = template.with_container(pod, lambda c: {**c, "envFrom": [*(c.get("envFrom") or []), source]})
    return _scheduled(_coordinated(_with_samples(pod, member), member), member, training)


def service(body: Json, member: Member) -> Json:
    ports = [{"name": f"p-{n}", "port": FIRST_PORT + n, "targetPort": FIRST_PORT + n} for n in range(PORTS)]
    return {**body, "spec": {**body["spec"], "selector": {"paddle-res-name": member.name}, "ports": ports}}


def _unless_set(pod: Json, field: str, value: str) -> dict[str, str]:
    return {} if pod["spec"].get(field) else {field: value}


def _with_port(container: Json) -> Json:
    return {**container, "ports": [*template.ports_of(container), {"containerPort": FIRST_PORT}]}


def _with_samples(pod: Json, member: Member) -> Json:
    """A SampleSet is mounted as the PersistentVolumeClaim of its name."""
    samples = member.job.spec.get("sampleSetRef")
    if not samples:
        return pod
    volume = {"name": samples["name"], "persistentVolumeClaim": {"claimName": samples["name"]}}
    return template.with_volume(pod, volume, {"mountPath": samples["mountPath"]})


def _coordinated(pod: Json, member: Member) -> Json:
    """An init container that waits until the names of all replicas resolve. Elastic ones go on without one another."""
    job = member.job
    if not job.settings.coordinator_image or is_elastic(job):
        return pod
    done = [peer.name for peer in job.members() if is_done(job, (peer.role, peer.index))]
    sizes = [f"{role.lower()}={replica.replicas}" for role, replica in job.replicas.items()]
    return template.with_init_containers(
        pod,
        [
            {
                "name": COORDINATOR,
                "image": job.settings.coordinator_image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", _WAIT, job.name, " ".join(done), *sizes],
                "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
            }
        ],
    )


def _scheduled(pod: Json, member: Member, training: Iterable[str]) -> Json:
    """Volcano, by the operator's flag or by the scheduler's name in the worker's template, which counts for all."""
    job = member.job
    if job.settings.gang_scheduler.lower() == VOLCANO:
        marks = {
            "volcano.sh/job-name": job.name,
            "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": job.queue,
        }
        pod = template.with_metadata(pod, annotations=marks)
    templates = [job.replicas[role].template for role in training if role in job.replicas]
    if VOLCANO not in [declared.get("spec", {}).get("schedulerName") for declared in templates]:
        return pod
    return template.with_metadata(template.with_spec(pod, schedulerName=VOLCANO), annotations={GROUP_NAME: job.name})
