"""Rows as kubectl prints them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry.kinds import Column, Kind
from trainmaster.cluster.server import age, jsonpath, table
from trainmaster.cluster.server.table_layout import LAYOUTS
from trainmaster.objects import timestamp

NOW = 1_700_000_000.0


def ago(seconds: float) -> str:
    return timestamp.render(NOW - seconds)


def row(kind: Kind, item: dict[str, Any]) -> dict[str, Any]:
    made = table.table(kind, [item], now=NOW, metadata={})
    names = [column["name"] for column in made["columnDefinitions"]]
    return dict(zip(names, made["rows"][0]["cells"], strict=True))


def a_pod(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    meta = {"name": "a", "creationTimestamp": ago(90)}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], **spec}, "status": status}


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "state": state, **more}


PODS = Kind("", "v1", "pods", "Pod")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        pytest.param(-5, "<invalid>", id="future"),
        pytest.param(-0.5, "0s", id="clock skew"),
        pytest.param(119, "119s", id="seconds"),
        pytest.param(120, "2m", id="whole minutes"),
        pytest.param(305, "5m5s", id="minutes and seconds"),
        pytest.param(3600, "60m", id="minutes"),
        pytest.param(4 * 3600 + 120, "4h2m", id="hours and minutes"),
        pytest.param(40 * 3600, "40h", id="hours"),
        pytest.param(3 * 86400 + 7200, "3d2h", id="days and hours"),
        pytest.param(100 * 86400, "100d", id="days"),
        pytest.param(3 * 365 * 86400 + 86400, "3y1d", id="years and days"),
        pytest.param(9 * 365 * 86400, "9y", id="years"),
    ],
)
def test_age_reads_as_kubectl_writes_it(seconds: float, shown: str):
    assert age.human(seconds) == shown


def test_age_of_nothing_is_unknown():
    assert age.since(None, NOW) == "<unknown>"


def test_running_pod_shows_ready_count_restarts_address_and_node():
    status = {
        "phase": "Running",
        "podIP": "10.244.0.7",
        "containerStatuses": [
            container(
                {"running": {}},
                ready=True,
                restartCount=2,
                lastState={"terminated": {"exitCode": 1, "finishedAt": ago(45)}},
            )
        ],
    }

    cells = row(PODS, a_pod(status, nodeName="node-1"))

    assert cells == {
        "Name": "a",
        "Ready": "1/1",
        "Status": "Running",
        "Restarts": "2 (45s ago)",
        "Age": "90s",
        "IP": "10.244.0.7",
        "Node": "node-1",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        pytest.param(a_pod({"phase": "Pending"}), "Pending", id="pending"),
        pytest.param(a_pod({"phase": "Failed", "reason": "Evicted"}), "Evicted", id="evicted"),
        pytest.param(
            a_pod({"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ErrImagePull"}})]}),
            "ErrImagePull",
            id="waiting",
        ),
        pytest.param(
            a_pod({"phase": "Succeeded", "containerStatuses": [container({"terminated": {"reason": "Completed"}})]}),
            "Completed",
            id="completed",
        ),
        pytest.param(
            a_pod({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]}),
            "ExitCode:3",
            id="exit code",
        ),
        pytest.param(
            a_pod(
                {"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 137, "signal": 9}})]}
            ),
            "Signal:9",
            id="signal",
        ),
        pytest.param(
            a_pod({"phase": "Pending", "initContainerStatuses": [container({"running": {}})]}, initContainers=[{}, {}]),
            "Init:0/2",
            id="init running",
        ),
        pytest.param(
            a_pod(
                {"phase": "Pending", "initContainerStatuses": [container({"terminated": {"exitCode": 1}})]},
                initContainers=[{}],
            ),
            "Init:ExitCode:1",
            id="init failed",
        ),
    ],
)
def test_pod_status_is_the_word_for_what_is_in_the_way(pod: dict[str, Any], word: str):
    assert row(PODS, pod)["Status"] == word


def test_deleted_pod_is_terminating_until_it_has_ended():
    running = a_pod({"phase": "Running"})
    done = a_pod({"phase": "Succeeded"})
    for pod in (running, done):
        pod["metadata"]["deletionTimestamp"] = ago(1)

    assert row(PODS, running)["Status"] == "Terminating"
    assert row(PODS, done)["Status"] == "Succeeded"


def with_sidecar(own: dict[str, Any], *, code: int, started: bool, phase: str) -> dict[str, Any]:
    """A pod that got past its start, and whose sidecar has ended with that code."""
    ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
    side = {"name": "side", "state": {"terminated": ended}, "started": started, "restartCount": 2}
    status = {
        "phase": phase,
        "conditions": [{"type": "Initialized", "status": "True"}],
        "containerStatuses": [{**container(own), "restartCount": 1}],
        "initContainerStatuses": [side],
    }
    return a_pod(status, initContainers=[{"name": "side", "restartPolicy": "Always"}])


@pytest.mark.parametrize(
    ("own", "phase", "word"),
    [
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded", "Completed"),
        ({"terminated": {"exitCode": 3, "reason": "Error"}}, "Failed", "Error"),
        ({"running": {}}, "Running", "Init:Error"),
    ],
    ids=["succeeded", "failed", "still-running"],
)
def test_a_sidecar_that_ended_with_its_pod_does_not_hide_how_that_fared(
    own: dict[str, Any], phase: str, word: str
) -> None:
    cells = row(PODS, with_sidecar(own, code=143, started=False, phase=phase))

    assert (cells["Status"], cells["Restarts"]) == (word, "3")


def test_sidecar_counts_as_a_container():
    status = {
        "phase": "Running",
        "containerStatuses": [container({"running": {}}, ready=True)],
        "initContainerStatuses": [{"name": "side", "state": {"running": {}}, "ready": True, "started": True}],
    }

    cells = row(PODS, a_pod(status, initContainers=[{"name": "side", "restartPolicy": "Always"}]))

    assert (cells["Ready"], cells["Status"]) == ("2/2", "Running")


@pytest.mark.parametrize(
    ("key", "item", "expected"),
    [
        pytest.param(
            ("", "services"),
            {"spec": {"clusterIP": "None", "ports": [{"port": 23456}], "selector": {"job": "x"}, "type": "ClusterIP"}},
            {"Type": "ClusterIP", "Cluster-IP": "None", "Port(s)": "23456/TCP", "Selector": "job=x"},
            id="headless service",
        ),
        pytest.param(
            ("batch", "jobs"),
            {"spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": ago(60)}},
            {"Status": "Running", "Completions": "1/3", "Duration": "60s"},
            id="job",
        ),
        pytest.param(
            ("apps", "deployments"),
            {"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}}, "status": {"readyReplicas": 1}},
            {"Ready": "1/2", "Selector": "a=b"},
            id="deployment",
        ),
        pytest.param(
            ("", "nodes"),
            {
                "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}},
            },
            {"Status": "Ready,SchedulingDisabled", "Roles": "worker", "Version": "v1"},
            id="cordoned node",
        ),
        pytest.param(
            ("", "persistentvolumeclaims"),
            {
                "spec": {"volumeName": "v", "storageClassName": "local"},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
            },
            {"Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO", "StorageClass": "local"},
            id="claim",
        ),
        pytest.param(
            ("", "events"),
            {"involvedObject": {"kind": "Pod", "name": "a"}, "lastTimestamp": ago(5), "message": "h\n"},
            {"Last Seen": "5s", "Object": "pod/a", "Message": "h"},
            id="event",
        ),
        pytest.param(
            ("", "endpoints"),
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(4)], "ports": [{"port": 1}]}]},
            {"Endpoints": "10.0.0.0:1,10.0.0.1:1,10.0.0.2:1 + 1 more..."},
            id="endpoints",
        ),
    ],
)  # fmt: skip
def test_built_in_kinds_have_the_columns_of_kubectl(
    key: tuple[str, str], item: dict[str, Any], expected: dict[str, str]
):
    item = {**item, "metadata": {"name": "a", "creationTimestamp": ago(1), **item.get("metadata", {})}}

    cells = row(Kind(key[0], "v1", key[1], "Any"), item)

    assert {name: cells[name] for name in expected} == expected


@pytest.mark.parametrize("key", sorted(LAYOUTS), ids=lambda key: "/".join(key))
def test_every_layout_survives_an_object_with_nothing_but_metadata(key: tuple[str, str]):
    layout = LAYOUTS[key]

    cells = layout.make({"metadata": {"name": "a"}}, NOW)

    assert len(cells) == len(layout.columns)


def test_custom_resource_shows_its_printer_columns():
    columns = (
        Column("State", "string", ".status.conditions[-1:].type"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Workers", "integer", ".spec.workers"),
        Column("Gone", "string", ".spec.nothing"),
    )
    jobs = Kind("kubeflow.org", "v1", "jobs", "Job", custom=True, columns=columns)
    job = {
        "metadata": {"name": "a", "creationTimestamp": ago(60)},
        "spec": {"workers": 2.0},
        "status": {"conditions": [{"type": "Created"}, {"type": "Running"}]},
    }

    assert row(jobs, job) == {"Name": "a", "State": "Running", "Age": "60s", "Workers": 2, "Gone": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".a.b", [1], id="fields"),
        pytest.param("{.a.b}", [1], id="braces"),
        pytest.param(".labels.x\\.io/y", ["z"], id="escaped dot"),
        pytest.param(".labels['x.io/y']", ["z"], id="quoted key"),
        pytest.param(".list[0].n", ["p"], id="index"),
        pytest.param(".list[-1:].n", ["q"], id="slice from the end"),
        pytest.param(".list[*].n", ["p", "q"], id="all"),
        pytest.param('.list[?(@.n=="q")].v', [2], id="filter"),
        pytest.param(".list[7].n", [], id="beyond the end"),
        pytest.param(".a..b", [], id="unknown syntax"),
    ],
)
def test_jsonpath_finds_what_printer_columns_ask_for(path: str, found: list[Any]):
    value = {"a": {"b": 1}, "labels": {"x.io/y": "z"}, "list": [{"n": "p", "v": 1}, {"n": "q", "v": 2}]}

    assert jsonpath.find(path, value) == found


def test_rows_carry_as_much_of_the_object_as_was_asked_for():
    pod = a_pod({"phase": "Running"})

    made = {
        include: table.table(PODS, [pod], now=NOW, metadata={}, include=include)["rows"][0].get("object")
        for include in ("None", "Metadata", "Object")
    }

    assert made["None"] is None
    assert made["Metadata"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": pod["metadata"],
    }
    assert made["Object"] is pod
