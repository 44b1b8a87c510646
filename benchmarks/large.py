"""What a job of ten thousand workers costs: of every kind, each in a process of its own.

Three shapes. "pass" reads the job, plans it, and builds each body once, one after another, as they would be sent.
"plan" is `trainmaster plan` with its output thrown away. "operator" is the whole operator over a server that says yes
and forgets, until every pod has been asked for: what it keeps of them is in its memory, and so is that server. A job
that is refused shows what the refusal costs. Beside seconds on the wall there is the processor's time, which means
something on a busy machine, too; in "operator", both have two seconds of waiting in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import Result, child, memory_mb
from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.settings import Settings
from trainmaster.cli import plan
from trainmaster.engine import plan as engine
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.kube.transport import Request, Response
from trainmaster.objects.meta import Json, encode
from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS, PRIORITY_CLASSES
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.fakeapi_server import json_answer
from trainmaster.testing.operation import submit
from trainmaster.testing.scene import Scene, a_job

WORKERS = 10_000
BATCH = "batch.paddlepaddle.org"
LONG = "a-name-of-forty-three-characters-as-it-were"
SHAPES = ("pass", "plan", "operator")
QUIET = 1.0
"""Seconds without a write after which the operator has done what it can."""


def _tf(workers: int, **spec: Any) -> Scene:
    return a_job("TFJob", **spec).role("PS").role("Worker", workers)


def _mxnet(workers: int) -> Scene:
    return a_job("MXJob").role("Scheduler").role("Server").role("Worker", workers)


def _xgboost(workers: int) -> Scene:
    return a_job("XGBoostJob").role("Master").role("Worker", workers)


def _mpi(version: str, name: str = "job") -> Scene:
    return a_job("MPIJob", name, version=version).role("Launcher").role("Worker", WORKERS)


def _paddle(workers: int, **spec: Any) -> Scene:
    return a_job("PaddleJob", group=BATCH, **spec).role("ps").role("worker", workers)


def _tasks(count: int, replicas: int) -> Scene:
    template = {"spec": {"containers": [{"name": "main", "image": "example/train:1"}]}}
    tasks = [{"name": f"trainer-{n}", "replicas": replicas, "template": template} for n in range(count)]
    return a_job("PaddleJob", group=BATCH, mode="Collective", tasks=tasks)


CASES: Mapping[str, Callable[[], Scene]] = {
    "TFJob": lambda: _tf(WORKERS),
    "TFJob, 3700": lambda: _tf(3700),
    "TFJob, dynamic": lambda: _tf(WORKERS, enableDynamicWorker=True),
    "PyTorchJob": lambda: a_job("PyTorchJob").role("Master").role("Worker", WORKERS),
    "PyTorchJob, elastic": lambda: a_job("PyTorchJob", elasticPolicy={"minReplicas": 1}).role("Worker", WORKERS),
    "XGBoostJob": lambda: _xgboost(WORKERS),
    "XGBoostJob, 8200": lambda: _xgboost(8200),
    "MXJob": lambda: _mxnet(WORKERS),
    "MXJob, 3400": lambda: _mxnet(3400),
    "JAXJob": lambda: a_job("JAXJob").role("Worker", WORKERS),
    "PaddleJob": lambda: a_job("PaddleJob").role("Worker", WORKERS),
    "MSJob": lambda: a_job("MSJob").role("Scheduler").role("Worker", WORKERS),
    "MPIJob v1": lambda: _mpi("v1"),
    "MPIJob v1alpha2": lambda: _mpi("v1alpha2"),
    "MPIJob v2beta1": lambda: _mpi("v2beta1"),
    "MPIJob v2beta1, long name": lambda: _mpi("v2beta1", LONG),
    "pdj by address": lambda: _paddle(WORKERS),
    "pdj by address, 7700": lambda: _paddle(7700),
    "pdj by Service": lambda: _paddle(WORKERS, intranet="Service"),
    "pdj by Service, 6000": lambda: _paddle(6000, intranet="Service"),
    "pdj, elastic": lambda: a_job("PaddleJob", group=BATCH, elastic=1).role("worker", WORKERS),
    "pdj of two tasks": lambda: _tasks(2, WORKERS // 2),
    "pdj of 900 tasks, 7200": lambda: _tasks(900, 8),
    "pdj of a task a replica": lambda: _tasks(WORKERS, 1),
}
"""Ten thousand workers, unless a number is said: the most that are admitted, where those are refused."""


def run() -> Result:
    results = {name: {shape: _measured(shape, name) for shape in SHAPES} for name in CASES}
    return {**results, "worst": _worst(list(results.values()))}


def _worst(results: Sequence[Mapping[str, Result]]) -> Result:
    """Of all jobs: what there is a bound on."""
    admitted = [one for one in results if one["pass"]["admitted"]]
    refused = [one for one in results if not one["pass"]["admitted"]]
    return {
        "read and planned, s": max(one["pass"]["seconds"] for one in admitted),
        "printed, s": max(one["plan"]["seconds"] for one in admitted),
        "refused, s": max(one["pass"]["seconds"] for one in refused),
        "peak RSS, MB": max(shape["peak RSS, MB"] for one in results for shape in one.values()),
    }


def _measured(shape: str, name: str) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "job.json")
        path.write_text(json.dumps(_manifest(name)))
        with child("-m", "benchmarks.large", shape, str(path)) as process:
            assert process.stdout is not None
            result: Result = json.loads(process.stdout.readline())
    return result


def _manifest(name: str) -> Json:
    manifest = CASES[name]().manifest
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"], "namespace": "default"}}


def _pass(path: str) -> bool:
    """Whether the job is admitted."""
    body = json.loads(Path(path).read_text())
    served = frameworks.serving(body["apiVersion"], body["kind"])
    assert served is not None
    stored = {**body, "metadata": {**body["metadata"], "uid": "uid"}}
    read = reading.read(served[0], stored, Settings(), served[1])
    if read.job is None:
        engine.plan_rejected(read.framework, reading.bare(*served, stored), read.problems, 0.0, has_pods=False)
        return False
    seen = Observed(read.framework, read.job, advice=read.advice)
    engine.plan(seen, 0.0)
    for action in blueprint(seen):  # more than the plan, where the first pass makes no pods yet
        encode(action.body)
    return True


def _plan(path: str) -> bool:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return plan.run([path], "yaml", "default", Settings()) == 0


class Forgetful(FakeApi):
    """Stores no pod and no Service: as many as are asked for would be in our memory."""

    def __init__(self) -> None:
        jobs = [resource for framework in frameworks.BUILT_IN for resource in framework.served]
        super().__init__([*jobs, PRIORITY_CLASSES, HORIZONTAL_POD_AUTOSCALERS])
        self.version = 1_000_000_000
        self.pods = 0

    async def send(self, request: Request) -> Response:
        if request.method != "POST" or not request.path.endswith(("/pods", "/services")):
            return await super().send(request)
        await asyncio.sleep(0)
        self.pods += request.path.endswith("/pods")
        body = msgspec.json.decode(request.body)
        self.version += 1
        given = {"uid": str(self.version), "resourceVersion": str(self.version)}
        spec = {"clusterIP": "10.96.1.7", **body["spec"]} if request.path.endswith("/services") else body["spec"]
        return json_answer(201, {**body, "metadata": {**body["metadata"], **given}, "spec": spec})


def _operator(path: str) -> bool:
    return asyncio.run(_operated(json.loads(Path(path).read_text())))


async def _operated(job: Json) -> bool:
    api, stop = Forgetful(), asyncio.Event()
    options = Options(metrics_bind_address="0", health_probe_bind_address="0")
    async with asyncio.TaskGroup() as group:
        group.create_task(operate(options, api, stop), name="operator")
        submit(api, job)
        seen = (0, 0)
        while seen != (now := (len(api.sent), api.version)):
            seen = now
            await asyncio.sleep(QUIET)
        stop.set()
    return api.pods > 0


def _tell(shape: str, path: str) -> None:
    """The figures of this very process."""
    wall, used = time.perf_counter(), time.process_time()
    admitted = {"pass": _pass, "plan": _plan, "operator": _operator}[shape](path)
    figures = {
        "admitted": admitted,
        "seconds": round(time.perf_counter() - wall, 2),
        "CPU, s": round(time.process_time() - used, 2),
        "peak RSS, MB": round(memory_mb(os.getpid())),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _tell(*sys.argv[1:])
