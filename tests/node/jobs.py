"""The jobs of this suite: one of each kind, as a user would write them; only the programs are plain Python."""

from tools.kubernetes.node_images import PROGRAMS, RANKS

KEPT = {"cleanPodPolicy": "None"}
"""So that logs can be read when all is over."""


def pod(container, *command, **fields):
    held = {"name": container, "image": RANKS, **({"command": list(command)} if command else {}), **fields}
    # A program that is the first process of its container does not hear that it should end.
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [held]}}


def rank(framework, *words):
    return pod(framework, "python3", f"{PROGRAMS}/rank.py", framework, *words)


def job(api_version, kind, name, **spec):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def replicas(count, template):
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def pytorch(name="pytorch", *words):
    roles = {"Master": replicas(1, rank("pytorch", *words)), "Worker": replicas(2, rank("pytorch"))}
    return job("kubeflow.org/v1", "PyTorchJob", name, runPolicy=KEPT, pytorchReplicaSpecs=roles)


def failing():
    roles = {"Master": replicas(1, pod("pytorch", "sh", "-c", "exit 3"))}
    return job("kubeflow.org/v1", "PyTorchJob", "failing", runPolicy=KEPT, pytorchReplicaSpecs=roles)


def tensorflow():
    roles = {"PS": replicas(1, rank("tensorflow")), "Worker": replicas(2, rank("tensorflow"))}
    return job("kubeflow.org/v1", "TFJob", "tensorflow", runPolicy=KEPT, tfReplicaSpecs=roles)


def mpi(version):
    mpirun = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2")
    launcher = pod("mpi", *mpirun, "python3", f"{PROGRAMS}/rank_mpi.py")
    roles = {"Launcher": replicas(1, launcher), "Worker": {"replicas": 2, "template": pod("mpi")}}
    return job(f"kubeflow.org/{version}", "MPIJob", f"mpi-{version}", runPolicy=KEPT, mpiReplicaSpecs=roles)


def paddle():
    roles = {role: {"replicas": count, "template": rank("paddle")} for role, count in {"ps": 1, "worker": 2}.items()}
    return job("batch.paddlepaddle.org/v1", "PaddleJob", "paddle", intranet="Service", cleanPodPolicy="Never", **roles)


def mindspore():
    roles = {role: replicas(count, rank("mindspore")) for role, count in {"Scheduler": 1, "PS": 1, "Worker": 2}.items()}
    return job("mindspore.gitee.com/v1", "MSJob", "mindspore", runPolicy=KEPT, msReplicaSpecs=roles)
