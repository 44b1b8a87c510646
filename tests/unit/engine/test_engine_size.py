"""What a plan costs: twice the replicas, twice the work. A pass over ten thousand of them must not outlast a lease."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tests.unit.frameworks.paddle_jobs import GROUP, a_paddle

from trainmaster.engine.actions import Create
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import plan
from trainmaster.testing.scene import NOW, Scene, a_job

FEW, MANY = 30, 60
LINEAR = 2.2
"""Twice, and what sorting adds."""


def tasked(mode: str, replicas: int, **spec: Any) -> Scene:
    template = {"spec": {"containers": [{"name": "main", "image": "example/train:1"}]}}
    tasks = [{"name": name, "replicas": replicas // 2, "template": template} for name in ("ps-1", "worker")]
    return a_job("PaddleJob", group=GROUP, mode=mode, tasks=tasks, **spec)


JOBS: dict[str, Callable[[int], Scene]] = {
    "TFJob": lambda n: a_job("TFJob").role("PS").role("Worker", n),
    "TFJob dynamic": lambda n: a_job("TFJob", enableDynamicWorker=True).role("PS").role("Worker", n),
    "PyTorchJob": lambda n: a_job("PyTorchJob").role("Master").role("Worker", n),
    "XGBoostJob": lambda n: a_job("XGBoostJob").role("Master").role("Worker", n),
    "MXJob": lambda n: a_job("MXJob", jobMode="MXTrain").role("Scheduler").role("Server").role("Worker", n),
    "JAXJob": lambda n: a_job("JAXJob").role("Worker", n),
    "PaddleJob": lambda n: a_job("PaddleJob").role("Worker", n),
    "MSJob": lambda n: a_job("MSJob").role("Scheduler").role("Worker", n),
    "MSJob dynamic": lambda n: a_job("MSJob", enableDynamicWorker=True).role("Scheduler").role("Worker", n),
    "MPIJob": lambda n: a_job("MPIJob").role("Launcher").role("Worker", n),
    "PaddleJob by address": lambda n: a_paddle(ps=1, worker=n),
    "PaddleJob by service": lambda n: a_paddle(ps=1, worker=n, intranet="Service", withGloo=1),
    "PaddleJob elastic": lambda n: a_paddle(worker=n, elastic=1),
    "PaddleJob tasks": lambda n: tasked("Collective", n),
    "PaddleJob tasks in order": lambda n: tasked("PS", n, startInOrder=1),
}
each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def halved(scene: Scene) -> Scene:
    """Half of them are done, the others lost."""
    seen = scene.all("Succeeded")
    members = scene.job.members()
    for member in members[len(members) // 2 :]:
        seen = seen.gone(member.role, member.index)
    return seen


STATES: dict[str, Callable[[Scene], Scene]] = {
    "nothing yet": lambda scene: scene,
    "all running": lambda scene: scene.all("Running", ip="10.0.0.1"),
    "half done": halved,
    "all failed": lambda scene: scene.all("Failed", exit_code=137),
}


def work_of(act: Callable[[], object]) -> int:
    """How many instructions it takes: the same on every machine, however busy."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 counts only where a frame had asked for it before settrace
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@each_job
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_twice_the_replicas_take_twice_the_work(job: Callable[[int], Scene], state: Callable[[Scene], Scene]) -> None:
    few, many = (state(job(replicas)).observed() for replicas in (FEW, MANY))

    work = [work_of(partial(plan, seen, NOW)) for seen in (few, many)]

    assert work[1] <= LINEAR * work[0]


def _drawn(seen: Observed) -> list[Create]:
    return list(blueprint(seen))


@each_job
def test_a_job_on_paper_is_no_different(job: Callable[[int], Scene]) -> None:
    few, many = (job(replicas).observed() for replicas in (FEW, MANY))

    work = [work_of(partial(_drawn, seen)) for seen in (few, many)]

    assert work[1] <= LINEAR * work[0]
