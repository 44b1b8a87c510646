"""The last words of `run` refer to nothing that is not there."""

import io

import pytest
from rich.console import Console

from trainmaster.api.status import Condition, JobStatus
from trainmaster.cli.advice import Keeping, keeping_of
from trainmaster.cli.attention import Attentive
from trainmaster.cli.closing import last_words
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.hints import Place
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated
from trainmaster.objects.resource import Resource

JOB = JobRef(Resource("kubeflow.org", "v1", "mpijobs", "MPIJob"), "default", "pi", "uid-1")
FAILED = JobStatus(conditions=(Condition("Failed", "True", "BackoffLimitExceeded", "it failed"),))


def test_lines_that_were_lost_are_not_said_to_be_above():
    ended = ContainerState(terminated=Terminated(3, "Error", finished_at="2023-11-14T22:14:10Z"))
    pod = Pod(Meta(name="pi-launcher-x"), PodStatus("Failed", container_statuses=(ContainerStatus("m", state=ended),)))
    progress = Progress({JOB: FAILED}, {"default/pi-launcher-x": Rank(JOB, pod)}, lost={(JOB, "launcher-x")})
    screen = Attentive(Console(file=io.StringIO()), {JOB: Place()}, several_jobs=False)

    *_, advised = last_words(progress, screen, is_here=True)

    assert "What launcher-x printed is lost" in advised
    assert "restartPolicy" in advised
    assert "runPolicy.cleanPodPolicy to None" in advised
    assert "above" not in advised


def test_nobody_is_told_to_write_what_the_manifest_says_already():
    ended = ContainerState(terminated=Terminated(3, "Error", finished_at="2023-11-14T22:14:10Z"))
    pod = Pod(Meta(name="pi-launcher-x"), PodStatus("Failed", container_statuses=(ContainerStatus("m", state=ended),)))
    progress = Progress({JOB: FAILED}, {"default/pi-launcher-x": Rank(JOB, pod)}, lost={(JOB, "launcher-x")})
    progress.specs[JOB] = {"runPolicy": {"cleanPodPolicy": "None"}}
    screen = Attentive(Console(file=io.StringIO()), {JOB: Place()}, several_jobs=False)

    *_, advised = last_words(progress, screen, is_here=True)

    assert "set restartPolicy of its role to Never, and run it again" in advised
    assert "cleanPodPolicy" not in advised


@pytest.mark.parametrize(
    ("group", "kind", "spec", "keeping"),
    [
        ("kubeflow.org", "PyTorchJob", {}, Keeping()),
        ("kubeflow.org", "PyTorchJob", {"runPolicy": {"cleanPodPolicy": "Running"}}, Keeping()),
        ("kubeflow.org", "PyTorchJob", {"runPolicy": {"cleanPodPolicy": "None"}}, Keeping(is_asked=True)),
        ("kubeflow.org", "TFJob", {"cleanPodPolicy": "none"}, Keeping(is_asked=True)),
        ("batch.paddlepaddle.org", "PaddleJob", {}, Keeping("cleanPodPolicy", "Never")),
        ("batch.paddlepaddle.org", "PaddleJob", {"cleanPodPolicy": "Never"}, Keeping("cleanPodPolicy", "Never", True)),
    ],
)
def test_every_kind_has_its_own_word_for_keeping_pods(group, kind, spec, keeping):
    assert keeping_of(Resource(group, "v1", f"{kind.lower()}s", kind), spec) == keeping
