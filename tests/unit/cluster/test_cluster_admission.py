from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trainmaster.cluster.registry.addresses import Addresses, Refused
from trainmaster.cluster.registry.admission_service import POLICY as SERVICE
from trainmaster.cluster.registry.admission_table import BUILTIN_POLICIES
from trainmaster.cluster.registry.pod_check import check_pod
from trainmaster.cluster.registry.pod_defaults import fill_pod, qos_class
from trainmaster.cluster.registry.pod_update import check_pod_update, grace_of
from trainmaster.cluster.registry.status_error import ApiError


class World:
    def __init__(self, **objects: Mapping[str, Any]) -> None:
        self.addresses = Addresses()
        self._objects = objects

    def find(self, prefix: str, key: str) -> Mapping[str, Any] | None:
        return self._objects.get(key.rpartition("/")[2])

    def find_all(self, prefix: str) -> list[Mapping[str, Any]]:
        return list(self._objects.values())

    def now(self) -> float:
        return 0.0


def a_container(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i:1", **fields}


def a_pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": list(containers), **spec}}
    fill_pod(made)
    return made


def test_a_pod_gets_the_defaults_of_kubernetes() -> None:
    spec = a_pod(a_container())["spec"]

    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (spec["terminationGracePeriodSeconds"], spec["enableServiceLinks"]) == (30, True)
    assert spec["containers"][0] == {
        **a_container(),
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("host:5000/a", "Always"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_an_image_without_a_tag_is_always_pulled(image: str, policy: str) -> None:
    pod = a_pod(a_container(image=image))

    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_become_requests_and_probes_and_volumes_are_completed() -> None:
    container = a_container(
        resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        readinessProbe={"httpGet": {"port": 1}},
        ports=[{"containerPort": 80}],
    )
    spec = a_pod(container, volumes=[{"name": "a"}, {"name": "b", "configMap": {"name": "x"}}])["spec"]

    made = spec["containers"][0]
    assert made["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert made["readinessProbe"]["httpGet"] == {"port": 1, "path": "/", "scheme": "HTTP"}
    assert made["readinessProbe"]["periodSeconds"] == 10
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "x", "defaultMode": 420}},
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({}, "BestEffort", id="nothing"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="requests-only"),
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits"),
        pytest.param({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort", id="only-a-gpu"),
    ],
)
def test_quality_of_service_follows_from_requests_and_limits(resources: dict[str, Any], expected: str) -> None:
    assert qos_class(a_pod(a_container(resources=resources))["spec"]) == expected


@pytest.mark.parametrize(
    ("pod", "complaint"),
    [
        pytest.param(a_pod(), "spec.containers: Required value", id="no-containers"),
        pytest.param(a_pod(a_container(name="")), "spec.containers[0].name: Required value", id="no-name"),
        pytest.param(
            a_pod(a_container(), a_container()), 'spec.containers[1].name: Duplicate value: "c"', id="same-name"
        ),
        pytest.param(a_pod(a_container(image="")), "spec.containers[0].image: Required value", id="no-image"),
        pytest.param(
            a_pod(a_container(), restartPolicy="Sometimes"),
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
            id="restart-policy",
        ),
        pytest.param(
            a_pod(a_container(ports=[{"containerPort": 70000}])),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            id="port",
        ),
        pytest.param(
            a_pod(a_container(volumeMounts=[{"name": "v", "mountPath": "/x"}])),
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
            id="no-such-volume",
        ),
        pytest.param(
            a_pod(a_container(env=[{"name": "1A", "value": "x"}])),
            'spec.containers[0].env[0].name: Invalid value: "1A": a valid environment variable name must consist of',
            id="env-name",
        ),
        pytest.param(
            a_pod(a_container(env=[{"name": "A", "valueFrom": {}}])),
            'spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`',
            id="env-source",
        ),
        pytest.param(
            a_pod(a_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit',
            id="request-above-limit",
        ),
        pytest.param(
            a_pod(a_container(resources={"requests": {"nvidia.com/gpu": "1"}})),
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            id="gpu-without-limit",
        ),
        pytest.param(
            a_pod(a_container(), volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/", "type": ""}}]),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            id="two-sources",
        ),
        pytest.param(
            a_pod(a_container(livenessProbe={})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            id="empty-probe",
        ),
        pytest.param(
            a_pod(a_container(), hostAliases=[{"ip": "1.2.3.4\n6.6.6.6 api"}]),
            'spec.hostAliases[0].ip: Invalid value: "1.2.3.4\\n6.6.6.6 api": must be a valid IP address',
            id="alias-ip",
        ),
        pytest.param(
            a_pod(a_container(), hostAliases=[{"ip": "fe80::1%eth0"}]),
            'spec.hostAliases[0].ip: Invalid value: "fe80::1%eth0": must be a valid IP address',
            id="alias-scope",
        ),
        pytest.param(
            a_pod(a_container(), hostAliases=[{"ip": "::1", "hostnames": ["a", "b\n6.6.6.6 api"]}]),
            'spec.hostAliases[0].hostnames[1]: Invalid value: "b\\n6.6.6.6 api": a lowercase RFC 1123 subdomain must',
            id="alias-name",
        ),
    ],
)
def test_a_pod_that_makes_no_sense_is_refused_with_the_path(pod: dict[str, Any], complaint: str) -> None:
    causes = [str(cause) for cause in check_pod(pod)]

    assert len(causes) == 1
    assert causes[0].startswith(complaint)


def test_a_pod_takes_account_and_priority_from_the_cluster() -> None:
    world = World(default={"metadata": {"name": "default"}}, high={"metadata": {"name": "high"}, "value": 9})
    pod = a_pod(a_container(), priorityClassName="high")

    BUILTIN_POLICIES["/pods"].create(pod, world)

    assert pod["spec"]["serviceAccountName"] == "default"
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (9, "PreemptLowerPriority")
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"serviceAccountName": "nope"},
            'pods "p" is forbidden: error looking up service account n/nope: serviceaccount "nope" not found',
            id="account",
        ),
        pytest.param(
            {"priorityClassName": "nope"},
            'pods "p" is forbidden: no PriorityClass with name nope was found',
            id="priority",
        ),
    ],
)
def test_a_pod_that_names_what_is_not_there_is_forbidden(spec: dict[str, Any], message: str) -> None:
    world = World(default={"metadata": {"name": "default"}})

    with pytest.raises(ApiError) as refused:
        BUILTIN_POLICIES["/pods"].create(a_pod(a_container(), **spec), world)

    assert (refused.value.status, refused.value.message) == (403, message)


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        pytest.param({"containers": [a_container(image="new")]}, True, id="image"),
        pytest.param({"activeDeadlineSeconds": 5}, True, id="deadline"),
        pytest.param({"tolerations": [{"key": "a"}]}, True, id="more-tolerations"),
        pytest.param({"nodeName": "other"}, False, id="node"),
        pytest.param({"containers": [a_container(), a_container(name="d")]}, False, id="another-container"),
        pytest.param({"containers": [a_container(command=["x"])]}, False, id="command"),
    ],
)
def test_little_of_a_running_pod_may_change(change: dict[str, Any], is_allowed: bool) -> None:
    old = {"spec": {"containers": [a_container()]}}

    causes = check_pod_update({"spec": {**old["spec"], **change}}, old)

    assert (not causes) is is_allowed


@pytest.mark.parametrize(
    ("pod", "asked", "grace"),
    [
        pytest.param({"spec": {"terminationGracePeriodSeconds": 30}}, None, 0, id="on-no-node"),
        pytest.param({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 30}}, None, 30, id="its-own"),
        pytest.param({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 30}}, 5, 5, id="asked-for"),
        pytest.param({"spec": {"nodeName": "a"}, "status": {"phase": "Failed"}}, 5, 0, id="over"),
    ],
)
def test_only_a_pod_that_runs_gets_time_to_end(pod: dict[str, Any], asked: int | None, grace: int) -> None:
    assert grace_of(pod, asked) == grace


def a_service(**spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {"name": "s"}, "spec": spec}
    SERVICE.defaults(made)
    return made


def test_a_service_gets_an_address_and_gives_it_back() -> None:
    world = World()
    service, taken = a_service(ports=[{"port": 80}]), a_service(ports=[{"port": 80}])

    SERVICE.reserve(service, world)
    taken["spec"]["clusterIP"] = service["spec"]["clusterIP"]
    with pytest.raises(ApiError) as refused:
        SERVICE.reserve(taken, world)
    SERVICE.undo(service, world)
    SERVICE.reserve(taken, world)

    assert service["spec"]["clusterIP"].startswith("10.96.")
    assert service["spec"]["clusterIPs"] == [service["spec"]["clusterIP"]]
    assert "provided IP is already allocated" in refused.value.message
    assert taken["spec"]["clusterIP"] == service["spec"]["clusterIP"]


def test_a_headless_service_and_an_external_name_take_no_address() -> None:
    world = World()
    headless, external = a_service(clusterIP="None"), a_service(type="ExternalName", externalName="a.b")

    SERVICE.reserve(headless, world)
    SERVICE.reserve(external, world)

    assert headless["spec"]["clusterIPs"] == ["None"]
    assert "clusterIP" not in external["spec"]


def test_a_node_port_is_taken_from_its_range_once() -> None:
    addresses = Addresses()

    first = addresses.take_port()

    assert 30000 <= first <= 32767
    assert addresses.take_port() != first
    with pytest.raises(Refused, match="already allocated"):
        addresses.take_port(first)
    with pytest.raises(Refused, match="not in the valid range"):
        addresses.take_port(80)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        pytest.param({}, "spec.ports: Required value", id="no-ports"),
        pytest.param({"ports": [{"port": 0, "targetPort": 1}]}, "spec.ports[0].port: Invalid value: 0", id="port"),
        pytest.param(
            {"ports": [{"port": 1}, {"port": 2, "name": "b"}]}, "spec.ports[0].name: Required value", id="name"
        ),
        pytest.param({"ports": [{"port": 1}], "type": "Foo"}, 'spec.type: Unsupported value: "Foo"', id="type"),
        pytest.param({"type": "ExternalName"}, "spec.externalName: Required value", id="external"),
    ],
)
def test_a_service_that_makes_no_sense_is_refused(spec: dict[str, Any], complaint: str) -> None:
    causes = [str(cause) for cause in SERVICE.check(a_service(**spec))]

    assert len(causes) == 1
    assert causes[0].startswith(complaint)


def test_a_job_tells_its_pods_apart_by_its_uid() -> None:
    policy = BUILTIN_POLICIES["batch/jobs"]
    job: dict[str, Any] = {
        "kind": "Job",
        "metadata": {"name": "j", "uid": "u1"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [a_container()]}}},
    }

    policy.defaults(job)
    policy.create(job, World())

    assert policy.check(job) == []
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (1, 1, 6)
    assert job["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": "u1"}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "j"


def test_a_deployment_must_select_its_own_pods() -> None:
    policy = BUILTIN_POLICIES["apps/deployments"]
    deployment: dict[str, Any] = {
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [a_container()]}},
        },
    }

    policy.defaults(deployment)

    assert [str(cause) for cause in policy.check(deployment)] == [
        'spec.template.metadata.labels: Invalid value: map[string]string{"a":"c"}: `selector` does not match template '
        "`labels`"
    ]


def test_text_in_a_secret_is_stored_encoded() -> None:
    secret: dict[str, Any] = {"metadata": {"name": "s"}, "stringData": {"k": "v"}}

    BUILTIN_POLICIES["/secrets"].defaults(secret)

    assert secret == {"metadata": {"name": "s"}, "data": {"k": "dg=="}, "type": "Opaque"}


def test_an_immutable_config_map_stays_as_it_is() -> None:
    old = {"immutable": True, "data": {"a": "b"}}

    causes = BUILTIN_POLICIES["/configmaps"].check_update({"data": {"a": "c"}}, old)

    assert [cause.field for cause in causes] == ["immutable", "data"]


TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def admitted(pod: dict[str, Any], **account: Any) -> dict[str, Any]:
    BUILTIN_POLICIES["/pods"].create(pod, World(default={"metadata": {"name": "default"}, "value": 0, **account}))
    return pod["spec"]  # type: ignore[no-any-return]  # JSON


def test_every_container_gets_a_token_of_the_service_account_where_it_has_none() -> None:
    own = {"name": "mine", "mountPath": TOKENS}
    pod = a_pod(a_container(name="a"), a_container(name="b", volumeMounts=[own]), initContainers=[a_container()])

    spec = admitted(pod)

    (volume,) = spec["volumes"]
    mounts = [container["volumeMounts"] for container in (*spec["initContainers"], *spec["containers"])]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    ours = [{"name": volume["name"], "readOnly": True, "mountPath": TOKENS}]
    assert mounts == [ours, ours, [own]]


@pytest.mark.parametrize(
    ("of_pod", "of_account", "is_mounted"),
    [(False, None, False), (None, False, False), (True, False, True), (None, True, True)],
)
def test_a_token_is_mounted_unless_the_pod_or_else_the_account_says_no(
    of_pod: bool | None, of_account: bool | None, is_mounted: bool
) -> None:
    pod = a_pod(a_container(), **({} if of_pod is None else {"automountServiceAccountToken": of_pod}))
    account = {} if of_account is None else {"automountServiceAccountToken": of_account}

    assert ("volumes" in admitted(pod, **account)) is is_mounted
