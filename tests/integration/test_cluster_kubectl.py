"""Stock kubectl against the embedded API server. `make test-kubectl` tries several releases; KUBECTL names another."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import kubectl as stock

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server import auth
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.storage.store import Store
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.kubectl

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trains.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "trains",
            "singular": "train",
            "kind": "Train",
            "listKind": "TrainList",
            "shortNames": ["tr"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.workers", "statusReplicasPath": ".status.workers"},
                },
                "additionalPrinterColumns": [
                    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
                    {"name": "Workers", "type": "integer", "jsonPath": ".spec.workers"},
                    {"name": "Queue", "type": "string", "jsonPath": ".spec.queue", "priority": 1},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What to train.",
                                "properties": {
                                    "workers": {"type": "integer", "minimum": 0, "description": "How many workers."},
                                    "queue": {"type": "string"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def a_pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name, **labels}},
        "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["true"]}]},
    }


def a_deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def a_config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def a_train(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Train", "metadata": {"name": name}, "spec": spec}


IN_TIME = f"--timeout={PATIENCE:g}s"


@dataclass(frozen=True)
class Kubectl:
    binary: str
    kubeconfig: Path
    home: Path
    namespace: str = "default"

    def command(self, *arguments: str) -> list[str]:
        return [self.binary, "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), **more}

    def run(self, *arguments: str, send: Any = None, code: int = 0, **environment: str) -> str:
        """What it prints, both streams together; fails the test when it ends with another code."""
        documents = send if isinstance(send, list) else [send]
        text = send if isinstance(send, str) else "\n".join(json.dumps(document) for document in documents)
        done = subprocess.run(
            self.command(*arguments),
            input=text if send is not None else "",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(**environment),
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))


async def serve(directory: Path, started: threading.Event, told: dict[str, Any]) -> None:
    store = await Store.open(None)
    registry = Registry(store, now=time.time)
    await registry.start()
    credentials = auth.prepare(directory / "pki")
    server = ApiServer(registry, runtime=None, tokens={credentials.token: auth.ADMIN}, tls=credentials.server_context())
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run())
            await server.ready.wait()
            auth.write_kubeconfig(directory / "kubeconfig", server.url, credentials)
            told |= {"stop": running.cancel, "loop": asyncio.get_running_loop()}
            started.set()
    finally:
        await store.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    binary = stock.kubectl()
    directory = tmp_path_factory.mktemp("cluster")
    started, told = threading.Event(), dict[str, Any]()
    thread = threading.Thread(target=lambda: asyncio.run(serve(directory, started, told)), name="cluster")
    thread.start()
    assert started.wait(20)
    yield Kubectl(binary, directory / "kubeconfig", directory)
    told["loop"].call_soon_threadsafe(told["stop"])
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def kubectl(cluster: Kubectl, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a namespace of the test's own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")[-60:].strip("-")
    cluster.run("create", "namespace", name)
    return Kubectl(cluster.binary, cluster.kubeconfig, cluster.home, name)


@pytest.fixture(scope="module")
def trains(cluster: Kubectl) -> None:
    cluster.run("apply", "-f", "-", send=CRD)
    cluster.run("wait", "--for=condition=Established", "crd/trains.example.com", IN_TIME)


def columns(printed: str) -> list[str]:
    return re.split(r"\s{2,}", printed.splitlines()[0].strip())


def test_wrong_token_is_refused(cluster: Kubectl, tmp_path: Path):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    other = tmp_path / "kubeconfig"
    other.write_text(yaml.safe_dump(config))

    said = Kubectl(cluster.binary, other, cluster.home).run("get", "pods", code=1)

    assert "Unauthorized" in said or "must be logged in" in said


def test_apply_creates_then_configures_then_leaves_alone(kubectl: Kubectl):
    first = kubectl.run("apply", "-f", "-", send=a_config("c", a="1"))
    second = kubectl.run("apply", "-f", "-", send=a_config("c", b="2"))
    third = kubectl.run("apply", "-f", "-", send=a_config("c", b="2"))

    assert "created" in first
    assert "configured" in second
    assert "unchanged" in third
    assert kubectl.json("get", "cm", "c")["data"] == {"b": "2"}


def test_apply_merges_containers_by_name(kubectl: Kubectl):
    deployment = a_deployment("d")
    kubectl.run("apply", "-f", "-", send=deployment)
    kubectl.run("set", "env", "deployment/d", "A=1")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:2"

    kubectl.run("apply", "-f", "-", send=deployment)

    container = kubectl.json("get", "deployment", "d")["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["env"]) == ("busybox:2", [{"name": "A", "value": "1"}])


def test_unknown_field_is_pointed_out(kubectl: Kubectl):
    pod = a_pod("p")
    pod["spec"]["containres"] = []

    said = kubectl.run("apply", "-f", "-", send=pod, code=1)

    assert "containres" in said


def test_create_refuses_what_exists(kubectl: Kubectl):
    kubectl.run("create", "-f", "-", send=a_config("c"))

    said = kubectl.run("create", "-f", "-", send=a_config("c"), code=1)

    assert '(AlreadyExists): error when creating "STDIN": configmaps "c" already exists' in said


def test_generators_create_their_kinds(kubectl: Kubectl):
    kubectl.run("create", "configmap", "c", "--from-literal=a=1")
    kubectl.run("create", "secret", "generic", "s", "--from-literal=a=1")
    kubectl.run("create", "serviceaccount", "sa")
    kubectl.run("create", "deployment", "d", "--image=busybox")
    kubectl.run("create", "job", "j", "--image=busybox", "--", "true")
    kubectl.run("run", "p", "--image=busybox", "--restart=Never", "--", "true")

    listed = kubectl.run("get", "cm/c", "secret/s", "sa/sa", "deploy/d", "job/j", "pod/p", "-o", "name").split()

    assert listed == ["configmap/c", "secret/s", "serviceaccount/sa", "deployment.apps/d", "job.batch/j", "pod/p"]


def test_get_prints_the_columns_of_each_kind(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=[a_pod("p"), a_deployment("d")])

    assert columns(kubectl.run("get", "pods")) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert columns(kubectl.run("get", "pods", "-o", "wide"))[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert columns(kubectl.run("get", "deploy"))[:3] == ["NAME", "READY", "UP-TO-DATE"]
    assert re.search(r"^p\s+0/1\s+Pending\s+0\s+\d+s$", kubectl.run("get", "pods"), re.MULTILINE)


def test_get_prints_yaml_json_jsonpath_and_names(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_config("c", a="1"))

    assert yaml.safe_load(kubectl.run("get", "cm", "c", "-o", "yaml"))["data"] == {"a": "1"}
    assert kubectl.json("get", "cm", "c")["kind"] == "ConfigMap"
    assert kubectl.run("get", "cm", "c", "-o", "jsonpath={.data.a}") == "1"
    assert kubectl.run("get", "cm", "c", "-o", "custom-columns=N:.metadata.name", "--no-headers").strip() == "c"


def test_get_selects_by_label_and_field(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=[a_pod("a", tier="x"), a_pod("b", tier="y"), a_pod("c")])

    def names(*arguments: str) -> list[str]:
        return kubectl.run("get", "pods", "-o", "name", *arguments).split()

    assert names("-l", "tier=x") == ["pod/a"]
    assert names("-l", "tier in (x,y),app!=a") == ["pod/b"]
    assert names("-l", "!tier") == ["pod/c"]
    assert names("--field-selector", "metadata.name=b") == ["pod/b"]
    assert names("--field-selector", "status.phase!=Pending") == []


def test_get_in_chunks_lists_everything_once(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=[a_config(f"c{n}") for n in range(7)])

    listed = kubectl.run("get", "cm", "-o", "name", "--chunk-size=3").split()

    assert [name for name in listed if re.match(r"configmap/c\d", name)] == [f"configmap/c{n}" for n in range(7)]


def test_get_watch_prints_changes_as_they_happen(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_pod("p"))
    command = kubectl.command("get", "pods", "-w", "-L", "step")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kubectl.environment()) as watcher:
        assert watcher.stdout is not None
        header, first = watcher.stdout.readline(), watcher.stdout.readline()

        kubectl.run("label", "pod", "p", "step=2")
        second = watcher.stdout.readline()
        watcher.terminate()

    assert header.split()[-1] == "STEP"
    assert first.split()[:2] == ["p", "0/1"]
    assert second.split()[-1] == "2"


def test_describe_shows_spec_and_events(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_pod("p"))
    uid = kubectl.run("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    about = {"kind": "Pod", "namespace": kubectl.namespace, "name": "p", "uid": uid, "apiVersion": "v1"}
    moment = "2024-01-01T00:00:00Z"
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "involvedObject": about, "type": "Normal",
        "reason": "Tested", "message": "all is well", "firstTimestamp": moment, "lastTimestamp": moment, "count": 1,
        "source": {"component": "test"},
    }  # fmt: skip
    kubectl.run("create", "-f", "-", send=event)

    said = kubectl.run("describe", "pod", "p")

    assert re.search(r"Image:\s+busybox", said)
    assert "all is well" in said


def test_edit_writes_what_the_editor_left(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_config("c", a="1"))

    kubectl.run("edit", "cm", "c", KUBE_EDITOR='sed -i s/\\"1\\"/\\"2\\"/')

    assert kubectl.json("get", "cm", "c")["data"] == {"a": "2"}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param(
            "strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"x"}]}}}}', id="s"
        ),
        pytest.param(
            "merge", '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"x"}]}}}}', id="merge"
        ),
        pytest.param(
            "json", '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"x"}]', id="json"
        ),
    ],
)
def test_patch_of_each_type_changes_the_object(kubectl: Kubectl, kind: str, patch: str):
    kubectl.run("apply", "-f", "-", send=a_deployment("d"))

    kubectl.run("patch", "deployment", "d", "--type", kind, "-p", patch)

    assert kubectl.run("get", "deploy", "d", "-o", "jsonpath={..image}") == "x"


def test_server_side_apply_reports_conflicts_and_forces_them(kubectl: Kubectl):
    kubectl.run("apply", "--server-side", "--field-manager=one", "-f", "-", send=a_config("c", a="1"))

    refused = kubectl.run("apply", "--server-side", "--field-manager=two", "-f", "-", send=a_config("c", a="2"), code=1)
    kubectl.run(
        "apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", send=a_config("c", a="2")
    )

    assert 'conflict with "one"' in refused
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "2"}


def test_labels_and_annotations_come_and_go(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_config("c"))
    kubectl.run("label", "cm", "c", "x=1")
    kubectl.run("annotate", "cm", "c", "y=2")

    there = kubectl.json("get", "cm", "c")["metadata"]
    kubectl.run("label", "cm", "c", "x-")
    kubectl.run("annotate", "cm", "c", "y-")
    gone = kubectl.json("get", "cm", "c")["metadata"]

    assert (there["labels"], there["annotations"]["y"]) == ({"x": "1"}, "2")
    assert "x" not in gone.get("labels", {})
    assert "y" not in gone.get("annotations", {})


def test_scale_goes_through_the_subresource(kubectl: Kubectl, trains: None):
    kubectl.run("apply", "-f", "-", send=[a_deployment("d"), a_train("t", workers=1)])

    kubectl.run("scale", "deployment", "d", "--replicas=3", "--current-replicas=1")
    kubectl.run("scale", "train", "t", "--replicas=5")
    refused = kubectl.run("scale", "deployment", "d", "--replicas=9", "--current-replicas=1", code=1)

    assert kubectl.json("get", "deploy", "d")["spec"]["replicas"] == 3
    assert kubectl.json("get", "train", "t")["spec"]["workers"] == 5
    assert "Expected replicas to be 1, was 3" in refused


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=[a_config("c"), a_config("d")])

    said = kubectl.run("delete", "cm", "c", IN_TIME)

    assert 'configmap "c" deleted' in said
    assert "NotFound" in kubectl.run("get", "cm", "c", code=1)
    assert kubectl.run("get", "cm", "d", "-o", "name").strip() == "configmap/d"


def test_delete_by_label_takes_only_those(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=[a_pod("a", tier="x"), a_pod("b", tier="y")])

    kubectl.run("delete", "pods", "-l", "tier=x", "--force", "--grace-period=0")

    assert kubectl.run("get", "pods", "-o", "name").split() == ["pod/b"]


@pytest.mark.parametrize(
    ("mode", "finalizers"),
    [
        pytest.param("foreground", ["foregroundDeletion"], id="foreground"),
        pytest.param("orphan", ["orphan"], id="orphan"),
    ],
)
def test_delete_with_a_cascade_mode_leaves_it_to_the_collector(kubectl: Kubectl, mode: str, finalizers: list[str]):
    kubectl.run("apply", "-f", "-", send=a_deployment("d"))

    kubectl.run("delete", "deployment", "d", f"--cascade={mode}", "--wait=false")

    metadata = kubectl.json("get", "deployment", "d")["metadata"]
    assert metadata["finalizers"] == finalizers
    assert metadata["deletionTimestamp"]


def test_delete_in_the_background_removes_at_once(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_deployment("d"))

    kubectl.run("delete", "deployment", "d", "--cascade=background", IN_TIME)

    assert "NotFound" in kubectl.run("get", "deployment", "d", code=1)


def test_wait_returns_when_the_condition_holds(kubectl: Kubectl, trains: None):
    kubectl.run("apply", "-f", "-", send=a_train("t"))
    command = kubectl.command("wait", "--for=condition=Succeeded", "train/t", IN_TIME)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kubectl.environment()) as waiting:
        status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        path = f"/apis/example.com/v1/namespaces/{kubectl.namespace}/trains/t/status"
        stored = kubectl.json("get", "train", "t")

        kubectl.run("replace", "--raw", path, "-f", "-", send=json.dumps({**stored, "status": status}))
        said, _ = waiting.communicate(timeout=PATIENCE)

    assert said.strip() == "train.example.com/t condition met"
    assert waiting.returncode == 0


def test_wait_for_deletion_sees_it(kubectl: Kubectl):
    config = a_config("c")
    config["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl.run("apply", "-f", "-", send=config)
    kubectl.run("delete", "cm", "c", "--wait=false")
    command = kubectl.command("wait", "--for=delete", "cm/c", IN_TIME, "-v=6")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kubectl.environment()) as waiting:
        assert waiting.stderr is not None
        watched = next(line for line in waiting.stderr if "watch=true" in line)

        kubectl.run("patch", "cm", "c", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        waiting.communicate(timeout=PATIENCE)

    assert "200 OK" in watched
    assert waiting.returncode == 0


def test_events_are_found_by_what_they_are_about(kubectl: Kubectl):
    for name in "ab":
        about = {"kind": "Pod", "namespace": kubectl.namespace, "name": name, "apiVersion": "v1"}
        event = {"involvedObject": about, "reason": "Tested", "message": f"about {name}", "type": "Warning"}
        kubectl.run(
            "create", "-f", "-", send={"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, **event}
        )

    found = kubectl.run("get", "events", "--field-selector", "involvedObject.name=a")

    assert columns(found) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "about a" in found
    assert "about b" not in found


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("configmap", "c", "--from-literal=a=1"), id="configmap"),
        pytest.param(("secret", "generic", "s", "--from-literal=a=1"), id="secret"),
        pytest.param(("deployment", "d", "--image=busybox", "--port=80", "--replicas=0"), id="deployment"),
        pytest.param(("job", "j", "--image=busybox", "--", "sh", "-c", "exit 3"), id="job"),
        pytest.param(("role", "r", "--verb=get,list", "--resource=pods"), id="role"),
        pytest.param(("service", "clusterip", "s", "--tcp=80:http"), id="service"),
    ],
)
def test_what_kubectl_sends_in_protobuf_is_what_it_would_send_in_json(kubectl: Kubectl, arguments: tuple[str, ...]):
    command, flags = (arguments, ()) if "--" not in arguments else _split(arguments)
    wanted = json.loads(kubectl.run("create", *command, "--dry-run=client", "-o", "json", *flags))

    made = json.loads(kubectl.run("create", *command, "-o", "json", *flags))

    assert missing(wanted, made) == []


def _split(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    place = arguments.index("--")
    return arguments[:place], arguments[place:]


def missing(wanted: Any, made: Any, path: str = "") -> list[str]:
    """Paths of what is wanted and not there, or not like that."""
    if isinstance(wanted, dict) and isinstance(made, dict):
        pairs = [(f"{path}.{key}", value, made.get(key)) for key, value in wanted.items()]
        return [found for name, value, other in pairs for found in missing(value, other, name) if value is not None]
    if isinstance(wanted, list) and isinstance(made, list) and len(wanted) == len(made):
        pairs = [(f"{path}[{n}]", value, made[n]) for n, value in enumerate(wanted)]
        return [found for name, value, other in pairs for found in missing(value, other, name)]
    return [] if wanted == made or (not wanted and not made) else [path]


def test_custom_resources_have_columns_short_names_and_checks(kubectl: Kubectl, trains: None):
    kubectl.run("apply", "-f", "-", send=a_train("t", workers=2, queue="q"))

    wide = kubectl.run("get", "tr", "-o", "wide")
    refused = kubectl.run("apply", "-f", "-", send=a_train("u", workers=-1), code=1)

    assert columns(wide) == ["NAME", "STATE", "WORKERS", "QUEUE"]
    assert wide.splitlines()[1].split() == ["t", "2", "q"]
    assert "spec.workers" in refused


def test_explain_knows_built_in_and_custom_fields(kubectl: Kubectl, trains: None):
    pod = kubectl.run("explain", "pod.spec.containers.resources")
    train = kubectl.run("explain", "trains.spec")

    assert "limits" in pod
    assert "How many workers." in train


def test_api_resources_and_versions_list_what_is_served(kubectl: Kubectl, trains: None):
    resources = kubectl.run("api-resources", "-o", "wide")
    versions = kubectl.run("api-versions").split()

    assert re.search(r"^pods\s+po\s+v1\s+true\s+Pod\s", resources, re.MULTILINE)
    assert re.search(r"^trains\s+tr\s+example.com/v1\s+true\s+Train\s", resources, re.MULTILINE)
    assert {"v1", "apps/v1", "example.com/v1"} <= set(versions)


def test_admin_may_do_everything(kubectl: Kubectl):
    assert kubectl.run("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in kubectl.run("auth", "can-i", "--list")


def test_diff_shows_the_change_without_making_it(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_config("c", a="1"))

    same = kubectl.run("diff", "-f", "-", send=a_config("c", a="1"))
    other = kubectl.run("diff", "-f", "-", send=a_config("c", a="2"), code=1)

    assert same == ""
    assert re.search(r'^\+\s+a: "2"$', other, re.MULTILINE)
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}


def test_server_side_dry_run_stores_nothing(kubectl: Kubectl):
    said = kubectl.run("apply", "--dry-run=server", "-f", "-", send=a_pod("p"))

    assert "created (server dry run)" in said
    assert "NotFound" in kubectl.run("get", "pod", "p", code=1)


def test_top_says_why_it_cannot(kubectl: Kubectl):
    assert "Metrics API not available" in kubectl.run("top", "pods", code=1)


def test_replace_needs_the_current_version(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_config("c", a="1"))
    stale = kubectl.json("get", "cm", "c")
    kubectl.run("label", "cm", "c", "x=1")

    said = kubectl.run("replace", "-f", "-", send=stale, code=1)

    assert "the object has been modified" in said


def test_version_and_health_answer(kubectl: Kubectl):
    assert json.loads(kubectl.run("get", "--raw", "/version"))["major"] == "1"
    assert kubectl.run("get", "--raw", "/readyz") == "ok"
    assert "Kubernetes" in kubectl.run("cluster-info") or "running at" in kubectl.run("cluster-info")


def test_logs_without_a_kubelet_say_so(kubectl: Kubectl):
    kubectl.run("apply", "-f", "-", send=a_pod("p"))

    said = kubectl.run("logs", "p", code=1)

    assert "without a kubelet" in said
