"""The command line: one module per verb, imported only when that verb is used.

`main` is the entry point. Verbs print to stdout what was asked for and to stderr what the user should know; exit
codes: 0 fine, 1 it failed, 2 bad input or usage. Start reading at `app`.
"""

from __future__ import annotations

import gc
import sys

INTERRUPTED, BAD_USAGE = 130, 2
GARBAGE = 20_000
"""New objects before the collector looks for garbage. Python's own 700 has it look a hundred times at mere imports."""

GO_BOOLEANS = ("leader-elect", "enable-gang-scheduling", "strict-topology")


def main() -> None:
    try:
        _main()
    except KeyboardInterrupt:
        _tell()
        raise SystemExit(INTERRUPTED) from None
    except SystemExit as end:
        if _is_interruption(end):
            _tell()
        raise


def _main() -> None:
    gc.set_threshold(GARBAGE)
    from trainmaster.cli import terminal

    terminal.guard()
    from trainmaster.cli.app import app
    from trainmaster.operator.options import BadFlag, go_flags

    arguments = sys.argv[1:]
    if arguments[:1] == ["operator"]:  # Deployments of the old operators spell flags as Go programs do
        try:
            arguments = list(go_flags(arguments, GO_BOOLEANS))
        except BadFlag as error:
            print(f"trainmaster operator: {error}", file=sys.stderr)
            raise SystemExit(BAD_USAGE) from None
    app(arguments, prog_name="trainmaster")


def _is_interruption(end: BaseException | None) -> bool:
    """Verbs tell of their own; Typer turns what comes before or between them into an exit code, silently."""
    while end is not None and not isinstance(end, KeyboardInterrupt):
        end = end.__cause__ or end.__context__
    return end is not None


def _tell() -> None:
    print("interrupted: nothing was started", file=sys.stderr)
