"""How a followed job looks: lines of all ranks with coloured names, conditions as they come, a table at the end.

On a terminal a table of the ranks stays below the lines; elsewhere there are plain lines only, fit for a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from msgspec import to_builtins
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trainmaster.api.status import Condition
from trainmaster.cli import terminal
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.ranks import RankView, first_to_fail
from trainmaster.objects import timestamp
from trainmaster.objects.pod import ContainerStatus

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
STATES = {"Running": "cyan", "Succeeded": "green", "Failed": "red", "Restarting": "yellow", "Pending": "dim"}
MOST_ROWS = 24
"""More ranks than this are not all shown while they run; the table at the end has them all."""


class Screen:
    def __init__(self, console: Console, *, several_jobs: bool = False) -> None:
        self._console = console
        self._several = several_jobs
        self._colours: dict[str, str] = {}
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, rank: Rank, container: str, text: str) -> None:
        if self._live is None and text.isprintable():
            # Rich would take a millisecond to find that there is nothing to paint, and ranks may print thousands.
            self._console.file.write(f"[{self._name(rank)}] {text}\n")
            self._console.file.flush()
            return
        self._print(Text.assemble((f"[{self._name(rank)}] ", self._colour(rank)), Text.from_ansi(self._legible(text))))

    def silence(self, rank: Rank, container: str) -> None:
        """One attempt of the container has ended, and all it printed has been shown."""

    def condition(self, job: JobRef, condition: Condition) -> None:
        colour = STATES.get(condition.type, "bold")
        self._print(
            Text.assemble(("● ", colour), (f"{job}: ", "bold"), (condition.type, colour), f"  {condition.message}")
        )

    def warning(self, job: JobRef, reason: str, message: str) -> None:
        self._print(Text.assemble(("▲ ", "yellow"), (f"{job}: ", "bold"), (reason, "yellow"), f"  {message}"))

    def notice(self, message: str) -> None:
        """A word that is about no job of its own."""
        self._print(Text.assemble(("▲ ", "yellow"), message))

    def changed(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.update(Group(ranks_table(progress, most=MOST_ROWS)))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def _legible(self, text: str) -> str:
        """On a terminal, commands in a log are seen; Rich would swallow some and pass others on."""
        return terminal.shown(text) if self._console.is_terminal else text

    def _name(self, rank: Rank) -> str:
        return f"{rank.job.name}/{rank.title}" if self._several else rank.title

    def _colour(self, rank: Rank) -> str:
        return self._colours.setdefault(self._name(rank), COLOURS[len(self._colours) % len(COLOURS)])


def ranks_table(progress: Progress, most: int | None = None) -> Table:
    """A row for every rank: where it stands, how it ended, how often it was restarted, how long it ran."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("JOB", "RANK", "STATUS", "EXIT", "RESTARTS", "TIME"):
        table.add_column(column, justify="right" if column in ("EXIT", "RESTARTS", "TIME") else "left", no_wrap=True)
    rows = list(_rows(progress))
    for row in rows[:most]:
        table.add_row(*row)
    if most is not None and len(rows) > most:
        table.add_row("", Text(f"… and {len(rows) - most} more", style="dim"))
    return table


def _rows(progress: Progress) -> Iterator[tuple[Any, ...]]:
    order = {job: number for number, job in enumerate(progress.jobs)}
    for rank in sorted(progress.ranks.values(), key=lambda rank: (order[rank.job], _natural(rank.title))):
        state = _state(rank, progress)
        attempts = progress.jobs[rank.job].attempts.get(rank.title, 0)
        yield (
            rank.job.name,
            rank.title,
            Text(state, style=STATES.get(state, "")),
            _exit(rank),
            str(attempts + rank.pod.restart_count),
            _duration(rank),
        )


def _natural(title: str) -> tuple[str, int]:
    role, _, index = title.rpartition("-")
    return role, int(index) if index.isdecimal() else 0


def _state(rank: Rank, progress: Progress) -> str:
    """The phase, or what the pod waits for. Of a job that is over, whoever is yet to end has been stopped as well as
    whoever has ended: what they had to do is done."""
    for status in (*rank.pod.status.init_container_statuses, *rank.pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return waiting.reason
    if rank.pod.metadata.is_terminating and not rank.pod.is_finished:
        return "Stopped" if progress.is_over(rank.job) else "Terminating"
    if rank.pod.metadata.is_terminating and rank.pod.status.phase == "Failed" and _was_told(rank, progress):
        return "Stopped"  # by the operator, when its job needed it no more
    ends = [status.state.terminated for status in rank.pod.status.container_statuses]
    if any(end is not None and end.reason == "OOMKilled" for end in ends):
        return "OOMKilled"
    return rank.pod.status.phase


def _was_told(rank: Rank, progress: Progress) -> bool:
    """Whether it ended because it was deleted, and had not failed before."""
    view = _view(rank)
    failed = first_to_fail([view])
    if failed is None or failed[1].at < view.told_at:
        return failed is None
    # Times are whole seconds. In the one in which it was told to end, whoever failed first did so by itself.
    everyone = [_view(other) for other in progress.ranks.values() if other.job == rank.job]
    first = first_to_fail(everyone) if progress.jobs[rank.job].is_true("Failed") else None
    return first is None or first[0].name != view.name


def _view(rank: Rank) -> RankView:
    return RankView(rank.title, to_builtins(rank.pod))


def _exit(rank: Rank) -> str:
    codes = [s.state.terminated.exit_code for s in rank.pod.status.container_statuses if s.state.terminated is not None]
    return str(max(codes)) if codes else ""


def _duration(rank: Rank) -> str:
    spans = [span for status in rank.pod.status.container_statuses if (span := _span(status)) is not None]
    return f"{max(spans):.0f}s" if spans else ""


def _span(status: ContainerStatus) -> float | None:
    ended, running = status.state.terminated, status.state.running
    if ended is not None:
        begun, end = timestamp.parse(ended.started_at), timestamp.parse(ended.finished_at)
        return end - begun if begun is not None and end is not None else None
    begun = timestamp.parse((running or {}).get("startedAt"))
    return time.time() - begun if begun is not None else None


def print_summary(console: Console, progress: Progress, begun: Mapping[JobRef, float], now: float) -> None:
    """`begun` and `now` are by the clock of `progress.ended`; a job that is not over has taken until now."""
    console.print()
    console.print(ranks_table(progress))
    for job, status in progress.jobs.items():
        result = (
            "Succeeded" if status.is_true("Succeeded") else "Failed" if status.is_true("Failed") else "not finished"
        )
        style = STATES.get(result, "yellow")
        seconds = progress.ended.get(job, now) - begun[job]
        console.print(Text.assemble((f"{job}: ", "bold"), (result, style), f" after {seconds:.1f} s"), highlight=False)
