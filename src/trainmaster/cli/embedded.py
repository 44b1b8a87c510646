"""The embedded cluster with the operator in it, as one thing to enter and to leave."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import trainmaster.cli.fast_import  # noqa: F401  # before the cluster is imported
from trainmaster import frameworks
from trainmaster.api.framework import Framework
from trainmaster.cli import descriptors
from trainmaster.cli.connection import Failure
from trainmaster.cli.documents import CONFIG, BadDocument, text_of
from trainmaster.cli.errors import unwrapped
from trainmaster.cli.home import unusable
from trainmaster.cluster.cluster import Cluster, ClusterOptions
from trainmaster.cluster.controllers.event_keeper import EVENT_SECONDS
from trainmaster.cluster.kubelet import logfiles
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.images_config import ImageError, parse_option
from trainmaster.cluster.kubelet.leftovers import temporary_home
from trainmaster.cluster.kubelet.machine_config import SECTIONS, MachineConfig, MachineError
from trainmaster.cluster.kubelet.sandbox import SandboxError
from trainmaster.cluster.storage.private import UntrustedError
from trainmaster.cluster.storage.store import StoreError
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects import yamldocument
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS
from trainmaster.operator.install import crds
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options

_SECTIONS = ("images", *SECTIONS)


def embedded_operator(gang_scheduler_name: str = "", compat: str = "", *, strict_topology: bool = False) -> Options:
    """The operator within: its own ports are off, for there may be several clusters on a machine."""
    return Options(
        metrics_bind_address="0",
        health_probe_bind_address="0",
        gang_scheduler_name=gang_scheduler_name,
        compat=compat,
        strict_topology=strict_topology,
    )


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    home: str = ""
    """Where the cluster keeps its things; empty: a directory that goes when it ends, and objects in memory only."""

    port: int = 0
    nodes: int = 1
    sandbox: Literal["auto", "namespaces", "ports"] = "auto"
    images: tuple[str, ...] = ()
    """PATTERN=DIR, PATTERN=VENV or PATTERN=COMMAND, as given with --image."""

    config: str = ""
    operator: Options = embedded_operator()
    forget_after: float = EVENT_SECONDS
    """Seconds that Events, and logs of removed pods, are kept."""


def configuration_of(options: EmbeddedOptions, base: Path) -> tuple[Images, MachineConfig]:
    """From trainmaster.yaml (named, else beside the manifest, else here) and --image, which wins."""
    candidates = [Path(options.config)] if options.config else [base / CONFIG, Path(CONFIG)]
    found = next((path for path in candidates if path.exists()), None)
    if options.config and found is None:
        raise BadDocument(f"{options.config}: no such file")
    try:
        data = _content(found) if found is not None else None
        file = found.parent.resolve() / found.name if found is not None else Path(CONFIG)
        configured, machine = Images.from_config(data, file), MachineConfig.of(data, file)
        given = [parse_option(text, Path()) for text in options.images]
    except (ImageError, MachineError) as error:
        raise BadDocument(str(error)) from error  # says itself which file or flag, and where in it
    return Images([*configured.mappings, *given]), machine


def _content(file: Path) -> Any:
    try:
        data = yamldocument.document(text_of(file))
    except yamldocument.BadYaml as error:
        raise BadDocument(f"{file}: not valid YAML: {error}") from error
    if strange := [str(key) for key in data if key not in _SECTIONS] if isinstance(data, dict) else []:
        known = ", ".join(_SECTIONS)
        raise BadDocument(f"{file}: {', '.join(strange)}: there is no such field; known are {known}")
    return data


def _cluster_options(options: EmbeddedOptions, base: Path, home: Path) -> ClusterOptions:
    images, machine = configuration_of(options, base)
    return ClusterOptions(
        home,
        options.port,
        options.nodes,
        options.sandbox,
        images,
        machine,
        is_durable=bool(options.home),
        workdir=str(base.resolve()),
        forget_after=options.forget_after,
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster with every kind installed and the operator at work."""

    client: Client
    home: Path

    def kept(self, uid: str, container: str, attempt: int) -> Sequence[str] | None:
        """What a container printed, though its pod be gone; None where there is no such log."""
        path = self.home / "pods" / uid / container / f"{attempt}.log"
        if not logfiles.files_of(path):
            return None
        text = logfiles.read(path, logfiles.Selection()).decode(errors="replace")
        return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


@asynccontextmanager
async def embedded(
    options: EmbeddedOptions, base: Path, *, announce: bool, ending: Ending | None = None
) -> AsyncIterator[Running]:
    descriptors.raise_limit()
    with ExitStack() as stack:
        home = Path(options.home) if options.home else _temporary(options, stack)
        cluster = Cluster(_cluster_options(options, base, home), ending=ending)
        async with _started(cluster, options, home):
            if announce:
                print(f"export KUBECONFIG={cluster.kubeconfig}", file=sys.stderr)
            async with _operated(options, cluster) as client:
                yield Running(client, home)


def _temporary(options: EmbeddedOptions, stack: ExitStack) -> Path:
    try:
        return stack.enter_context(temporary_home())
    except OSError as error:
        raise Failure(f"no temporary directory can be made: {error}: {_elsewhere(options)}") from error


@asynccontextmanager
async def _started(cluster: Cluster, options: EmbeddedOptions, home: Path) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        with explained(options, home):
            await stack.enter_async_context(cluster.running())
        yield


@contextmanager
def explained(options: EmbeddedOptions, home: Path) -> Iterator[None]:
    """What keeps a cluster from starting, told with the flag or the file, and the remedy."""
    try:
        with unwrapped():
            yield
    except SandboxError as error:
        remedy = "leave the flag out, or use --sandbox ports: pods then share this machine's network"
        raise BadDocument(f"--sandbox {options.sandbox}: {error}; {remedy}") from error
    except StoreError as error:
        raise Failure(str(error)) from error
    except UntrustedError as error:
        raise Failure(error.explained(_elsewhere(options))) from error
    except OSError as error:
        if options.port and error.errno in (errno.EADDRINUSE, errno.EACCES) and error.filename is None:
            raise BadDocument(f"--port {options.port}: {_closed(error)}") from error
        if words := unusable(home, error, _elsewhere(options)):
            raise Failure(words) from error
        raise


def _elsewhere(options: EmbeddedOptions) -> str:
    return "choose another place with --data-dir" if options.home else "set TMPDIR to another place"


def _closed(error: OSError) -> str:
    why = "another program listens there" if error.errno == errno.EADDRINUSE else "only root may listen there"
    return f"{why}; choose another, or leave it out for a free one"


@asynccontextmanager
async def _operated(options: EmbeddedOptions, cluster: Cluster) -> AsyncIterator[Client]:
    config = kubeconfig.load(str(cluster.kubeconfig))
    client, stop = Client(HttpTransport(config, dial=cluster.connect)), asyncio.Event()
    try:
        await _install(client, frameworks.enabled(options.operator.schemes))
        async with asyncio.TaskGroup() as group:
            operator = _fitting(options.operator, cluster)
            group.create_task(operate(operator, HttpTransport(config, dial=cluster.connect), stop), name="operator")
            try:
                yield client
            finally:
                stop.set()
    finally:
        await client.close()


def _fitting(operator: Options, cluster: Cluster) -> Options:
    """Where pods share this machine's network no name resolves, so none may be waited for; addresses are rewritten."""
    if cluster.sandbox_kind != "ports":
        return operator
    mode = operator.init_container.mode
    waiting = replace(operator.init_container, mode="never" if mode == "auto" else mode)
    return replace(operator, init_container=waiting, coordinator_image="")


async def _install(client: Client, known: Sequence[Framework]) -> None:
    for crd in crds(known):
        try:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        except AlreadyExists:  # of an earlier run: brought up to date
            body = {"spec": crd["spec"]}
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], body)
