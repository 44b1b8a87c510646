"""The verbs that work on objects of the current cluster, and their flags: as in kubectl, where kubectl has them.

Like `app`, of which these are a part, it only declares: what a verb does is imported when it is called.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from trainmaster.cli.switches import RAW, KubectlCommand

objects = typer.Typer(rich_markup_mode=None)

WORDS = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KIND] NAME...", help="KIND/NAME, KIND NAME, or a job's name alone."),
]
NAMESPACE = Annotated[str, typer.Option("-n", "--namespace", metavar="NS", help="Where. [that of the context]")]
EVERYWHERE = Annotated[bool, typer.Option("-A", "--all-namespaces", help="In every namespace.")]
CONTEXT = Annotated[str, typer.Option(metavar="NAME", help="Of the kubeconfig. [its current context]")]
KUBECONFIG = Annotated[
    str, typer.Option(metavar="FILE", help="Instead of $KUBECONFIG, a cluster of `up`, or ~/.kube/config.")
]
SELECTOR = Annotated[
    str, typer.Option("-l", "--selector", metavar="LABELS", help="Only objects with these labels: a=b,c!=d.")
]
ALL = Annotated[bool, typer.Option("--all", help="All objects of the kind.")]


def _choice(namespace: str, context: str, kubeconfig: str, everywhere: bool = False) -> Any:
    from trainmaster.cli.connection import Choice

    return Choice(namespace, everywhere, context, kubeconfig)


@objects.command(cls=KubectlCommand)
def get(
    words: WORDS = None,
    output: Annotated[
        Literal["", "wide", "yaml", "json", "name"],
        typer.Option(
            "-o", "--output", help="yaml, json, name, or a table with more columns: wide.", show_default=False
        ),
    ] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on and show what changes.")] = False,
    selector: SELECTOR = "",
    field_selector: Annotated[str, typer.Option(metavar="FIELDS", help="Such as status.phase=Running.")] = "",
    show_labels: Annotated[bool, typer.Option("--show-labels", help="In a last column.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Rows alone.")] = False,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="Then say nothing, end with 0.")] = False,
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Show objects. Without a kind: the training jobs of every kind, in one table.

    trainmaster get -A; trainmaster get pytorchjobs -w; trainmaster get pod/ddp-master-0 -o yaml
    """
    from trainmaster.cli.get import GetOptions, run

    chosen = GetOptions(
        tuple(words or ()), output, watch, selector, field_selector, show_labels, no_headers, ignore_not_found
    )
    raise typer.Exit(run(_choice(namespace, context, kubeconfig, all_namespaces), chosen))


@objects.command(cls=KubectlCommand)
def describe(
    words: WORDS = None,
    selector: SELECTOR = "",
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Tell how a job stands: which rank failed first, why, and what to do about it.

    Any other object is shown whole, with its events.
    """
    from trainmaster.cli.describe import DescribeOptions, run

    choice = _choice(namespace, context, kubeconfig, all_namespaces)
    raise typer.Exit(run(choice, DescribeOptions(tuple(words or ()), selector)))


@objects.command(cls=KubectlCommand)
def logs(
    words: Annotated[list[str], typer.Argument(metavar="JOB|pod/NAME", help="A training job, or a pod.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job, or the pod, has ended.")] = False,
    rank: Annotated[
        list[str] | None, typer.Option("--rank", metavar="ROLE-N", help="Such as worker-1; repeatable. [the leader]")
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all", help="Every rank, each line with the rank's name.")] = False,
    container: Annotated[str, typer.Option("-c", "--container", metavar="NAME", help="[the training container]")] = "",
    previous: Annotated[bool, typer.Option("-p", "--previous", help="Of the attempt before the last restart.")] = False,
    tail: Annotated[int, typer.Option(metavar="N", help="The last N lines only; -1 is all.")] = -1,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Not older than 90s, 5m, 2h.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Before each line, when it was printed.")] = False,
    raw: RAW = False,
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Print what a job's leading rank prints; with --all what all of them do, merged in the order of time."""
    from trainmaster.cli import terminal
    from trainmaster.cli.logs import LogOptions, run

    if raw:
        terminal.unguard()
    chosen = LogOptions(
        tuple(words), follow, tuple(rank or ()), all_ranks, container, previous, tail, since, timestamps, raw
    )
    raise typer.Exit(run(_choice(namespace, context, kubeconfig), chosen))


@objects.command(cls=KubectlCommand)
def delete(
    words: WORDS = None,
    filename: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", metavar="FILE", help="What these manifests name; - is stdin."),
    ] = None,
    selector: SELECTOR = "",
    all_of_kind: ALL = False,
    cascade: Annotated[
        Literal["background", "foreground", "orphan"],
        typer.Option(help="What it owns goes after it, before it, or stays."),
    ] = "background",
    now: Annotated[bool, typer.Option("--now", help="Let pods have one second to end.")] = False,
    grace_period: Annotated[int, typer.Option(metavar="SECONDS", help="For pods to end. -1 is their own.")] = -1,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for pods to end at all.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when all is gone; --wait=false does not.")
    ] = True,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Wait no longer than 90s, 5m; 0s is for ever.")
    ] = "0s",
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="What is not there is no error.")
    ] = False,
    output: Annotated[
        Literal["", "name"], typer.Option("-o", "--output", help="name prints KIND/NAME alone.", show_default=False)
    ] = "",
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Delete objects by name, by label, or as manifests name them. Pods of a deleted job end with it."""
    from trainmaster.cli.delete import DeleteOptions, run

    chosen = DeleteOptions(
        words=tuple(words or ()),
        files=tuple(filename or ()),
        selector=selector,
        all_of_kind=all_of_kind,
        cascade=cascade,
        now=now,
        force=force,
        grace_period=grace_period,
        wait=wait,
        timeout=timeout,
        ignore_not_found=ignore_not_found,
        output=output,
    )
    raise typer.Exit(run(_choice(namespace, context, kubeconfig, all_namespaces), chosen))


@objects.command(cls=KubectlCommand)
def wait(
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="WHAT",
            help="condition=Succeeded, condition=TYPE=STATUS, delete, create, or jsonpath={.status.x}=VALUE.",
        ),
    ],
    words: WORDS = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="0s looks once, -1s waits a week.")] = "30s",
    selector: SELECTOR = "",
    all_of_kind: ALL = False,
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Wait until something holds. Ends with 1 when time runs out, and at once when a job has ended otherwise."""
    from trainmaster.cli.wait import WaitOptions, run

    chosen = WaitOptions(tuple(words or ()), goal, timeout, selector, all_of_kind)
    raise typer.Exit(run(_choice(namespace, context, kubeconfig, all_namespaces), chosen))


@objects.command(cls=KubectlCommand)
def suspend(
    words: WORDS = None,
    selector: SELECTOR = "",
    all_of_kind: ALL = False,
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Take the pods of jobs away, so that others get their place. The jobs stay; `resume` starts them anew."""
    from trainmaster.cli.suspend import SuspendOptions, run

    chosen = SuspendOptions(tuple(words or ()), True, selector, all_of_kind)
    raise typer.Exit(run(_choice(namespace, context, kubeconfig, all_namespaces), chosen))


@objects.command(cls=KubectlCommand)
def resume(
    words: WORDS = None,
    selector: SELECTOR = "",
    all_of_kind: ALL = False,
    namespace: NAMESPACE = "",
    all_namespaces: EVERYWHERE = False,
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Let suspended jobs go on: their pods are made anew."""
    from trainmaster.cli.suspend import SuspendOptions, run

    chosen = SuspendOptions(tuple(words or ()), False, selector, all_of_kind)
    raise typer.Exit(run(_choice(namespace, context, kubeconfig, all_namespaces), chosen))


@objects.command(cls=KubectlCommand)
def scale(
    words: Annotated[list[str], typer.Argument(metavar="[KIND] NAME", help="A job, or anything that can be scaled.")],
    replicas: Annotated[int, typer.Option(min=0, metavar="N", help="How many there shall be.")],
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="Of a job: Worker, PS, ... [the elastic one, or Worker]")
    ] = "",
    current_replicas: Annotated[int, typer.Option(metavar="N", help="Only if there are N now; -1 is any.")] = -1,
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Change how many replicas a role of a job has."""
    from trainmaster.cli.scale import ScaleOptions, run

    chosen = ScaleOptions(tuple(words), replicas, role, current_replicas)
    raise typer.Exit(run(_choice(namespace, context, kubeconfig), chosen))


@objects.command(cls=KubectlCommand)
def apply(
    filename: Annotated[
        list[str], typer.Option("-f", "--filename", metavar="FILE", help="Manifests, directories, or - for stdin.")
    ],
    force_conflicts: Annotated[bool, typer.Option("--force-conflicts", help="Take fields over from others.")] = False,
    dry_run: Annotated[
        Literal["none", "server"], typer.Option("--dry-run", help="server checks everything and changes nothing.")
    ] = "none",
    server_side: Annotated[bool, typer.Option("--server-side", help="Always so; taken for kubectl's sake.")] = True,
    output: Annotated[
        Literal["", "yaml", "json", "name"],
        typer.Option("-o", "--output", help="yaml, json or name instead of what was done.", show_default=False),
    ] = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Bring objects to what manifests say: created, configured or unchanged. Jobs are checked first, all of them."""
    from trainmaster.cli.apply import ApplyOptions, run

    chosen = ApplyOptions(tuple(filename), force_conflicts, dry_run, output, namespace)
    raise typer.Exit(run(_choice(namespace, context, kubeconfig), chosen))


@objects.command(cls=KubectlCommand)
def explain(
    path: Annotated[str, typer.Argument(metavar="KIND[.FIELD...]", help="Such as pytorchjob.spec.runPolicy.")],
    recursive: Annotated[
        bool, typer.Option("--recursive", help="All fields below, without their descriptions.")
    ] = False,
    api_version: Annotated[str, typer.Option(metavar="GROUP/VERSION", help="[the preferred one]")] = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
) -> None:
    """Say what a kind's fields are. Of training jobs, without a cluster too."""
    from trainmaster.cli.explain import ExplainOptions, run

    raise typer.Exit(run(_choice("", context, kubeconfig), ExplainOptions(path, recursive, api_version)))
