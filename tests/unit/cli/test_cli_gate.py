"""Containers of paddle-operator jobs wait for a ConfigMap until all pods have addresses: that is no failure."""

import io

import pytest
from rich.console import Console

from trainmaster.cli.attention import Attentive
from trainmaster.cli.follow import JobRef
from trainmaster.cli.hints import Place
from trainmaster.objects.resource import Resource

GATED = JobRef(Resource("batch.paddlepaddle.org", "v1", "paddlejobs", "PaddleJob"), "default", "net", "uid-1")
OTHER = JobRef(Resource("kubeflow.org", "v1", "paddlejobs", "PaddleJob"), "default", "net", "uid-2")


def shown(job: JobRef, reason: str, message: str) -> str:
    file = io.StringIO()
    screen = Attentive(Console(file=file, width=500), {job: Place("x:1")}, several_jobs=False)
    screen.warning(job, reason, message)
    return file.getvalue()


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param("Failed", 'Error: configmap "net" not found', id="of the pod"),
        pytest.param(
            "CreateContainerConfigError",
            'Error pod net-ps-0 container paddle waiting message: configmap "net" not found',
            id="of the job",
        ),
    ],
)
def test_waiting_at_the_gate_is_not_shown_as_a_failure(reason, message):
    assert shown(GATED, reason, message) == ""


@pytest.mark.parametrize(
    ("job", "name"),
    [
        pytest.param(GATED, "settings", id="of the user's own"),
        pytest.param(OTHER, "net", id="of a kind without a gate"),
    ],
)
def test_another_configmap_that_is_missing_is(job, name):
    message = f'Error: configmap "{name}" not found'

    assert message in shown(job, "Failed", message)
