"""The last words of `run` refer to nothing that is not there."""

import io

from rich.console import Console

from trainmaster.api.status import Condition, JobStatus
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
    assert "above" not in advised
