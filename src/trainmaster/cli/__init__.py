"""The command line: one module per verb, imported only when that verb is used.

`main` is the entry point. Verbs print to stdout what was asked for and to stderr what the user should know; exit
codes: 0 fine, 1 it failed, 2 bad input or usage. Start reading at `app`.
"""

from __future__ import annotations

import sys

GO_BOOLEANS = ("leader-elect", "enable-gang-scheduling")


def main() -> None:
    from trainmaster.cli.app import app
    from trainmaster.operator.options import go_flags

    arguments = sys.argv[1:]
    if arguments[:1] == ["operator"]:  # Deployments of the old operators spell flags as Go programs do
        arguments = list(go_flags(arguments, GO_BOOLEANS))
    app(arguments, prog_name="trainmaster")
