"""The operator's flags as one frozen value, and what has to be made of flags written for older operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainmaster.api.settings import COORDINATOR_IMAGE, KUBECTL_DELIVERY_IMAGE, InitContainer, Settings

LEADER_ELECTION_ID = "1ca428e5.training-operator.kubeflow.org"
"""training-operator's lease name: during a take-over the two never lead at once."""

_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")


@dataclass(frozen=True, slots=True)
class Options:
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    """Watch this namespace only; empty watches all."""

    schemes: tuple[str, ...] = ()
    controller_threads: int = 16
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"
    leader_elect: bool = False
    leader_election_id: str = LEADER_ELECTION_ID
    leader_election_namespace: str = ""
    webhook_bind_address: str = ""
    """Where admission webhooks are served; empty or 0 is off."""

    webhook_service: str = ""
    """NAME.NAMESPACE by which the API server calls us; empty is trainmaster-webhook in the operator's own namespace."""

    webhook_registration: str = ""
    """Name of the configurations that register us; empty is the Service's name."""

    webhook_cert_dir: str = ""
    """Where somebody else keeps our certificate; empty, and we keep one ourselves."""

    gang_scheduler_name: str = ""
    enable_gang_scheduling: bool | None = None
    """Flag of the operators before 1.6: with it, the scheduler's name defaults to volcano."""

    kubectl_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    coordinator_image: str = COORDINATOR_IMAGE
    port_range: str = "35000,65000"
    """The first and the last port that are dealt out to jobs on their nodes' network."""

    etcd_server: str = ""
    """`host:port`, several with commas between."""

    cluster_domain: str = ""
    compat: str = ""
    strict_topology: bool = False
    init_container: InitContainer = field(default_factory=InitContainer)

    @property
    def settings(self) -> Settings:
        return Settings(
            compat_2021=self.compat == "2021",
            cluster_domain=self.cluster_domain,
            gang_scheduler=self._gang_scheduler,
            init_container=self.init_container,
            kubectl_delivery_image=self.kubectl_delivery_image,
            coordinator_image=self.coordinator_image,
            etcd_servers=tuple(one.strip() for one in self.etcd_server.split(",") if one.strip()),
            strict_topology=self.strict_topology,
        )

    @property
    def _gang_scheduler(self) -> str:
        name = "" if self.gang_scheduler_name.lower() == "none" else self.gang_scheduler_name
        if self.enable_gang_scheduling is None:
            return name
        return (name or "volcano") if self.enable_gang_scheduling else ""


class BadFlag(ValueError):
    """A flag whose value means nothing."""


def go_flags(arguments: Iterable[str], booleans: Sequence[str]) -> Iterator[str]:
    """Flags as Go programs take them, in the form that ours do: `-namespace=x` and `--leader-elect=false` too."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("-") and not name.startswith("--") and len(name) > 2:
            name = f"-{name}"
        flag = name.removeprefix("--")
        if equals and flag in booleans and name.startswith("--"):
            yield name if _is_true(name, value) else f"--no-{flag}"
        else:
            yield f"{name}{equals}{value}"


def _is_true(name: str, value: str) -> bool:
    """As Go reads it, in any case. A guess would be worse than no start: two operators that both lead."""
    if value.lower() not in (*_TRUE, *_FALSE):
        raise BadFlag(f"{name}={value}: {value!r} is neither true nor false; use {name}=true or {name}=false")
    return value.lower() in _TRUE
