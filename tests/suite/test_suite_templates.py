"""What our CRDs have a type for in a pod is taken as Kubernetes takes it, and reaches the pods."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.api import schema
from trainmaster.objects.resource import PODS
from trainmaster.testing.jobs import KINDS, ROLES
from trainmaster.testing.scene import a_job

POD = {
    "activeDeadlineSeconds": 86400,
    "hostIPC": True,
    "hostPID": True,
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "fast"},
    "schedulerName": "nobody",
    "serviceAccountName": "default",
    "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "runAsNonRoot": True},
    "terminationGracePeriodSeconds": 7,
    "volumes": [{"name": "scratch", "emptyDir": {}}],
}
CONTAINER = {
    "image": "example/train:1",
    "command": ["python3"],
    "args": ["train.py"],
    "workingDir": "/work",
    "imagePullPolicy": "IfNotPresent",
    "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"memory": "1Gi", "cpu": "500m"}},
    "securityContext": {"runAsUser": 1001, "privileged": False},
    "stdin": True,
    "tty": True,
}
TOLERATION = {"key": "accelerator", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
PORT = {"name": "extra", "containerPort": 65535}
MOUNT = {"name": "scratch", "mountPath": "/scratch", "subPath": "mine", "readOnly": True}
VARIABLE = {"name": "MINE", "value": "yes"}
LISTS = {"ports": [PORT], "volumeMounts": [MOUNT], "env": [VARIABLE]}
UNTRIED = {"dnsConfig", "hostNetwork", "initContainers", "nodeName", "priorityClassName", "restartPolicy"}
"""What the operator has a say in, or what needs more in the cluster than a name."""


def templated(scene, roles):
    """The job with all of that in every role."""
    name = scene.framework.container or "main"
    for role, replicas in roles.items():
        container = {"name": name, **CONTAINER, **LISTS}
        scene = scene.role(role, replicas, tolerations=[TOLERATION], **{**POD, "containers": [container]})
    return scene.manifest


JOBS = [
    *(pytest.param(templated(a_job(kind, f"typed-{kind.lower()}"), ROLES[kind]), id=kind) for kind in KINDS),
    *(
        pytest.param(
            templated(a_job("MPIJob", f"typed-{version}", version=version), {"Launcher": 1, "Worker": 1}),
            id=f"MPIJob-{version}",
        )
        for version in ("v1alpha2", "v1", "v2beta1")
    ),
    pytest.param(templated(a_paddle().meta(name="typed-pdj"), {"worker": 1}), id="pdj"),
]


@pytest.mark.parametrize("job", JOBS)
async def test_what_a_template_says_is_taken_and_reaches_its_pods(cluster, job):
    name = f"{job['metadata']['name']}-worker-0"

    await cluster.submit(job)
    pod = (await cluster.object(PODS, name))["spec"]
    main = next(container for container in pod["containers"] if container["image"] == "example/train:1")

    assert {field: pod[field] for field in POD} == POD | {"volumes": pod["volumes"]}
    assert TOLERATION in pod["tolerations"]
    assert {"name": "scratch", "emptyDir": {}} in pod["volumes"]
    assert {field: main[field] for field in CONTAINER} == CONTAINER | {"resources": main["resources"]}
    assert main["resources"]["limits"] == {"memory": "1Gi", "cpu": "2"}
    assert PORT | {"protocol": "TCP"} in main["ports"]
    assert MOUNT in main["volumeMounts"]
    assert VARIABLE in main["env"]


def test_nothing_that_has_a_type_is_forgotten_here():
    typed = schema.POD_TEMPLATE["properties"]["spec"]["properties"].keys()

    assert typed - UNTRIED == {*POD, "containers", "tolerations"}
    assert schema.CONTAINER["properties"].keys() == {*CONTAINER, *LISTS, "name"}
