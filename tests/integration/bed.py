"""The real embedded cluster with the real operator in it, in a thread of the test's process, and a plain way to it.

    with bed(tmp_path) as cluster:
        cluster.submit(a_job("JAXJob", "sum", "exchange.py", replicas={"Worker": 2}))
        assert cluster.finished("JAXJob", "sum") == "Succeeded"

Everything is waited for through watches. What runs on this machine is found by the mark that every container carries in
its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainmaster import frameworks
from trainmaster.cli.embedded import EmbeddedOptions, embedded
from trainmaster.cli.resources import Resources
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import EVENTS, PODS, Resource
from trainmaster.testing.patience import PATIENCE

PROGRAMS = Path(__file__).parent / "programs"
CONFIG = PROGRAMS / "trainmaster.yaml"
IMAGE = "registry.test/programs:1"
GRACE = 5.0
"""A watch that has been waited for in vain ends first: it can tell what it has seen."""

GATE = "/gate/open"
"""The file that some programs wait for. They are told its path, for in a volume without namespaces it has another."""

MARK = uuid.uuid4().hex
"""Of this test process: in the environment of everything that its jobs start."""

T = TypeVar("T")
Json = dict[str, Any]
Changes = AsyncGenerator[tuple[str, Json], None]


def a_job(
    kind: str,
    name: str,
    program: str,
    *,
    restart: str | None = None,
    env: dict[str, str] | None = None,
    policy: Json | None = None,
    pod: Json | None = None,
    container: Json | None = None,
    metadata: Json | None = None,
    replicas: Mapping[str, int],
) -> Json:
    """A job whose every rank runs one of our programs; `pod` and `container` add to the template."""
    framework = next(one for one in frameworks.BUILT_IN if one.kind == kind)
    variables = {"MARK": MARK, "JOB": name, "GATE": GATE, **(env or {})}
    rank = {
        "name": framework.container,
        "image": IMAGE,
        "command": ["python", f"/programs/{program}"],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        **(container or {}),
    }
    template = {
        "metadata": metadata or {},
        "spec": {"containers": [rank], "terminationGracePeriodSeconds": 5, **(pod or {})},
    }
    role = {"template": template, **({"restartPolicy": restart} if restart else {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": policy or {},
            framework.replicas_field: {named: {**role, "replicas": count} for named, count in replicas.items()},
            **({"jobMode": "MXTrain"} if kind == "MXJob" else {}),
        },
    }


class Bed:
    """A cluster as a test sees it: every call blocks until it is answered, at most for so long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Client) -> None:
        self._loop = loop
        self.client = client
        self.patience = PATIENCE
        self._resources = Resources(client)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(self.patience + GRACE):
                return await work

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()

    def submit(self, *bodies: Json) -> None:
        for body in bodies:
            resource = self.resource(body["apiVersion"], body["kind"])
            self.do(self.client.create(resource, body))

    def resource(self, version: str, kind: str) -> Resource:
        return self.do(self._resources.of(version, kind))

    def until(self, resource: Resource, name: str, is_so: Callable[[Json | None], bool]) -> Json | None:
        """The object once that holds of it; None stands for one that is not there."""
        return self.do(_until(self._changes(resource), name, is_so, resource.kind))

    def job(self, kind: str, name: str, is_so: Callable[[Json], bool] = bool) -> Json:
        found = self.until(self.resource("kubeflow.org/v1", kind), name, lambda job: job is not None and is_so(job))
        assert found is not None
        return found

    def finished(self, kind: str, name: str) -> str:
        """Succeeded or Failed."""
        job = self.job(kind, name, lambda job: bool(holding(job) & {"Succeeded", "Failed"}))
        return (holding(job) & {"Succeeded", "Failed"}).pop()

    def pod(self, name: str, is_so: Callable[[Json], bool] = bool) -> Json:
        found = self.until(PODS, name, lambda pod: pod is not None and is_so(pod))
        assert found is not None
        return found

    def pod_gone(self, name: str) -> None:
        self.until(PODS, name, lambda pod: pod is None)

    def pods(self, job: str) -> dict[str, Json]:
        listed = self.do(self.client.list(PODS, "default", label_selector=f"training.kubeflow.org/job-name={job}"))
        return {pod["metadata"]["name"]: pod for pod in listed.items}

    def log(self, pod: str) -> str:
        return self.do(self.client.request("GET", PODS.path("default", pod, "log"))).decode()

    def whole_log(self, pod: str) -> str:
        """Up to the container's end. A job may be decided while ranks of it still have something to say."""
        self.pod(pod, has_started)
        path, follow = PODS.path("default", pod, "log"), (("follow", "true"),)
        return self.do(self.client.request("GET", path, params=follow)).decode()

    def says(self, pod: str, text: str) -> Json:
        """The pod, once it runs and its log holds a line with that text."""
        found = self.pod(pod, has_started)
        self.do(_says(self.client, pod, text))
        return found

    def warning(self, name: str, holds: str) -> str:
        """The first warning about the object of that name whose message holds that text."""
        return self.do(_warning(self._changes(EVENTS), name, holds))

    def _changes(self, resource: Resource) -> Changes:
        return changes(self.client, resource, self.patience)


def holding(job: Json) -> set[str]:
    """The conditions that are true of a job."""
    conditions = job.get("status", {}).get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def container_of(pod: Json) -> Json:
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses") or [{}]
    return statuses[0]


def has_started(pod: Json) -> bool:
    return bool({"running", "terminated"} & container_of(pod).get("state", {}).keys())


async def _says(client: Client, pod: str, text: str) -> None:
    response = await client.open(PODS.path("default", pod, "log"), (("follow", "true"),))
    said = []
    async with response, aclosing(response.lines()) as lines:
        async for line in lines:
            said.append(line.decode(errors="replace"))
            if text in said[-1]:
                return
    raise AssertionError(f"{pod} ended without saying {text!r}:\n" + "\n".join(said[-40:]))


async def changes(
    client: Client, resource: Resource, patience: float, namespace: str = "default", fields: str = "", labels: str = ""
) -> Changes:
    """What there is, then LISTED, then what happens to it, for so many seconds; all of it, or what is selected."""
    page = await client.list(resource, namespace, field_selector=fields, label_selector=labels)
    for item in page.items:
        yield "ADDED", item
    yield "LISTED", {}
    watch = client.watch(
        resource,
        namespace,
        resource_version=page.resource_version,
        timeout_seconds=int(patience),
        field_selector=fields,
        label_selector=labels,
    )
    async with aclosing(watch) as events:
        async for event in events:
            if event.object is not None:
                yield event.type, event.object


async def _until(changing: Changes, name: str, is_so: Callable[[Json | None], bool], what: str) -> Json | None:
    held: Json | None = None
    is_listed = False
    async with aclosing(changing) as changes:
        async for kind, found in changes:
            if kind == "LISTED":
                is_listed = True
            elif found["metadata"]["name"] != name:
                continue
            else:
                held = None if kind == "DELETED" else found
            if is_listed and is_so(held):
                return held
    raise AssertionError(f"{what} {name} did not come to it; it is {held}")


async def _warning(changing: Changes, name: str, holds: str) -> str:
    async with aclosing(changing) as changes:
        async for kind, event in changes:
            if kind in ("LISTED", "DELETED") or event.get("type") != "Warning":
                continue
            if event["involvedObject"]["name"] == name and holds in event["message"]:
                return str(event["message"])
    raise AssertionError(f"nobody warned of {holds!r} about {name}")


@contextmanager
def bed(options: EmbeddedOptions | None = None) -> Iterator[Bed]:
    """Entered when the cluster is up; left when it has ended, and all that ran in it."""

    @contextlib.asynccontextmanager
    async def cluster() -> AsyncIterator[Client]:
        chosen = options or EmbeddedOptions(config=str(CONFIG))
        async with embedded(chosen, Path(), announce=False, ending=Ending(limit=0.0)) as running:
            yield running.client

    with in_thread(cluster) as reached:
        yield reached


@contextmanager
def connected(config: Path) -> Iterator[Bed]:
    """A cluster that somebody else has started."""

    @contextlib.asynccontextmanager
    async def cluster() -> AsyncIterator[Client]:
        client = Client(HttpTransport(kubeconfig.load(str(config))))
        try:
            yield client
        finally:
            await client.close()

    with in_thread(cluster) as reached:
        yield reached


@contextmanager
def in_thread(cluster: Callable[[], contextlib.AbstractAsyncContextManager[Client]]) -> Iterator[Bed]:
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Client]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        async with cluster() as client:
            ready.set_result((asyncio.get_running_loop(), stop, client))
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="cluster")
    thread.start()
    loop, stop, client = ready.result(PATIENCE)
    try:
        yield Bed(loop, client)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the cluster did not end"


@dataclass(frozen=True)
class Ran:
    """A process of this machine that a container is."""

    pid: int
    env: dict[str, str]

    @property
    def namespaces(self) -> set[str]:
        return {f"{kind}:{os.stat(f'/proc/{self.pid}/ns/{kind}').st_ino}" for kind in ("net", "mnt", "uts", "pid")}


def processes(job: str = "", pod: str = "", mark: str = MARK) -> list[Ran]:
    """What runs here for our jobs now; all of it, or that of one job or pod."""
    wanted = {"MARK": mark, **({"JOB": job} if job else {}), **({"HOSTNAME": pod} if pod else {})}
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace")
                env = dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)
                if wanted.items() <= env.items():
                    found.append(Ran(int(name), env))
    return found


def wait_for_none(job: str) -> None:
    """Until nothing runs here for that job, whatever it has started meanwhile."""
    while running := processes(job):
        wait_for_end([ran.pid for ran in running])


def wait_for_end(pids: list[int], patience: float = PATIENCE) -> None:
    """Until none of these processes lives."""
    waiting = select.poll()
    handles = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            handles[handle] = pid
            waiting.register(handle, select.POLLIN)
    try:
        while handles:
            ended = waiting.poll(patience * 1000)
            assert ended, f"still there after {patience} s: {sorted(handles.values())}"
            for handle, _ in ended:
                waiting.unregister(handle)
                os.close(handle)
                del handles[handle]
    finally:
        for handle in handles:
            os.close(handle)
