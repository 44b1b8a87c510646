# ruff: noqa: T201  (a program of its own)
"""Uses the unmodified kubeflow-training SDK as its users do; run by test_sdk.py with an environment that has it.

python sdk.py KUBECONFIG KIND
"""

import sys
import time

from kubeflow.training import TrainingClient, models  # type: ignore[import-not-found]  # in its environment only

from kubernetes import client as kubernetes  # type: ignore[import-not-found]  # in its environment only

RANK = """
import os, socket, time
print("rank", socket.gethostname(), flush=True)
port, rank, world = (int(os.environ.get(name, "0")) for name in ("MASTER_PORT", "RANK", "WORLD_SIZE"))
if port and rank == 0:  # a master that has ended has no address any more, and its workers wait for one
    with socket.create_server(("", port)) as door:
        for _ in range(world - 1):
            door.accept()[0].close()
while port and rank:
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], port), 5).close()
        break
    except OSError:
        time.sleep(0.1)
"""
MODELS = {
    "TFJob": ("KubeflowOrgV1TFJob", "KubeflowOrgV1TFJobSpec", "tf_replica_specs", {"Chief": 1, "Worker": 2}),
    "PyTorchJob": (
        "KubeflowOrgV1PyTorchJob",
        "KubeflowOrgV1PyTorchJobSpec",
        "pytorch_replica_specs",
        {"Master": 1, "Worker": 2},
    ),
    "XGBoostJob": (
        "KubeflowOrgV1XGBoostJob",
        "KubeflowOrgV1XGBoostJobSpec",
        "xgb_replica_specs",
        {"Master": 1, "Worker": 2},
    ),
    "PaddleJob": ("KubeflowOrgV1PaddleJob", "KubeflowOrgV1PaddleJobSpec", "paddle_replica_specs", {"Worker": 2}),
    "JAXJob": ("KubeflowOrgV1JAXJob", "KubeflowOrgV1JAXJobSpec", "jax_replica_specs", {"Worker": 2}),
}
CONTAINERS = {
    "TFJob": "tensorflow",
    "PyTorchJob": "pytorch",
    "XGBoostJob": "xgboost",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
}


def a_job(kind, name):
    job, spec, field, roles = MODELS[kind]
    container = kubernetes.V1Container(name=CONTAINERS[kind], image="python:3", command=["python", "-c", RANK])
    template = kubernetes.V1PodTemplateSpec(spec=kubernetes.V1PodSpec(containers=[container]))
    replicas = {
        role: models.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="Never", template=template)
        for role, count in roles.items()
    }
    policy = models.KubeflowOrgV1RunPolicy(clean_pod_policy="None")
    return getattr(models, job)(
        api_version="kubeflow.org/v1",
        kind=kind,
        metadata=kubernetes.V1ObjectMeta(name=name, namespace="default"),
        spec=getattr(models, spec)(run_policy=policy, **{field: replicas}),
    )


def finish(client, name, kind):
    return client.wait_for_job_conditions(name, job_kind=kind, wait_timeout=150, polling_interval=1)


def await_pods(client, name, patience=150):
    """A job has succeeded when its leader has; the SDK leaves out the logs of ranks that have not started yet."""
    deadline = time.monotonic() + patience
    while {pod.status.phase for pod in client.get_job_pods(name)} != {"Succeeded"}:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def use(client, kind):
    """A whole life through every method that has to do with it."""
    name = f"sdk-{kind.lower()}"
    size = sum(MODELS[kind][3].values())
    client.create_job(a_job(kind, name))
    assert client.get_job(name, job_kind=kind).metadata.name == name
    assert finish(client, name, kind).status.completion_time is not None
    assert client.is_job_succeeded(name, job_kind=kind)
    assert not client.is_job_failed(name, job_kind=kind)
    assert [c.type for c in client.get_job_conditions(name, job_kind=kind)][-1] == "Succeeded"
    assert name in [job.metadata.name for job in client.list_jobs(job_kind=kind)]
    assert len(client.get_job_pods(name)) == size
    workers = sorted(client.get_job_pod_names(name, replica_type="worker"))
    assert workers == [f"{name}-worker-{index}" for index in range(2)], workers
    await_pods(client, name)
    logs, events = client.get_job_logs(name, job_kind=kind, is_master=False)
    assert logs == {pod: f"rank {pod}\n" for pod in logs}, logs
    assert (len(logs), events) == (size, {})
    followed, _ = client.get_job_logs(name, job_kind=kind, is_master=False, follow=True)
    assert {pod: text.strip() for pod, text in followed.items()} == {pod: f"rank {pod}" for pod in logs}, followed
    delete(client, name, kind)


def use_events(client):
    client.create_job(a_job("PyTorchJob", "sdk-events"))
    finish(client, "sdk-events", "PyTorchJob")
    logs, events = client.get_job_logs("sdk-events", is_master=True, verbose=True)
    assert list(logs) == ["sdk-events-master-0"], logs
    assert any("Created pods: sdk-events-master-0" in text for text in events["pytorchjob/sdk-events"]), events
    assert any("Started container pytorch" in text for text in events["pod/sdk-events-master-0"]), events
    delete(client, "sdk-events", "PyTorchJob")


def use_function(client):
    """From a function in a notebook, with packages of no need: one process, no torchrun."""

    def train(parameters):
        print("trained with", parameters["rate"])

    client.create_job(name="sdk-function", base_image="python:3", train_func=train, parameters={"rate": "0.5"})
    finish(client, "sdk-function", "PyTorchJob")
    logs, _ = client.get_job_logs("sdk-function")
    assert "trained with 0.5" in logs["sdk-function-master-0"], logs
    delete(client, "sdk-function", "PyTorchJob")


def use_suspension(client):
    """Updates, and waits for something other than success."""
    job = a_job("PyTorchJob", "sdk-suspended")
    job.spec.run_policy.suspend = True
    client.create_job(job)
    client.wait_for_job_conditions(
        "sdk-suspended", expected_conditions={"Created"}, wait_timeout=150, polling_interval=1
    )
    assert client.get_job_pods("sdk-suspended") == []
    job.spec.run_policy.suspend = False
    client.update_job(job, "sdk-suspended")
    finish(client, "sdk-suspended", "PyTorchJob")
    delete(client, "sdk-suspended", "PyTorchJob")


def use_failure(client):
    job = a_job("PyTorchJob", "sdk-failed")
    job.spec.pytorch_replica_specs["Master"].template.spec.containers[0].command = ["false"]
    client.create_job(job)
    told = ""
    try:
        finish(client, "sdk-failed", "PyTorchJob")
    except RuntimeError as error:
        told = str(error)
    assert "sdk-failed" in told, told
    assert client.is_job_failed("sdk-failed")
    delete(client, "sdk-failed", "PyTorchJob")


def delete(client, name, kind):
    client.delete_job(name, job_kind=kind)
    assert name not in [job.metadata.name for job in client.list_jobs(job_kind=kind)]


SPECIAL = {"events": use_events, "function": use_function, "suspension": use_suspension, "failure": use_failure}


def main(config, what):
    client = TrainingClient(config_file=config)
    if what in SPECIAL:
        SPECIAL[what](client)
    else:
        use(client, what)
    print(f"{what} done")


main(*sys.argv[1:])
