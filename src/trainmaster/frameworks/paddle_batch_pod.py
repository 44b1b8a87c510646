"""What the pods of a paddle-operator job have beyond their templates: names, ports, the gate, the wait before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainmaster.api.job import Job, Member
from trainmaster.frameworks.paddle_batch_contract import (
    FIRST_PORT,
    HOST,
    POD_IP,
    PORTS,
    SERVICE,
    first_port,
    intranet,
    is_done,
    is_elastic,
)
from trainmaster.objects import template
from trainmaster.objects.meta import Json

COORDINATOR = "coord-paddle"
GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO = "volcano"

# Called with the job's name, and ROLE=FIRST-LAST for all whose names are waited for: a list of ten thousand names is
# longer than an argument may be. `getent` sees /etc/hosts too; busybox has only `nslookup`. A name that never resolves
# is not waited for for ever, since its replica may have been scaled away meanwhile, nor is it a failure: whoever is
# needed and late, the gate still waits for.
_WAIT = """\
try=1
for range; do
  index="${range##*=}"
  last="${index#*-}"
  index="${index%-*}"
  while [ "$index" -le "$last" ]; do
    name="$0-${range%=*}-$index"
    index=$((index + 1))
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


def decorate(pod: Json, member: Member, by_volcano: Callable[[Job], bool]) -> Json:
    """`by_volcano`: whether the templates of a job name Volcano."""
    job = member.job
    pod = template.with_spec(pod, hostname=member.name, subdomain=member.name)
    if intranet(job) == HOST:
        # Without the policy a pod on the host's network asks the host's name server, which knows no Services.
        pod = template.with_spec(pod, hostNetwork=True, **_unless_set(pod, "dnsPolicy", "ClusterFirstWithHostNet"))
    if _declares_port(pod, job):
        port = {"containerPort": first_port(job)}
        pod = template.with_container(pod, lambda c: {**c, "ports": [*template.ports_of(c), port]})
    if not is_elastic(job):
        source = {"configMapRef": {"name": job.name}}
        pod = template.with_container(pod, lambda c: {**c, "envFrom": [*(c.get("envFrom") or []), source]})
    return _scheduled(_coordinated(_with_samples(pod, member), member), member, by_volcano)


def service(body: Json, member: Member) -> Json:
    ports = [{"name": f"p-{n}", "port": FIRST_PORT + n, "targetPort": FIRST_PORT + n} for n in range(PORTS)]
    return {**body, "spec": {**body["spec"], "selector": {"paddle-res-name": member.name}, "ports": ports}}


def _declares_port(pod: Json, job: Job) -> bool:
    """On a node's network, a declared port is taken on the node, which would keep the next replica away from it."""
    is_by_address = intranet(job) == POD_IP and not is_elastic(job) and not pod["spec"].get("hostNetwork")
    return is_by_address or intranet(job) == SERVICE


def _unless_set(pod: Json, field: str, value: str) -> dict[str, str]:
    return {} if pod["spec"].get(field) else {field: value}


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
    return template.with_init_containers(
        pod,
        [
            {
                "name": COORDINATOR,
                "image": job.settings.coordinator_image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", _WAIT, job.name, *job.once(_awaited)],
                "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
            }
        ],
    )


def _awaited(job: Job) -> list[str]:
    """Ranges of replicas that are not done."""
    return [f"{role.lower()}={first}-{last}" for role in job.replicas for first, last in _gaps(job, role)]


def _gaps(job: Job, role: str) -> Iterator[tuple[int, int]]:
    first = 0
    for index in range(job.count(role) + 1):
        if index == job.count(role) or is_done(job, (role, index)):
            if first < index:
                yield first, index - 1
            first = index + 1


def _scheduled(pod: Json, member: Member, by_volcano: Callable[[Job], bool]) -> Json:
    """Volcano, by the operator's flag or by the scheduler's name in the worker's template, which counts for all."""
    job = member.job
    if job.settings.gang_scheduler.lower() == VOLCANO:
        marks = {
            "volcano.sh/job-name": job.name,
            "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": job.queue,
        }
        pod = template.with_metadata(pod, annotations=marks)
    if not job.once(by_volcano):
        return pod
    return template.with_metadata(template.with_spec(pod, schedulerName=VOLCANO), annotations={GROUP_NAME: job.name})
