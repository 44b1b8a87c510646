"""What pods reach from inside: the API server, one another by kubectl and ssh, addresses of services, changed files."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.bed import Bed, Json, processes, wait_for_end
from tests.integration.plainbed import a_pod, is_ready, plain_bed, told
from tests.machine import BOTH

from trainmaster.cluster.kubelet.images import ImageMapping, Images
from trainmaster.objects.resource import CONFIG_MAPS, PODS, SERVICES
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NUMBERS = "".join(f"{number}\n" for number in range(1, 200_001))
MARKED = {"name": "MARK", "value": os.urandom(8).hex()}
"""In the environment of a pod whose processes are counted."""

READ = """
import os, ssl, urllib.request
account = os.environ.get("TRAINMASTER_SERVICE_ACCOUNT") or "/var/run/secrets/kubernetes.io/serviceaccount"
token, namespace = (open(f"{account}/{name}").read() for name in ("token", "namespace"))
where = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
request = urllib.request.Request(
    f"{where}/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=b'{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}',
    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=f"{account}/ca.crt")
print(namespace, urllib.request.urlopen(request, context=context).read().decode())
"""


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    images = Images([ImageMapping("its-own-ssh", has_own_ssh=True)])
    with plain_bed(tmp_path_factory.mktemp(request.param) / "cluster", request.param, images) as running:
        yield running


@pytest.fixture(scope="module")
def namespaced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with plain_bed(tmp_path_factory.mktemp("networks") / "cluster", "namespaces") as running:
        yield running


@pytest.fixture
def worker(cluster: Bed, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a pod that waits for commands."""
    name = f"worker-{abs(hash(request.node.name)) % 10**8}"
    env = [MARKED, {"name": "HERE", "value": "worker"}]
    cluster.submit(a_pod(name, "sleep 1000", container={"env": env}, hostname=name, subdomain="job"))
    cluster.pod(name, is_ready)
    yield name
    cluster.do(cluster.client.delete(PODS, name, "default"))


def caller(cluster: Bed, name: str, script: str, **more: Any) -> str:
    return told(cluster, a_pod(f"{name}-{os.urandom(3).hex()}", script, **more))


def test_a_pod_reaches_the_api_server_as_its_service_account(cluster):
    program = {"command": ["python", "-c", READ]}

    said = caller(cluster, "client", "", container=program)

    assert said.startswith("default {")
    assert '"username":"system:serviceaccount:default:default"' in said


@pytest.mark.parametrize("place", ["pod", "account"])
def test_a_token_is_not_mounted_where_that_is_not_wanted(cluster, place):
    wish = {"automountServiceAccountToken": False}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "quiet", "namespace": "default"}}
    pod = a_pod(f"quiet-{place}", "true", **(wish if place == "pod" else {"serviceAccountName": "quiet"}))
    if place == "account":
        cluster.submit({**account, **wish})

    cluster.submit(pod)

    stored = cluster.pod(pod["metadata"]["name"])
    assert stored["spec"].get("volumes") is None
    assert stored["spec"]["containers"][0].get("volumeMounts") is None


@pytest.mark.namespaces
def test_pods_have_no_default_route(namespaced):
    said = caller(namespaced, "routes", "cat /proc/net/route | cut -f 1,2,8")

    assert sorted(said.splitlines()[1:]) == ["eth0\t0000600A\t0000FFFF", "eth0\t0000F40A\t0000FFFF"]


def delivered(script: str) -> dict[str, Any]:
    """A pod spec as the launcher of an MPI job has it."""
    tools = {"volumeMounts": [{"name": "kubectl", "mountPath": "/opt/kube"}]}
    delivery = {
        "name": "kubectl-delivery",
        "image": "mpioperator/kubectl-delivery:latest",
        "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}],
        **tools,
    }
    return {
        "initContainers": [delivery],
        "volumes": [{"name": "kubectl", "emptyDir": {}}],
        "container": {**tools, "command": ["sh", "-c", script], "env": [{"name": "PYTHONPATH", "value": "/nowhere"}]},
    }


def test_the_delivered_kubectl_runs_a_command_in_another_pod(cluster, worker):
    remote = "/bin/sh -c 'echo in $HERE; echo no >&2; exit 7'"

    said = caller(
        cluster, "launcher", "", **delivered(f"/opt/kube/kubectl exec {worker} --container main -- {remote}; echo $?")
    )

    assert sorted(said.splitlines()) == ["7", "in worker", "no"]


def test_a_mounted_script_finds_the_delivered_kubectl(cluster, worker):
    name = f"scripts-{os.urandom(3).hex()}"
    script = '#!/bin/sh\npod=$1\nshift\nexec /opt/kube/kubectl exec "$pod" -- /bin/sh -c "$*"\n'
    cluster.submit(config_map(name, {"kubexec.sh": script}))
    spec = delivered(f"$AGENT {worker} echo out of '$HERE'")
    spec["volumes"].append({"name": "scripts", "configMap": {"name": name, "defaultMode": 0o555}})
    spec["container"]["volumeMounts"] = [
        *spec["container"]["volumeMounts"],
        {"name": "scripts", "mountPath": "/etc/mpi"},
    ]
    spec["container"]["env"] = [{"name": "AGENT", "value": "/etc/mpi/kubexec.sh"}]

    said = caller(cluster, "launcher", "", **spec)

    assert said == "out of worker\n"


def config_map(name: str, data: dict[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


@pytest.mark.parametrize(
    "host",
    ["{}", "root@{}", "{}.job.default.svc", "{}.job.default.svc.cluster.local", "{}.job"],
    ids=["name", "user", "service", "domain", "subdomain"],
)
def test_ssh_reaches_a_pod_by_each_of_its_names(cluster, worker, host):
    options = "-x -q -o StrictHostKeyChecking=no -p 2222 -i /root/.ssh/id_rsa -T -4"

    said = caller(cluster, "client", f"ssh {options} {host.format(worker)} 'echo in $HERE;' exit 3; echo $?")

    assert said == "in worker\n3\n"


def test_ssh_carries_much_input_and_output(cluster, worker):
    said = caller(cluster, "client", f"seq 1 200000 | ssh {worker} cat")

    assert said == NUMBERS


def test_ssh_runs_in_the_default_container_with_its_environment_and_directory(cluster, tmp_path):
    tmp_path.chmod(0o755)
    second = {"name": "second", "image": "any", "command": ["sleep", "1000"], "workingDir": str(tmp_path)}
    pod = a_pod("two", "sleep 1000", annotations={"kubectl.kubernetes.io/default-container": "second"})
    pod["spec"]["containers"].append({**second, "env": [{"name": "WHO", "value": "second"}]})
    cluster.submit(pod)
    cluster.pod("two", is_ready)

    said = caller(cluster, "client", "ssh two 'echo $WHO; pwd'")

    cluster.do(cluster.client.delete(PODS, "two", "default"))
    assert said.splitlines() == ["second", str(tmp_path)]


def test_a_host_that_is_no_pod_is_left_to_the_ssh_of_the_machine(cluster, tmp_path):
    real = tmp_path / "bin" / "ssh"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\necho really "$@"\n')
    real.chmod(0o755)

    path = f"$(dirname $(command -v sshd)):{real.parent}"
    said = caller(cluster, "client", f"PATH={path} ssh -p 22 build.example.com make all")

    assert said == "really -p 22 build.example.com make all\n"


def test_ssh_without_a_machine_of_that_name_says_so(cluster):
    said = caller(cluster, "client", "PATH=$(dirname $(command -v sshd)) ssh build.example.com true; echo $?")

    told = "ssh: host 'build.example.com' is no pod of this cluster, and this machine has no ssh of its own"
    assert sorted(said.splitlines()) == ["255", told]


def test_an_image_may_keep_the_programs_of_the_machine(cluster):
    script = "command -v kubectl-delivery || echo none of ours; echo /usr/sbin/sshd"

    said = caller(cluster, "server", "", container={"image": "its-own-ssh", "command": ["sh", "-c", script]})

    assert said == "none of ours\n/usr/sbin/sshd\n"


def test_a_remote_command_ends_with_its_client(cluster, worker):
    name, long = f"client-{worker}", str(secrets.randbelow(10**8) + 10**8)
    cluster.submit(a_pod(name, f"ssh {worker} 'sleep {long} & sleep {long} & echo started; wait' & wait"))
    cluster.says(name, "started")
    remote = [ran.pid for ran in processes(mark=MARKED["value"]) if long in command(ran.pid)]

    cluster.do(cluster.client.delete(PODS, name, "default"))

    assert len(remote) == 3  # the shell and what it started
    wait_for_end(remote)
    assert cluster.pod(worker)["status"]["phase"] == "Running"
    assert caller(cluster, "client", f"ssh {worker} echo there") == "there\n"


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_a_client_ends_with_the_pod_its_command_runs_in(cluster):
    cluster.submit(a_pod("short", "sleep 1000"))
    cluster.pod("short", is_ready)
    client = a_pod("lonely", "ssh short 'echo started; sleep 999'; echo ended with $?")
    cluster.submit(client)
    cluster.says("lonely", "started")

    cluster.do(cluster.client.delete(PODS, "short", "default"))

    cluster.says("lonely", "ended with 1")
    assert cluster.log("lonely").splitlines()[-1] in ("ended with 137", "ended with 143")


@pytest.mark.parametrize(
    ("words", "port"),
    [("-De", 22), ("-De", 2222), ("-D -p 2022", 2022), ("-De -f {}/sshd_config", 2200)],
    ids=["default", "unprivileged", "option", "file"],
)
def test_a_stand_in_for_sshd_passes_probes_and_stops_at_once(cluster, tmp_path, words, port):
    (tmp_path / "sshd_config").write_text("# comment\nPort 2200\nStrictModes no\n")
    tmp_path.chmod(0o755)
    name = f"served-{port}-{os.urandom(2).hex()}"
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    own = {
        "command": ["/usr/sbin/sshd", *words.format(tmp_path).split()],
        "readinessProbe": probe,
        "ports": [{"containerPort": port}],
    }
    cluster.submit(a_pod(name, "", container=own, terminationGracePeriodSeconds=300))

    cluster.pod(name, is_ready)
    cluster.do(cluster.client.delete(PODS, name, "default"))

    cluster.pod_gone(name)


FOLLOW = "until $SCRIPT | tee /dev/stderr | grep two; do sleep 0.1; done; stat -Lc %a $SCRIPT"


def test_mounted_files_follow_their_config_map_with_their_modes(cluster):
    name = f"hosts-{os.urandom(3).hex()}"
    cluster.submit(config_map(name, {"discover.sh": "#!/bin/sh\necho one\n"}))
    items = [{"key": "discover.sh", "path": "discover.sh", "mode": 0o555}]
    spec: dict[str, Any] = {
        "volumes": [{"name": "scripts", "configMap": {"name": name, "items": items}}],
        "container": {
            "volumeMounts": [{"name": "scripts", "mountPath": "/etc/mpi"}],
            "command": ["sh", "-c", FOLLOW],
            "env": [{"name": "SCRIPT", "value": "/etc/mpi/discover.sh"}],
        },
    }
    cluster.submit(a_pod(name, "", **spec))
    cluster.says(name, "one")

    cluster.do(cluster.client.patch(CONFIG_MAPS, name, {"data": {"discover.sh": "#!/bin/sh\necho two\n"}}, "default"))

    cluster.says(name, "555")


SERVE = """
import os, socket
host, port = os.environ["BIND"].split(":")
with socket.create_server((host, int(port))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(os.environ["GREETING"].encode())
        connection.close()
"""
PORT = 20_000 + os.getpid() % 10_000
"""Of servers; another in every test process: where pods share the network of this machine, so do clusters."""

CALL = """
import os, socket, time
deadline = time.monotonic() + float(os.environ["PATIENCE"])
while True:
    try:
        address = (os.environ["TARGET_HOST"], int(os.environ["TARGET_PORT"]))
        with socket.create_connection(address, timeout=20) as connection:
            print(connection.recv(99).decode(), flush=True)
        break
    except ConnectionError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.05)
"""
"""As a pod of a cluster has to: addresses of services follow their pods, some moments later."""


def a_service(name: str, port: int = PORT) -> Json:
    spec = {"selector": {"app": name}, "ports": [{"port": port, "targetPort": PORT}], "publishNotReadyAddresses": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def a_server(name: str, app: str, host: str = "0.0.0.0") -> Json:
    own = {
        "command": ["python", "-c", SERVE],
        "ports": [{"containerPort": PORT}],
        "env": [
            {"name": "GREETING", "value": f"this is {name}"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "BIND", "value": f"{host}:{PORT}"},
        ],
    }
    probe = {"readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1}}
    return a_pod(name, "", labels={"app": app}, container={**own, **probe}, terminationGracePeriodSeconds=0)


def called(cluster: Bed, service: str, port: int = PORT, patience: float = PATIENCE) -> str:
    """What a pod hears that connects to the literal address of a service."""
    address = cluster.do(cluster.client.get(SERVICES, service, "default"))["spec"]["clusterIP"]
    return called_at(cluster, address, port, patience)


def called_at(cluster: Bed, address: str, port: int, patience: float = PATIENCE) -> str:
    given = {"TARGET_HOST": address, "TARGET_PORT": str(port), "PATIENCE": str(patience)}
    env = [{"name": name, "value": value} for name, value in given.items()]
    return caller(cluster, "caller", "", container={"command": ["python", "-c", CALL], "env": env})


def test_the_address_of_a_service_leads_to_the_pod_behind_it_and_moves_with_it(cluster):
    cluster.submit(a_service("front"), a_server("first", "front"))
    cluster.pod("first", is_ready)

    before = called(cluster, "front")
    cluster.do(cluster.client.delete(PODS, "first", "default"))
    cluster.pod_gone("first")
    cluster.submit(a_server("second", "front"))
    cluster.pod("second", is_ready)
    after = called(cluster, "front")

    assert (before, after) == ("this is first\n", "this is second\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "$(POD_IP)"], ids=["everywhere", "at-its-own-address"])
def test_the_port_of_a_service_may_be_another_than_that_of_the_pod(cluster, host):
    name = f"mapped-{os.urandom(3).hex()}"
    cluster.submit(a_service(name, port=80), a_server(f"{name}-0", name, host))
    cluster.pod(f"{name}-0", is_ready)

    assert called(cluster, name, 80) == f"this is {name}-0\n"


@pytest.mark.parametrize("form", ["{}", "{}.default", "{}.default.svc.cluster.local"])
def test_the_name_of_a_service_with_another_port_than_its_pod_leads_to_it(cluster, form):
    name = f"named-{os.urandom(3).hex()}"
    cluster.submit(a_service(name, port=80), a_server(f"{name}-0", name))
    cluster.pod(f"{name}-0", is_ready)

    assert called_at(cluster, form.format(name), 80) == f"this is {name}-0\n"


@pytest.mark.namespaces
def test_the_address_of_a_service_without_a_pod_refuses_at_once(namespaced):
    namespaced.submit(a_service("alone"))

    said = called(namespaced, "alone", patience=0)

    assert said.splitlines()[-1] == "ConnectionRefusedError: [Errno 111] Connection refused"
