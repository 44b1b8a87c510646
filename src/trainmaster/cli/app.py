"""The verbs and their flags. What they do is imported when they are called, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import trainmaster
from trainmaster.api.settings import COORDINATOR_IMAGE, KUBECTL_DELIVERY_IMAGE
from trainmaster.cli.app_objects import objects
from trainmaster.cli.switches import RAW
from trainmaster.operator.options import LEADER_ELECTION_ID, Options

app = typer.Typer(
    name="trainmaster",
    help="One operator for every training framework, on Kubernetes and on a laptop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of flags on a terminal of 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(shown: bool) -> None:
    if shown:
        print(f"trainmaster {trainmaster.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


SCHEMES = Annotated[
    list[str] | None,
    typer.Option("--enable-scheme", metavar="KIND", help="Run only this kind of job; repeatable, any case. [all]"),
]
_GANG_HELP = "Schedule each job's pods all or none: volcano, kube-batch, or a scheduler-plugins name."
GANG = Annotated[str, typer.Option("--gang-scheduler-name", metavar="NAME", help=_GANG_HELP)]
OPERATORS_GANG = Annotated[  # with the names that mpi-operator and paddle-operator had for it
    str,
    typer.Option(*("--gang-scheduler-name", "--gang-scheduling", "--scheduling"), metavar="NAME", help=_GANG_HELP),
]
COMPAT = Annotated[
    Literal["", "2021"],
    typer.Option(metavar="2021", help="Behave as the single-framework operators of 2021 where they differ."),
]
STRICT = Annotated[
    bool, typer.Option(help="Refuse new MSJobs whose replicas could not find one another, instead of warning of them.")
]
DOMAIN = Annotated[
    str,
    typer.Option(envvar="CUSTOM_CLUSTER_DOMAIN", metavar="DOMAIN", help="Appended to host names in TF_CONFIG."),
]
INIT_MODE = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(
        help="How PyTorch workers wait for their master: auto in their own image, always in --pytorch-init-"
        "container-image, or never."
    ),
]


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def operator(
    ctx: typer.Context,
    enable_scheme: SCHEMES = None,
    namespace: Annotated[
        str, typer.Option(envvar="KUBEFLOW_NAMESPACE", metavar="NS", help="Watch this namespace only. [all]")
    ] = "",
    kubeconfig: Annotated[
        str,
        typer.Option(
            "--kubeconfig", "--kubeConfig", metavar="FILE", help="Instead of $KUBECONFIG or the pod's account."
        ),
    ] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Of the kubeconfig. [its current context]")] = "",
    gang_scheduler_name: OPERATORS_GANG = "",
    enable_gang_scheduling: Annotated[
        bool | None, typer.Option(help="Flag of operators before 1.6: gang-schedule, by volcano unless named.")
    ] = None,
    compat: COMPAT = "",
    strict_topology: STRICT = False,
    cluster_domain: DOMAIN = "",
    controller_threads: Annotated[
        int, typer.Option("--controller-threads", "--threadiness", min=1, help="Jobs worked on at once, per kind.")
    ] = 16,
    leader_elect: Annotated[bool, typer.Option(help="Of several operators, let one lead.")] = False,
    leader_election_id: Annotated[str, typer.Option(metavar="NAME", help="The Lease's name.")] = LEADER_ELECTION_ID,
    leader_election_namespace: Annotated[
        str,
        typer.Option(*("--leader-election-namespace", "--lock-namespace"), metavar="NS", help="[the operator's own]"),
    ] = "",
    metrics_bind_address: Annotated[
        str, typer.Option("--metrics-bind-address", "--metrics-addr", help="Where /metrics is; 0 is off.")
    ] = ":8080",
    health_probe_bind_address: Annotated[str, typer.Option(help="Where /healthz and /readyz are; 0 is off.")] = ":8081",
    webhook_bind_address: Annotated[
        str, typer.Option(metavar="ADDR", help="Where admission webhooks are served, such as :9443. [off]")
    ] = "",
    webhook_service: Annotated[
        str,
        typer.Option(
            metavar="NAME.NAMESPACE", help="The Service that leads to them. [trainmaster-webhook, the operator's own]"
        ),
    ] = "",
    webhook_registration: Annotated[
        str, typer.Option(metavar="NAME", help="The configurations that register them. [the Service's name]")
    ] = "",
    webhook_cert_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Has tls.crt, tls.key and maybe ca.crt. [kept in a Secret by us]")
    ] = "",
    init_container: INIT_MODE = "auto",
    pytorch_init_container_image: Annotated[
        str | None,
        typer.Option(
            "--pytorch-init-container-image", "--init-container-image", help="Implies --init-container always."
        ),
    ] = None,
    pytorch_init_container_template_file: Annotated[
        Path, typer.Option(help="A list of init containers to use instead, if the file exists.")
    ] = Path("/etc/config/initContainer.yaml"),
    pytorch_init_container_max_tries: Annotated[int, typer.Option(min=1, help="Of nslookup, 2 s apart.")] = 100,
    mpi_kubectl_delivery_image: Annotated[
        str,
        typer.Option(
            *("--mpi-kubectl-delivery-image", "--kubectl-delivery-image"),
            help="Brings kubectl to the launchers of MPIJobs v1 and v1alpha2.",
        ),
    ] = KUBECTL_DELIVERY_IMAGE,
    coordinator_image: Annotated[
        str,
        typer.Option(
            *("--coordinator-image", "--initImage"),
            help="Holds the pods of batch.paddlepaddle.org jobs until their peers' names resolve; empty does not.",
        ),
    ] = COORDINATOR_IMAGE,
    port_range: Annotated[
        str, typer.Option(metavar="FIRST,LAST", help="Ports dealt out to batch.paddlepaddle.org jobs on host networks.")
    ] = "35000,65000",
    etcd_server: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Through which elastic batch.paddlepaddle.org jobs are scaled.")
    ] = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[Literal["auto", "json", "text"], typer.Option(help="json, or text on a terminal.")] = "auto",
) -> None:
    """Run the operator against a Kubernetes API server.

    Flags of training-operator, tf-, pytorch-, mxnet- and xgboost-operator are taken too; those without a meaning
    here are named in a warning and otherwise ignored.
    """
    from trainmaster.cli.operator import run

    chosen = Options(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        schemes=tuple(enable_scheme or ()),
        controller_threads=controller_threads,
        metrics_bind_address=metrics_bind_address,
        health_probe_bind_address=health_probe_bind_address,
        leader_elect=leader_elect,
        leader_election_id=leader_election_id,
        leader_election_namespace=leader_election_namespace,
        webhook_bind_address=webhook_bind_address,
        webhook_service=webhook_service,
        webhook_registration=webhook_registration,
        webhook_cert_dir=webhook_cert_dir,
        gang_scheduler_name=gang_scheduler_name,
        enable_gang_scheduling=enable_gang_scheduling,
        kubectl_delivery_image=mpi_kubectl_delivery_image,
        coordinator_image=coordinator_image,
        port_range=port_range,
        etcd_server=etcd_server,
        cluster_domain=cluster_domain,
        compat=compat,
        strict_topology=strict_topology,
    )
    template = pytorch_init_container_template_file
    waiting = (init_container, pytorch_init_container_image, pytorch_init_container_max_tries, template)
    raise typer.Exit(run(chosen, waiting, ctx.args, log_level, log_format))


@app.command()
def plan(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Manifests, directories, or - for stdin.")],
    output: Annotated[
        Literal["yaml", "json", "table"], typer.Option("-o", "--output", help="Format of what is printed.")
    ] = "yaml",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="For jobs that name none.")] = "default",
    gang_scheduler_name: GANG = "",
    compat: COMPAT = "",
    strict_topology: STRICT = False,
    cluster_domain: DOMAIN = "",
    init_container: INIT_MODE = "auto",
    raw: RAW = False,
) -> None:
    """Print every object that jobs would have when fully started, without any cluster.

    Objects come in the order of creation, as one v1/List that kubectl can read. A job with mistakes is not planned:
    all of them are listed, and the exit code is 2.
    """
    from trainmaster.api.settings import InitContainer
    from trainmaster.cli import terminal
    from trainmaster.cli.plan import run

    if raw:
        terminal.unguard()
    chosen = Options(
        gang_scheduler_name=gang_scheduler_name,
        compat=compat,
        strict_topology=strict_topology,
        cluster_domain=cluster_domain,
        init_container=InitContainer(mode=init_container),
    )
    raise typer.Exit(run(files, output, namespace, chosen.settings))


@app.command()
def manifests(
    enable_scheme: SCHEMES = None,
    namespace: Annotated[
        str, typer.Option(metavar="NS", help="Where the operator is installed.")
    ] = "trainmaster-system",
    watch_namespace: Annotated[
        str, typer.Option(metavar="NS", help="Confine the operator, and its rights, to this namespace. [all]")
    ] = "",
    image: Annotated[str, typer.Option(help="The operator's image.")] = f"trainmaster:{trainmaster.__version__}",
    gang_scheduler_name: GANG = "",
    compat: COMPAT = "",
    strict_topology: STRICT = False,
    cel: Annotated[
        bool, typer.Option("--cel", help="Add CEL rules to the CRDs (Kubernetes 1.25 and later): queues are immutable.")
    ] = False,
    webhooks: Annotated[
        Literal["", "validating", "all"],
        typer.Option(metavar="WHICH", help="Register admission webhooks: validating, or all with defaulting. [none]"),
    ] = "",
    webhook_failure_policy: Annotated[
        Literal["Ignore", "Fail"], typer.Option(help="Of jobs while no webhook answers: let them in, or keep them out.")
    ] = "Ignore",
    crds_only: Annotated[bool, typer.Option("--crds-only", help="Print the CustomResourceDefinitions alone.")] = False,
) -> None:
    """Print what installs the operator: CRDs, RBAC for the enabled kinds and nothing more, Deployment, Service.

    trainmaster manifests | kubectl apply -f -
    """
    from trainmaster.cli.manifests import run

    given: dict[str, Any] = {
        "namespace": namespace,
        "watch_namespace": watch_namespace,
        "image": image,
        "schemes": tuple(enable_scheme or ()),
        "gang_scheduler_name": gang_scheduler_name,
        "compat": compat,
        "strict_topology": strict_topology,
        "cel": cel,
        "webhooks": webhooks,
        "webhook_failure_policy": webhook_failure_policy,
    }
    raise typer.Exit(run(given, crds_only=crds_only))


IMAGES = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="PATTERN=WHERE",
        help="What stands for images of that name: a directory, a virtual environment or a command. Repeatable.",
    ),
]
SANDBOX = Annotated[
    Literal["auto", "namespaces", "ports"],
    typer.Option(help="How pods are kept apart: namespaces of their own, or only ports of their own."),
]
NODES = Annotated[int, typer.Option(min=1, help="Divide this machine into so many nodes.")]
PORT = Annotated[int, typer.Option(min=0, max=65535, help="Of the API server, on 127.0.0.1. [any free one]")]
CONFIG = Annotated[
    str,
    typer.Option(
        "--config", metavar="FILE", help="Says what stands for images, volumes and devices. [trainmaster.yaml]"
    ),
]
HOME = Annotated[
    str,
    typer.Option(
        "--data-dir", metavar="DIR", help="Where the cluster keeps its things. [~/.local/share/trainmaster/cluster]"
    ),
]


@app.command()
def run(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Manifests, directories, or - for stdin.")],
    image: IMAGES = None,
    config: CONFIG = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="For objects that name none.")] = "",
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Give up after so long.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up when all is over or time is up.")] = False,
    sandbox: SANDBOX = "auto",
    nodes: NODES = 1,
    port: PORT = 0,
    gang_scheduler_name: GANG = "",
    compat: COMPAT = "",
    strict_topology: STRICT = False,
    context: Annotated[str, typer.Option(metavar="NAME", help="Run on the cluster of this kubeconfig context.")] = "",
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Run on the cluster of this kubeconfig.")] = "",
) -> None:
    """Run jobs on this machine (or, with --context, on a cluster) and follow them to their end.

    Starts a cluster of its own, submits everything in the files, shows what every rank prints, and ends with the jobs'
    result: 0 succeeded, 1 failed, 2 bad manifest or usage, 124 timed out, 130 interrupted, 143 ended by SIGTERM.
    """
    from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
    from trainmaster.cli.run import RunOptions
    from trainmaster.cli.run import run as run_jobs

    cluster = EmbeddedOptions(
        port=port,
        nodes=nodes,
        sandbox=sandbox,
        images=tuple(image or ()),
        config=config,
        operator=embedded_operator(gang_scheduler_name, compat, strict_topology=strict_topology),
    )
    chosen = RunOptions(tuple(files), namespace, context, kubeconfig, timeout, keep, cluster)
    raise typer.Exit(run_jobs(chosen))


@app.command()
def up(
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Leave it running in the background.")] = False,
    data_dir: HOME = "",
    image: IMAGES = None,
    config: CONFIG = "",
    sandbox: SANDBOX = "auto",
    nodes: NODES = 1,
    port: PORT = 0,
    gang_scheduler_name: GANG = "",
    compat: COMPAT = "",
    strict_topology: STRICT = False,
) -> None:
    """Start a cluster on this machine that speaks the Kubernetes API and runs pods as processes."""
    from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
    from trainmaster.cli.up import up as bring_up

    images = tuple(image or ())
    operator = embedded_operator(gang_scheduler_name, compat, strict_topology=strict_topology)
    chosen = EmbeddedOptions(data_dir, port, nodes, sandbox, images, config, operator)
    raise typer.Exit(bring_up(chosen, detach=detach))


@app.command()
def down(data_dir: HOME = "") -> None:
    """Stop the cluster that `up` started. What was stored in it is kept."""
    from trainmaster.cli.down import down as bring_down
    from trainmaster.cli.home import default_home

    raise typer.Exit(bring_down(Path(data_dir) if data_dir else default_home()))


@app.command()
def status(data_dir: HOME = "") -> None:
    """Say whether a cluster is up, and how to reach it."""
    from trainmaster.cli.home import default_home
    from trainmaster.cli.up import status as tell

    raise typer.Exit(tell(Path(data_dir) if data_dir else default_home()))


app.add_typer(objects)
