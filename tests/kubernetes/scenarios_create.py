"""Creating built-in objects: what is accepted, with which defaults, and how what is wrong is refused."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios, post_each
from tests.kubernetes.specimens import (
    ACCOUNTS,
    BATCH_JOBS,
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    PODS,
    PRIORITIES,
    QUOTAS,
    ROLES,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    VOLUMES,
    a_batch_job,
    a_claim,
    a_config_map,
    a_deployment,
    a_lease,
    a_pod,
    a_secret,
    a_service,
    a_volume,
    an_event,
    changed,
)

SCENARIOS = Scenarios()
LONG = "x" * 64
CONTAINER: dict[str, Any] = {"name": "main", "image": "i"}


def with_container(name: str = "p", **fields: Any) -> dict[str, Any]:
    return a_pod(name, spec__containers=[{**CONTAINER, **fields}])


METADATA: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "name in upper case": {"name": "Upper"},
    "name with underscore": {"name": "a_b"},
    "name with dots": {"name": "a.b"},
    "name that starts with a dash": {"name": "-a"},
    "name of 254 characters": {"name": "a" * 254},
    "name with a slash": {"name": "a/b"},
    "number as name": {"name": 5},
    "bad label key": {"name": "m", "labels": {"a b": "x"}},
    "empty label key": {"name": "m", "labels": {"": "x"}},
    "bad label prefix": {"name": "m", "labels": {"A_B/c": "x"}},
    "two slashes in a label key": {"name": "m", "labels": {"a/b/c": "x"}},
    "bad label value": {"name": "m", "labels": {"a": "x y"}},
    "long label value": {"name": "m", "labels": {"a": LONG}},
    "number as label": {"name": "m", "labels": {"a": 5}},
    "list as labels": {"name": "m", "labels": ["a"]},
    "bad annotation key": {"name": "m", "annotations": {"a b": "x"}},
    "annotations of 300 kB": {"name": "m", "annotations": {"a": "x" * 300_000}},
    "namespace of another": {"name": "m", "namespace": "default"},
    "bad finalizer": {"name": "m", "finalizers": ["not qualified"]},
    "owner without uid": {"name": "m", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
    "owner without name": {"name": "m", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "uid": "u"}]},
    "two controllers": {
        "name": "m",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "ab"
        ],
    },
    "resource version given": {"name": "m", "resourceVersion": "5"},
    "uid given": {"name": "given-uid", "uid": "11111111-1111-1111-1111-111111111111"},
    "creation time given": {"name": "given-time", "creationTimestamp": "2020-01-01T00:00:00Z"},
    "generation given": {"name": "given-generation", "generation": 7},
    "selfLink given": {"name": "given-link", "selfLink": "/x"},
    "null labels": {"name": "null-labels", "labels": None},
    "good labels": {"name": "good", "labels": {"a": "", "a.b/c_d": "X-1"}, "annotations": {"A/b": "any thing"}},
    "duplicate": {"name": "good"},
    "generated name": {"generateName": "gen-"},
    "bad generated name": {"generateName": "Gen_"},
    "both names": {"name": "both", "generateName": "gen-"},
}
NOT_METADATA = {"list as metadata": ["x"], "string as metadata": "x", "null as metadata": None}


@SCENARIOS
def create_metadata_of_config_maps(api: Api) -> None:
    for label, metadata in METADATA.items():
        api.send("POST", CONFIG_MAPS, {**a_config_map(), "metadata": metadata}, label=label)
    for label, value in NOT_METADATA.items():
        api.send("POST", CONFIG_MAPS, {**a_config_map(), "metadata": value}, label=label)


@SCENARIOS
def create_metadata_of_pods(api: Api) -> None:
    for label in ("no name", "name in upper case", "name with dots", "bad label value", "generated name", "duplicate"):
        api.send("POST", PODS, {**a_pod(), "metadata": METADATA[label]}, label=label)
    api.send("POST", PODS, {**a_pod(), "metadata": METADATA["duplicate"]}, label="duplicate again")


BODIES: dict[str, Any] = {
    "other kind": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
    "unknown kind": {"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}},
    "other version": {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}},
    "other group": {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
    "no kind": {"apiVersion": "v1", "metadata": {"name": "no-kind"}},
    "no version": {"kind": "ConfigMap", "metadata": {"name": "no-version"}},
    "neither": {"metadata": {"name": "neither"}},
    "empty": {},
    "list": [],
    "string": "x",
    "number": 5,
    "null": b"null",
    "no body": b"",
    "truncated": b'{"apiVersion": "v1", "kind": "ConfigMap"',
    "not JSON": b"hello",
    "trailing comma": b'{"apiVersion": "v1",}',
    "number as data": {**a_config_map("x"), "data": 5},
    "number in data": {**a_config_map("x"), "data": {"a": 5}},
    "bad key in data": {**a_config_map("x"), "data": {"a b": "x"}},
    "binary data not base64": {**a_config_map("x"), "binaryData": {"a": "***"}},
    "same key twice": {**a_config_map("x"), "binaryData": {"a": "MQ=="}},
    "unknown fields": {**a_config_map("unknown"), "extra": {"a": 1}, "metadata": {"name": "unknown", "what": 1}},
    "immutable": {**a_config_map("fixed"), "immutable": True},
    "string as boolean": {**a_config_map("x"), "immutable": "yes"},
    "1.1 MB": {**a_config_map("x"), "data": {"a": "x" * 1_100_000}},
}


@SCENARIOS
def create_bodies(api: Api) -> None:
    post_each(api, CONFIG_MAPS, BODIES)


@SCENARIOS
def create_where_it_cannot_be(api: Api) -> None:
    api.send("POST", "/api/v1/namespaces/nowhere/configmaps", a_config_map(), label="unknown namespace")
    api.send("POST", "/api/v1/namespaces/nowhere/pods", a_pod(), label="pod in an unknown namespace")
    api.send("POST", "/api/v1/namespaces/No_Where/configmaps", a_config_map(), label="impossible namespace")
    api.send("POST", "/api/v1/configmaps", a_config_map(), label="no namespace")
    api.send("POST", f"{CONFIG_MAPS}/c", a_config_map(), label="name in the path")
    api.send("POST", "/api/v1/namespaces/{ns}/nothings", a_config_map(), label="unknown resource")
    api.send("POST", "/apis/nothing.example/v1/namespaces/{ns}/nothings", a_config_map(), label="unknown group")


BAD_PODS: dict[str, dict[str, Any]] = {
    "no spec": a_pod(spec=None),
    "no containers": a_pod(spec__containers=None),
    "empty containers": a_pod(spec__containers=[]),
    "string as containers": a_pod(spec__containers="x"),
    "string as container": a_pod(spec__containers=["x"]),
    "no container name": a_pod(spec__containers=[{"image": "i"}]),
    "bad container name": with_container(name="A_b"),
    "no image": a_pod(spec__containers=[{"name": "main"}]),
    "two of a name": a_pod(spec__containers=[CONTAINER, CONTAINER]),
    "init of the same name": a_pod(spec__initContainers=[CONTAINER]),
    "bad restart policy": a_pod(spec__restartPolicy="Sometimes"),
    "bad dns policy": a_pod(spec__dnsPolicy="Mine"),
    "negative grace": a_pod(spec__terminationGracePeriodSeconds=-1),
    "string as grace": a_pod(spec__terminationGracePeriodSeconds="x"),
    "negative deadline": a_pod(spec__activeDeadlineSeconds=-1),
    "bad hostname": a_pod(spec__hostname="A.b"),
    "bad node name": a_pod(spec__nodeName="A_b"),
    "bad node selector": a_pod(spec__nodeSelector={"a": "x y"}),
    "bad pull policy": with_container(imagePullPolicy="Now"),
    "bad port": with_container(ports=[{"containerPort": 0}]),
    "port too high": with_container(ports=[{"containerPort": 70000}]),
    "string as port": with_container(ports=[{"containerPort": "http"}]),
    "bad protocol": with_container(ports=[{"containerPort": 80, "protocol": "HTTP"}]),
    "bad port name": with_container(ports=[{"containerPort": 80, "name": "Too_Long_A_Name"}]),
    "two ports of a name": with_container(ports=[{"containerPort": n, "name": "a"} for n in (80, 81)]),
    "no env name": with_container(env=[{"value": "x"}]),
    "bad env name": with_container(env=[{"name": "a b", "value": "x"}]),
    "number as env": with_container(env=[{"name": "A", "value": 5}]),
    "env from two": with_container(
        env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "env from nothing": with_container(env=[{"name": "A", "valueFrom": {}}]),
    "env from a bad field": with_container(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.nothing"}}}]
    ),
    "env from no key": with_container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c"}}}]),
    "bad quantity": with_container(resources={"limits": {"cpu": "much"}}),
    "negative quantity": with_container(resources={"limits": {"cpu": "-1"}}),
    "requests over limits": with_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
    "gpu request without limit": with_container(resources={"requests": {"nvidia.com/gpu": "1"}}),
    "gpu limit and request differ": with_container(
        resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    ),
    "fraction of a gpu": with_container(resources={"limits": {"nvidia.com/gpu": "500m"}}),
    "bad resource name": with_container(resources={"limits": {"nonsense": "1"}}),
    "mount of nothing": with_container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
    "mount without path": a_pod(
        spec__volumes=[{"name": "v", "emptyDir": {}}], spec__containers=[{**CONTAINER, "volumeMounts": [{"name": "v"}]}]
    ),
    "volume without a name": a_pod(spec__volumes=[{"emptyDir": {}}]),
    "volume of two kinds": a_pod(spec__volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    "two volumes of a name": a_pod(spec__volumes=[{"name": "v", "emptyDir": {}}] * 2),
    "config map volume without name": a_pod(spec__volumes=[{"name": "v", "configMap": {}}]),
    "secret volume without name": a_pod(spec__volumes=[{"name": "v", "secret": {}}]),
    "claim without name": a_pod(spec__volumes=[{"name": "v", "persistentVolumeClaim": {}}]),
    "unknown volume kind": a_pod(spec__volumes=[{"name": "v", "magic": {}}]),
    "host path going up": a_pod(spec__volumes=[{"name": "v", "hostPath": {"path": "/x/../y"}}]),
    "probe of nothing": with_container(livenessProbe={}),
    "probe of two": with_container(livenessProbe={"exec": {"command": ["x"]}, "tcpSocket": {"port": 80}}),
    "probe of a bad port": with_container(livenessProbe={"httpGet": {"port": 0}}),
    "command as string": with_container(command="x"),
    "number in command": with_container(command=["x", 5]),
    "bad toleration": a_pod(spec__tolerations=[{"key": "a", "operator": "Like"}]),
    "exists with a value": a_pod(spec__tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    "bad affinity": a_pod(
        spec__affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]}]
                }
            }
        }
    ),
    "unknown priority class": a_pod(spec__priorityClassName="nothing"),
    "priority given": a_pod(spec__priority=5),
    "unknown account": a_pod(spec__serviceAccountName="nobody"),
    "bad account name": a_pod(spec__serviceAccountName="No_Body"),
    "many at once": a_pod("Bad_Name", spec__restartPolicy="x", spec__containers=[{"name": "A_b"}]),
}


@SCENARIOS
def create_bad_pods(api: Api) -> None:
    post_each(api, PODS, BAD_PODS, query="?dryRun=All")


FULL = {
    **CONTAINER,
    "command": ["sh", "-c"],
    "args": ["echo $(A)"],
    "workingDir": "/w",
    "ports": [{"containerPort": 23456, "name": "pytorchjob-port"}, {"containerPort": 53, "protocol": "UDP"}],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B"},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
        {"name": "F", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "P_", "secretRef": {"name": "s", "optional": True}}],
    "resources": {"limits": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": 0.5}},
    "livenessProbe": {"httpGet": {"port": "pytorchjob-port", "path": "/x"}, "periodSeconds": 5},
    "readinessProbe": {"exec": {"command": ["true"]}},
    "startupProbe": {"tcpSocket": {"port": 80}},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "securityContext": {"privileged": True, "runAsUser": 0},
    "volumeMounts": [{"name": "e", "mountPath": "/e"}, {"name": "c", "mountPath": "/c", "subPath": "a"}],
}
VOLUME_KINDS = [
    {"name": "e", "emptyDir": {}},
    {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
    {"name": "s", "secret": {"secretName": "s"}},
    {"name": "h", "hostPath": {"path": "/tmp"}},
    {"name": "p", "persistentVolumeClaim": {"claimName": "p"}},
    {"name": "d", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {"name": "n", "nfs": {"server": "x", "path": "/x"}},
    {"name": "j", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}},
    {"name": "nothing"},
]
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
GOOD_PODS: dict[str, dict[str, Any]] = {
    "smallest": a_pod("smallest"),
    "everything": a_pod("everything", spec__containers=[FULL], spec__volumes=VOLUME_KINDS),
    "init containers": a_pod("init", spec__initContainers=[{**CONTAINER, "name": "before", "image": "i:latest"}]),
    "never": a_pod("never", spec__restartPolicy="Never"),
    "guaranteed": with_container("guaranteed", resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
    "quantities as written": with_container("quantities", resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}}),
    "quantities as numbers": with_container("numbers", resources={"limits": {"cpu": 2, "memory": 1073741824}}),
    "host network": a_pod("host", spec__hostNetwork=True, spec__containers=[{**FULL, "volumeMounts": []}]),
    "image with digest": with_container("digest", image="a/b@sha256:" + "0" * 64),
    "image latest": with_container("latest", image="a/b:latest"),
    "image of a registry with a port": with_container("registry", image="localhost:5000/a"),
    "tolerations": a_pod("tolerations", spec__tolerations=[{"operator": "Exists"}]),
    "affinity": a_pod("affinity", spec__affinity={"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}),
    "status is dropped": {**a_pod("status"), "status": {"phase": "Running"}},
    "security context": a_pod("security", spec__securityContext={"runAsUser": 1000, "fsGroup": 1000}),
    "host aliases": a_pod("aliases", spec__hostAliases=[{"ip": "1.2.3.4", "hostnames": ["x"]}]),
    "subdomain": a_pod("subdomain", spec__hostname="a", spec__subdomain="b"),
    "null fields": a_pod("nulls", spec__nodeSelector={}, spec__volumes=[], spec__tolerations=[]),
    "unknown fields": a_pod("unknown", spec__nonsense=1),
    "bound": a_pod("bound", spec__nodeName="somewhere"),
}  # fmt: skip


@SCENARIOS
def create_good_pods(api: Api) -> None:
    post_each(api, PODS, GOOD_PODS)


PORT = {"port": 80}
BAD_SERVICES: dict[str, dict[str, Any]] = {
    "no ports": a_service(spec__ports=None),
    "bad name": a_service("1a"),
    "name with a dot": a_service("a.b"),
    "long name": a_service("a" * 64),
    "bad port": a_service(spec__ports=[{"port": 0}]),
    "string as port": a_service(spec__ports=[{"port": "80"}]),
    "ports without names": a_service(spec__ports=[{"port": 80}, {"port": 81}]),
    "ports of one name": a_service(spec__ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]),
    "same port twice": a_service(spec__ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]),
    "bad port name": a_service(spec__ports=[{"port": 80, "name": "A_b"}]),
    "bad protocol": a_service(spec__ports=[{"port": 80, "protocol": "HTTP"}]),
    "bad target": a_service(spec__ports=[{"port": 80, "targetPort": 0}]),
    "bad target name": a_service(spec__ports=[{"port": 80, "targetPort": "A_b_too_long_a_name"}]),
    "bad type": a_service(spec__type="Magic"),
    "bad affinity": a_service(spec__sessionAffinity="Sometimes"),
    "bad selector": a_service(spec__selector={"a": "x y"}),
    "address outside": a_service(spec__clusterIP="1.2.3.4"),
    "not an address": a_service(spec__clusterIP="x"),
    "external without name": a_service(spec__type="ExternalName"),
    "no spec": a_service(spec=None),
}
GOOD_SERVICES: dict[str, dict[str, Any]] = {
    "plain": a_service("plain"),
    "headless": a_service("headless", spec__clusterIP="None"),
    "headless without ports": a_service("portless", spec__clusterIP="None", spec__ports=None),
    "no selector": a_service("selectorless", spec__selector=None),
    "named ports": a_service(
        "named", spec__ports=[{"port": 80, "name": "a", "targetPort": "http"}, {"port": 81, "name": "b"}]
    ),
    "external name": a_service("external", spec={"type": "ExternalName", "externalName": "x.example"}),
    "udp": a_service("udp", spec__ports=[{"port": 53, "protocol": "UDP"}]),
    "unready too": a_service("unready", spec__publishNotReadyAddresses=True),
    "client affinity": a_service("sticky", spec__sessionAffinity="ClientIP"),
}


@SCENARIOS
def create_services(api: Api) -> None:
    post_each(api, SERVICES, BAD_SERVICES, query="?dryRun=All")
    post_each(api, SERVICES, GOOD_SERVICES)


@SCENARIOS
def create_secrets(api: Api) -> None:
    rows = {
        "plain": a_secret("plain"),
        "text": a_secret("text", data=None, stringData={"a": "hello"}),
        "text over data": a_secret("over", stringData={"a": "hello"}),
        "not base64": a_secret("x", data={"a": "***"}),
        "bad key": a_secret("x", data={"a b": "MQ=="}),
        "docker config without key": a_secret("x", type="kubernetes.io/dockerconfigjson"),
        "docker config not JSON": a_secret(
            "x", type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": "MQ="}
        ),
        "tls without keys": a_secret("x", type="kubernetes.io/tls"),
        "basic auth": a_secret("basic", type="kubernetes.io/basic-auth", data={"username": "MQ=="}),
        "own type": a_secret("own", type="example.org/x"),
    }
    post_each(api, SECRETS, rows)


@SCENARIOS
def create_claims_and_volumes(api: Api) -> None:
    claims = {
        "plain": a_claim("plain"),
        "block": a_claim("block", spec__volumeMode="Block"),
        "no modes": a_claim(spec__accessModes=None),
        "bad mode": a_claim(spec__accessModes=["Sometimes"]),
        "no storage": a_claim(spec__resources={}),
        "bad quantity": a_claim(spec__resources={"requests": {"storage": "much"}}),
        "zero storage": a_claim(spec__resources={"requests": {"storage": "0"}}),
        "bad volume mode": a_claim(spec__volumeMode="Tape"),
        "bad class": a_claim(spec__storageClassName="A_b"),
        "no spec": a_claim(spec=None),
        "selector": a_claim("selector", spec__selector={"matchLabels": {"a": "b"}}),
    }
    volumes = {
        "plain": a_volume(),
        "no capacity": a_volume("x", spec__capacity=None),
        "no modes": a_volume("x", spec__accessModes=None),
        "no source": a_volume("x", spec__hostPath=None),
        "two sources": a_volume("x", spec__nfs={"server": "x", "path": "/x"}),
        "bad policy": a_volume("x", spec__persistentVolumeReclaimPolicy="Burn"),
        "nfs": a_volume("n-{ns}", spec__hostPath=None, spec__nfs={"server": "x", "path": "/x"}),
    }
    post_each(api, CLAIMS, claims)
    post_each(api, VOLUMES, volumes)


@SCENARIOS
def create_namespaces(api: Api) -> None:
    def namespace(name: str, **fields: Any) -> dict[str, Any]:
        return changed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, **fields)

    rows = {
        "plain": namespace("{ns}-plain", metadata__labels={"a": "b"}),
        "duplicate": namespace("default"),
        "with a dot": namespace("a.b"),
        "upper case": namespace("Upper"),
        "long": namespace("a" * 64),
        "finalizers": namespace("{ns}-final", spec={"finalizers": ["example.org/x"]}),
        "bad finalizer": namespace("x", spec={"finalizers": ["x y"]}),
    }
    post_each(api, NAMESPACES, rows)


@SCENARIOS
def create_leases(api: Api) -> None:
    rows = {
        "plain": a_lease("plain"),
        "empty": a_lease("empty", spec=None),
        "negative duration": a_lease(spec__leaseDurationSeconds=-1),
        "zero duration": a_lease(spec__leaseDurationSeconds=0),
        "negative transitions": a_lease(spec__leaseTransitions=-1),
        "time without fraction": a_lease("whole", spec__renewTime="2026-01-02T03:04:05Z"),
        "bad time": a_lease(spec__renewTime="yesterday"),
        "number as holder": a_lease(spec__holderIdentity=5),
    }
    post_each(api, LEASES, rows)


@SCENARIOS
def create_events(api: Api) -> None:
    rows = {
        "plain": an_event("plain"),
        "generated": an_event(metadata={"generateName": "e-"}),
        "other namespace": an_event("x", involvedObject__namespace="default"),
        "no object": an_event("none", involvedObject={}),
        "bad type": an_event("odd", type="Odd"),
        "new form": {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "new"},
            "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
            "eventTime": "2026-01-02T03:04:05.000006Z",
            "reportingComponent": "example.org/test",
            "reportingInstance": "t-1",
            "action": "Testing",
            "reason": "Tested",
            "type": "Normal",
        },
        "new form without action": an_event("x", eventTime="2026-01-02T03:04:05.000006Z"),
    }
    post_each(api, EVENTS, rows)


@SCENARIOS
def create_workloads(api: Api) -> None:
    deployments = {
        "plain": a_deployment("plain"),
        "selector does not match": a_deployment(spec__selector={"matchLabels": {"app": "y"}}),
        "no selector": a_deployment(spec__selector=None),
        "empty selector": a_deployment(spec__selector={}),
        "negative replicas": a_deployment(spec__replicas=-1),
        "no template": a_deployment(spec__template=None),
        "restart policy": a_deployment(spec__template__spec__restartPolicy="Never"),
        "bad strategy": a_deployment(spec__strategy={"type": "Magic"}),
    }
    jobs = {
        "plain": a_batch_job("plain"),
        "restart policy": a_batch_job(spec__template__spec__restartPolicy="Always"),
        "negative parallelism": a_batch_job(spec__parallelism=-1),
        "negative limit": a_batch_job(spec__backoffLimit=-1),
        "own selector": a_batch_job(spec__selector={"matchLabels": {"a": "b"}}),
        "no template": a_batch_job(spec__template=None),
    }
    plain = changed(a_deployment("plain"), kind="StatefulSet", spec__serviceName="x")
    mounts = [{"name": "data", "mountPath": "/data"}]
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    claiming = changed(plain, metadata__name="claiming", spec__volumeClaimTemplates=[claim])
    sets = {
        "plain": plain,
        "mounts its claims": changed(claiming, spec__template__spec__containers__0__volumeMounts=mounts),
    }
    post_each(api, DEPLOYMENTS, deployments)
    post_each(api, BATCH_JOBS, jobs)
    post_each(api, STATEFUL_SETS, sets)


@SCENARIOS
def create_others(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [rule]}
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "p-{ns}"},
        "value": 5,
    }
    api.send("POST", ACCOUNTS, account, label="account")
    api.send("POST", QUOTAS, quota, label="quota")
    api.send("POST", QUOTAS, changed(quota, spec__hard={"pods": "x"}), label="bad quota")
    api.send("POST", ROLES, role, label="role")
    api.send("POST", ROLES, changed(role, metadata__name="x", rules=[{"verbs": []}]), label="role without verbs")
    api.send("POST", PRIORITIES, priority, label="priority")
    api.send("POST", PRIORITIES, changed(priority, metadata__name="system-x"), label="reserved priority")
    api.send("POST", PRIORITIES, changed(priority, metadata__name="x", value=2_000_000_000), label="high priority")
    api.send("POST", PODS, a_pod("with-priority", spec__priorityClassName="p-{ns}"), label="pod with priority")


@SCENARIOS
def dry_runs(api: Api) -> None:
    api.send("POST", f"{PODS}?dryRun=All", a_pod("dry"), label="create")
    api.send("GET", f"{PODS}/dry", label="nothing was created")
    api.send("POST", f"{PODS}?dryRun=All", a_pod("Bad_Name"), label="create bad")
    api.send("POST", f"{PODS}?dryRun=Some", a_pod("dry"), label="bad value")
    api.send("POST", CONFIG_MAPS, a_config_map("c"), label="real one")
    api.send("POST", f"{CONFIG_MAPS}?dryRun=All", a_config_map("c"), label="create duplicate")
    api.send("PUT", f"{CONFIG_MAPS}/c?dryRun=All", a_config_map("c", data={"a": "2"}), label="update")
    api.send(
        "PATCH", f"{CONFIG_MAPS}/c?dryRun=All", {"data": {"b": "2"}}, content_type="application/merge-patch+json",
        label="patch",
    )  # fmt: skip
    api.send("DELETE", f"{CONFIG_MAPS}/c?dryRun=All", label="delete")
    api.send("DELETE", f"{CONFIG_MAPS}/c", {"dryRun": ["All"]}, label="delete by body")
    api.send("GET", f"{CONFIG_MAPS}/c", label="nothing was changed")
