"""Other people's manifests: every one must plan, and every plan must keep the rules of its kind.

They are read from the directory that CORPUS names and are not part of this project. The rules are written down here a
second time, from the manifest alone and without the code under test, so that the two can disagree.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import plan

ROLES = {
    "TFJob": ("tfReplicaSpecs", "tensorflow", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
    "MXJob": ("mxReplicaSpecs", "mxnet", ("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner")),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
}
PORTS = {"TFJob": 2222, "PyTorchJob": 23456, "XGBoostJob": 9999, "MXJob": 9091, "PaddleJob": 36543, "JAXJob": 6666}


def corpus() -> Path:
    named = os.environ.get("CORPUS", "")
    root = Path(named)
    if not named or not (root / "kubeflow").is_dir():
        pytest.fail(f"CORPUS={named!r} names no corpus: a directory with kubeflow/ and seeds/ is needed", pytrace=False)
    return root


def documents():
    root = Path(os.environ.get("CORPUS", ""))
    for path in sorted([*root.glob("kubeflow/**/*.yaml"), *root.glob("seeds/*.yaml")]):
        for number, body in enumerate(yaml.safe_load_all(path.read_text())):
            group = str((body or {}).get("apiVersion", "")).partition("/")[0]
            if body and body.get("kind") in ROLES and group.endswith("kubeflow.org"):
                yield pytest.param(body, id=f"{path.relative_to(root)}#{number}")


def planned(body):
    found = frameworks.serving(body["apiVersion"], body["kind"])
    assert found is not None
    framework, resource = found
    placed = {**body, "metadata": {"namespace": "default", "uid": "u", **body["metadata"]}}
    read = reading.read(framework, placed, resource=resource)
    assert not read.problems, [str(problem) for problem in read.problems]
    assert read.job is not None
    observed = Observed(read.framework, read.job)
    return read.job, plan(observed, 0.0), [action.body for action in blueprint(observed)]


def declared(body):
    """Role -> (replicas, template, port), by reading the manifest the plain way."""
    field, container, known = ROLES[body["kind"]]
    canonical = {name.lower(): name for name in known}
    names = (container, "xgboostjob")
    roles = {}
    for key, spec in body["spec"][field].items():
        containers = spec["template"]["spec"]["containers"]
        main = next(c for c in containers if c["name"] in names)
        named = [p for p in main.get("ports", ()) if p.get("name", "").endswith(("job-port", "master"))]
        port = named[0]["containerPort"] if named else PORTS[body["kind"]]
        roles[canonical[key.lower()]] = (spec.get("replicas", 1), spec["template"], port)
    return {name: roles[name] for name in known if name in roles}


def env_of(pod):
    names = {"tensorflow", "pytorch", "xgboost", "xgboostjob", "mxnet", "paddle", "jax"}
    container = next(c for c in pod["spec"]["containers"] if c["name"] in names)
    return {entry["name"]: entry.get("value") for entry in container.get("env", ())}


def pods_of(objects):
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == "Pod"}


def members(body):
    name = body["metadata"]["name"]
    return [
        (role, index, f"{name}-{role.lower()}-{index}")
        for role, (replicas, _, _) in declared(body).items()
        for index in range(replicas)
    ]


def test_the_corpus_is_there():
    corpus()

    assert len(list(documents())) >= 40


@pytest.mark.parametrize("body", list(documents()))
def test_every_replica_has_a_pod_and_a_headless_service_of_its_name(body):
    _, made, objects = planned(body)

    names = {name for _, _, name in members(body)}
    services = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Service"}
    assert set(pods_of(objects)) == names
    assert set(services) == names
    assert all(item["spec"]["clusterIP"] == "None" for item in services.values())
    assert {action.name for action in made.actions if action.resource.kind == "Pod"} == names


@pytest.mark.parametrize("body", list(documents()))
def test_what_the_user_wrote_reaches_the_pod(body):
    _, _, objects = planned(body)

    pods = pods_of(objects)
    for role, _, name in members(body):
        template = declared(body)[role][1]
        for wanted, container in zip(template["spec"]["containers"], pods[name]["spec"]["containers"], strict=True):
            for field in ("image", "command", "args", "resources", "volumeMounts", "imagePullPolicy"):
                assert container.get(field) == wanted.get(field)
            assert [e["name"] for e in container.get("env", ())][: len(wanted.get("env", ()))] == [
                e["name"] for e in wanted.get("env", ())
            ]
        assert pods[name]["spec"].get("volumes") == _without_nulls(template["spec"].get("volumes"))
        annotations = pods[name]["metadata"].get("annotations", {})
        assert annotations.items() >= template.get("metadata", {}).get("annotations", {}).items()


@pytest.mark.parametrize("body", list(documents()))
def test_the_contract_of_the_framework_is_kept(body):
    job, _, objects = planned(body)

    pods = pods_of(objects)
    everyone = members(body)
    for rank, (role, index, name) in enumerate(everyone):
        CONTRACTS[body["kind"]](body, job.namespace, role, index, rank, len(everyone), env_of(pods[name]))


@pytest.mark.parametrize("body", list(documents()))
def test_policy_is_read_from_both_places(body):
    job, _, _ = planned(body)

    spec = body["spec"]
    wanted = spec.get("runPolicy", {}).get("cleanPodPolicy", spec.get("cleanPodPolicy", "Running"))
    assert job.policy.clean_pod_policy == wanted


def tensorflow(body, namespace, role, index, rank, world, env):
    if world == 1:
        assert "TF_CONFIG" not in env
        return
    config = json.loads(env["TF_CONFIG"])
    name = body["metadata"]["name"]
    cluster = {
        key.lower(): [f"{name}-{key.lower()}-{i}.{namespace}.svc:{port}" for i in range(replicas)]
        for key, (replicas, _, port) in declared(body).items()
    }
    assert config["task"] == {"type": role.lower(), "index": index}
    assert config["cluster"] == cluster
    assert " " not in env["TF_CONFIG"]


def pytorch(body, namespace, role, index, rank, world, env):
    roles = declared(body)
    assert env["PYTHONUNBUFFERED"] == "1"
    if "Master" in roles:
        processes = str(body["spec"].get("nprocPerNode", ""))
        assert env["MASTER_ADDR"] == f"{body['metadata']['name']}-master-0"
        assert env["MASTER_PORT"] == str(roles["Master"][2])
        assert env["RANK"] == str(rank)
        assert env["WORLD_SIZE"] == str(world * (int(processes) if processes.isdecimal() else 1))
    if "elasticPolicy" in body["spec"]:
        policy = body["spec"]["elasticPolicy"]
        assert env["PET_NNODES"] == f"{policy['minReplicas']}:{policy['maxReplicas']}"
        assert env["PET_RDZV_BACKEND"] == policy["rdzvBackend"]
    else:
        assert env["PET_NNODES"] == str(world)


def xgboost(body, namespace, role, index, rank, world, env):
    name = body["metadata"]["name"]
    assert (env["RANK"], env["WORLD_SIZE"]) == (str(rank), str(world))
    assert env["MASTER_ADDR"] == f"{name}-master-0"
    if world > 1:
        assert env["WORKER_ADDRS"] == ",".join(f"{name}-worker-{i}" for i in range(world - 1))


def mxnet(body, namespace, role, index, rank, world, env):
    roles = declared(body)
    config = json.loads(env["MX_CONFIG"])
    assert env["DMLC_ROLE"] == role.lower()
    assert env["DMLC_NUM_WORKER"] == str(roles.get("Worker", (0,))[0])
    assert env["DMLC_NUM_SERVER"] == str(roles.get("Server", (0,))[0])
    assert config["task"] == {"type": role.lower(), "index": index}
    assert {key: len(hosts) for key, hosts in config["cluster"].items()} == {k.lower(): v[0] for k, v in roles.items()}


def paddle(body, namespace, role, index, rank, world, env):
    roles = declared(body)
    meeting = "Master" if "Master" in roles else "Worker"
    host = f"{body['metadata']['name']}-{meeting.lower()}-0"
    own = (role, index) == (meeting, 0)
    assert env["PADDLE_MASTER"] == f"{'$(POD_IP_DUMMY)' if own else host}:{roles[meeting][2]}"
    assert env["PADDLE_NNODES"] == str(world)


def jax(body, namespace, role, index, rank, world, env):
    assert env["COORDINATOR_ADDRESS"] == f"{body['metadata']['name']}-worker-0"
    assert (env["PROCESS_ID"], env["NUM_PROCESSES"]) == (str(index), str(world))


CONTRACTS = {
    "TFJob": tensorflow,
    "PyTorchJob": pytorch,
    "XGBoostJob": xgboost,
    "MXJob": mxnet,
    "PaddleJob": paddle,
    "JAXJob": jax,
}


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def seed(number):
    (path,) = corpus().glob(f"seeds/{number}-*.yaml")
    return yaml.safe_load(path.read_text())


def test_seed_000_04_gives_worker_0_exactly_the_documented_tf_config():
    _, _, objects = planned(seed("000-04"))

    config = env_of(pods_of(objects)["distributed-training-worker-0"])["TF_CONFIG"]
    assert config == (
        '{"cluster":{"ps":["distributed-training-ps-0.kubeflow.svc:2222"],'
        '"worker":["distributed-training-worker-0.kubeflow.svc:2222","distributed-training-worker-1.kubeflow.svc:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


def test_seed_000_05_has_ranks_0_1_2_of_3_on_port_23456():
    _, _, objects = planned(seed("000-05"))

    envs = [env_of(pod) for pod in pods_of(objects).values()]
    assert [env["RANK"] for env in envs] == ["0", "1", "2"]
    assert {env["WORLD_SIZE"] for env in envs} == {"3"}
    assert {env["MASTER_PORT"] for env in envs} == {"23456"}


def test_seed_000_03_keeps_its_pods_because_its_flat_policy_says_none():
    job, _, _ = planned(seed("000-03"))

    assert job.policy.clean_pod_policy == "None"
