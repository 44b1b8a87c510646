"""Elastic PaddleJobs with Paddle's own launcher and a real etcd: workers go and come back while they train.

The launcher of Paddle 3 follows who is there, between the numbers of `--nnodes`. It knows nothing of the key `np`, in
which the operator tells older ones how many they are to be, and removes it when it starts.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from pathlib import Path
from typing import Literal

import pytest
import yaml
from tests.e2e.examples import LIMIT
from tests.integration.bed import MARK, Bed, Json, bed, changes, processes
from tools.environments import environment

from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
from trainmaster.objects.resource import EVENTS
from trainmaster.testing.ports import free_port

JOB, VERSION = "elastic", "batch.paddlepaddle.org/v1"
NP = f"/paddle/default-{JOB}/np"
ETCD = "paddle-elastic-etcd"
PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Told:
    what: str
    world: int
    step: int
    loss: float


class Gate:
    """A directory that ranks look into, and the pipe in it, through which the first of them tells how it goes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        os.mkfifo(directory / "pipe")
        self.directory = directory
        # For writing, too: with somebody at that end, the pipe outlives those who tell something.
        self._pipe = os.open(directory / "pipe", os.O_RDWR)
        self._heard = b""

    def close(self) -> None:
        os.close(self._pipe)

    def open(self) -> None:
        (self.directory / "open").touch()

    def until(self, what: str, world: int) -> Told:
        """What the first rank of so many tells."""
        while (told := self._next()) is None or (told.what, told.world) != (what, world):
            ready, _, _ = select.select([self._pipe], [], [], LIMIT)
            assert ready, f"nobody told of {world} that {what} within {LIMIT:g} s; the last was {self._heard!r}"
            self._heard += os.read(self._pipe, 4096)
        return told

    def _next(self) -> Told | None:
        line, end, rest = self._heard.partition(b"\n")
        if not end:
            return None
        self._heard = rest
        what, world, step, loss = line.decode().split()
        return Told(what, int(world), int(step), float(loss))


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


class Etcd:
    """One that runs on this machine, beside the cluster; spoken to as the operator does."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def put(self, key: str, value: str) -> None:
        self._ask("put", {"key": _encoded(key), "value": _encoded(value)})

    def has(self, key: str) -> bool:
        return "kvs" in self._ask("range", {"key": _encoded(key)})

    def values(self, key: str, last: str) -> list[str]:
        """What it has been, one after another, once it was that."""
        found: list[str] = []
        question = {"create_request": {"key": _encoded(key), "start_revision": "1", "filters": ["NODELETE"]}}
        with self._opened("watch", question, LIMIT) as lines:
            while last not in found:
                events = json.loads(next(lines))["result"].get("events", ())
                found += [base64.b64decode(one["kv"]["value"]).decode() for one in events]
        return found

    def _ask(self, verb: str, question: Json) -> Json:
        with self._opened(f"kv/{verb}", question, timeout=10) as response:
            answer: Json = json.load(response)
        return answer

    def _opened(self, path: str, question: Json, timeout: float) -> HTTPResponse:
        request = urllib.request.Request(f"http://{self.endpoint}/v3/{path}", json.dumps(question).encode())
        opened: HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
        return opened


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def etcd_program() -> Path:
    return environment("etcd") / "debian" / "usr" / "bin" / "etcd"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [str(etcd_program()), f"--data-dir={tmp_path / 'etcd'}", f"--listen-peer-urls={peer}"]
    command += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("ready to serve client requests" in line for line in running.stderr), "etcd ended at once"
        rest = threading.Thread(target=running.stderr.read)  # a pipe that nobody empties would stop it
        rest.start()
        yield Etcd(client.removeprefix("http://"))
        running.terminate()
        rest.join()


@contextlib.contextmanager
def paddle_bed(home: Path, sandbox: Literal["namespaces", "ports"], etcd_server: str = "") -> Iterator[Bed]:
    files = {"/programs": str(PROGRAMS)}
    images = [
        {"match": "registry.example/paddle", "python": str(environment("paddle-elastic")), "files": files},
        {"match": "registry.example/etcd", "files": {"/opt/etcd": str(etcd_program().parent)}},
    ]
    config = home / "trainmaster.yaml"
    config.write_text(yaml.safe_dump({"images": images}))
    operator = replace(embedded_operator(), etcd_server=etcd_server)
    options = EmbeddedOptions(str(home / "cluster"), config=str(config), sandbox=sandbox, operator=operator)
    with bed(options) as cluster:
        cluster.patience = LIMIT
        yield cluster
    assert processes() == []


def elastic_job(gate: Gate, server: str) -> Json:
    """Three workers; any two of them would do."""
    launch = ["python", "-m", "paddle.distributed.launch", "--master", f"etcd://{server}", "--nnodes", "2:3"]
    launch += ["--job_id", "$(PADDLE_ELASTIC_JOB_ID)", "--nproc_per_node", "1", "--elastic_level", "1"]
    container = {
        "name": "paddle",
        "image": "registry.example/paddle:1",
        "command": [*launch, "--log_dir", "/log", "/programs/elastic_paddle.py"],
        "env": variables(GATE="/gate", OMP_NUM_THREADS="1"),
        "volumeMounts": [{"name": "gate", "mountPath": "/gate"}, {"name": "log", "mountPath": "/log"}],
    }
    volumes = [{"name": "gate", "hostPath": {"path": str(gate.directory)}}, {"name": "log", "emptyDir": {}}]
    pod = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5}
    spec = {"cleanPodPolicy": "Never", "elastic": 1, "worker": {"replicas": 3, "template": {"spec": pod}}}
    return {
        "apiVersion": VERSION,
        "kind": "PaddleJob",
        "metadata": {"name": JOB, "namespace": "default"},
        "spec": spec,
    }


def variables(**more: str) -> list[Json]:
    return [{"name": key, "value": value} for key, value in {"MARK": MARK, "JOB": JOB, **more}.items()]


def an_etcd() -> list[Json]:
    """As paddle-operator had it installed for its elastic jobs, but for the namespace and the Deployment."""
    metadata = {"name": ETCD, "namespace": "default", "labels": {"app": "elastic-etcd"}}
    flags = ["--data-dir=/data/etcd", "--listen-client-urls=http://0.0.0.0:2379"]
    container = {
        "name": "etcd",
        "image": "registry.example/etcd:3",
        "command": ["/opt/etcd/etcd", *flags, f"--advertise-client-urls=http://{ETCD}:2379"],
        "env": variables(),
        "ports": [{"containerPort": 2379}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}
    service = {"selector": metadata["labels"], "ports": [{"name": "p1", "port": 2379}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
    ]


def scale_by_cli(home: Path, replicas: int) -> None:
    kubeconfig = str(home / "cluster" / "kubeconfig")
    words = ["scale", "pdj", JOB, "--replicas", str(replicas), "--kubeconfig", kubeconfig]
    subprocess.run([sys.executable, "-m", "trainmaster", *words], check=True, timeout=60)


def scale_by_edit(cluster: Bed, replicas: int) -> None:
    jobs = cluster.resource(VERSION, "PaddleJob")
    cluster.do(cluster.client.patch(jobs, JOB, {"spec": {"worker": {"replicas": replicas}}}, "default"))


def ended(cluster: Bed) -> Json:
    def is_so(job: Json | None) -> bool:
        return job is not None and job.get("status", {}).get("phase") in ("Completed", "Failed")

    job = cluster.until(cluster.resource(VERSION, "PaddleJob"), JOB, is_so)
    assert job is not None
    return job


def event(cluster: Bed, message: str) -> str:
    """The reason of the first event that says so of the job."""

    async def find() -> str:
        async with aclosing(changes(cluster.client, EVENTS, cluster.patience)) as changing:
            async for kind, found in changing:
                if kind == "ADDED" and (found["involvedObject"]["name"], found["message"]) == (JOB, message):
                    return str(found["reason"])
        raise AssertionError(f"there was no event {message!r}")

    return cluster.do(find())


def lives(cluster: Bed, gate: Gate, home: Path) -> list[Told]:
    """A worker goes, and comes back; then all may end."""
    told = [gate.until("trains", 3)]
    scale_by_cli(home, 2)
    told.append(gate.until("trains", 2))
    scale_by_edit(cluster, 3)
    told.append(gate.until("trains", 3))
    gate.open()
    return [*told, gate.until("ends", 3)]


def test_training_goes_on_with_fewer_and_with_more_workers(tmp_path, gate):
    with paddle_bed(tmp_path, "namespaces") as cluster:
        cluster.submit(*an_etcd(), elastic_job(gate, f"{ETCD}:2379"))

        first, *_, last = told = lives(cluster, gate, tmp_path)
        job = ended(cluster)

        assert job["status"]["phase"] == "Completed"
        assert job["status"]["worker"]["succeeded"] == 3
        assert (first.step, told) == (0, sorted(told, key=lambda one: one.step))
        assert last.loss < 0.01 * first.loss


def test_the_operator_tells_the_number_through_the_etcd_that_the_launchers_use(tmp_path, gate, etcd):
    with paddle_bed(tmp_path, "ports", etcd.endpoint) as cluster:
        etcd.put(NP, "1")  # left by an earlier job of that name
        cluster.submit(elastic_job(gate, "$(PADDLE_ELASTIC_SERVER)"))
        reasons = [event(cluster, "scaled replicas to 3")]
        gate.until("trains", 3)
        is_kept = etcd.has(NP)
        etcd.put(NP, "3")  # as launchers do that go by it
        scale_by_cli(tmp_path, 2)
        reasons.append(event(cluster, "scaled replicas to 2"))
        gate.until("trains", 2)
        gate.open()
        gate.until("ends", 2)

        assert (reasons, is_kept) == (["Scaled", "Scaled"], False)
        assert etcd.values(NP, "2") == ["1", "3", "3", "2"]
        assert ended(cluster)["status"]["phase"] == "Completed"
