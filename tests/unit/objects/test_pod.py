"""A pod as observed."""

from __future__ import annotations

import msgspec
import pytest

from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated

WIRE = b"""{
  "metadata": {"name": "job-worker-0"},
  "spec": {"containers": [{"name": "train"}]},
  "status": {
    "phase": "Failed", "podIP": "10.0.0.7",
    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": null}],
    "initContainerStatuses": [{"name": "init", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}}],
    "containerStatuses": [
      {"name": "sidecar", "restartCount": 1, "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}},
      {"name": "train", "restartCount": 3,
       "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2023-11-14T22:13:20Z"}}}
    ]
  }
}"""


def a_pod(status: bytes) -> Pod:
    return msgspec.json.decode(b'{"metadata": {}, "status": %s}' % status, type=Pod)


def test_a_pod_is_decoded_from_the_wire() -> None:
    pod = msgspec.json.decode(WIRE, type=Pod)

    assert (pod.name, pod.status.phase, pod.status.pod_ip) == ("job-worker-0", "Failed", "10.0.0.7")
    assert pod.restart_count == 6
    assert pod.exit_code(("train",)) == 137
    assert pod.is_finished
    assert not pod.is_ready


@pytest.mark.parametrize(
    ("names", "code"),
    [
        pytest.param(("train",), 137, id="ended"),
        pytest.param(("sidecar",), None, id="still running"),
        pytest.param(("absent",), None, id="no such container"),
        pytest.param(("old-name", "train"), 137, id="any of its names"),
        pytest.param(("init",), None, id="init containers do not count"),
    ],
)
def test_the_exit_code_is_that_of_the_named_container(names: tuple[str, ...], code: int | None) -> None:
    assert msgspec.json.decode(WIRE, type=Pod).exit_code(names) == code


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_finished_when_it_succeeded_or_failed(phase: str, finished: bool) -> None:
    assert a_pod(b'{"phase": "%s"}' % phase.encode()).is_finished is finished


def test_a_pod_is_ready_by_its_condition() -> None:
    assert a_pod(b'{"conditions": [{"type": "Ready", "status": "True"}]}').is_ready
    assert not a_pod(b'{"conditions": [{"type": "Initialized", "status": "True"}]}').is_ready


def test_a_pod_without_status_is_pending() -> None:
    assert msgspec.json.decode(b'{"metadata": {}}', type=Pod).status.phase == "Pending"


@pytest.mark.parametrize(
    ("ended", "is_so"),
    [("2026-01-01T00:00:59Z", False), ("2026-01-01T00:01:00Z", True), ("2026-01-01T00:01:20Z", True)],
    ids=["before it was deleted", "in that second", "in its grace period"],
)
def test_a_pod_was_stopped_if_it_ended_after_somebody_deleted_it(ended: str, is_so: bool) -> None:
    meta = Meta(deletion_timestamp="2026-01-01T00:01:30Z", deletion_grace_period_seconds=30)
    state = ContainerState(terminated=Terminated(exit_code=0, finished_at=ended))

    pod = Pod(meta, PodStatus(phase="Succeeded", container_statuses=(ContainerStatus(state=state),)))

    assert pod.was_stopped is is_so


def test_a_pod_that_nobody_deletes_was_not_stopped() -> None:
    state = ContainerState(terminated=Terminated(exit_code=0, finished_at="2026-01-01T00:01:20Z"))

    assert not Pod(Meta(), PodStatus(container_statuses=(ContainerStatus(state=state),))).was_stopped
