"""Switches as Go programs take them (`--wait=false` beside `--no-wait`), and one that several verbs have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

RAW = Annotated[
    bool,
    typer.Option("--raw", help="Pass on commands to the terminal, such as to move the cursor; colours always pass."),
]


class KubectlCommand(TyperCommand):
    """Takes switches as Go programs do, too: `--wait=false`, `--watch=true`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._switched(args)))

    def _switched(self, args: list[str]) -> Iterator[str]:
        switches = {name: one for one in self.params if getattr(one, "is_flag", False) for name in one.opts}
        for number, argument in enumerate(args):
            if argument == "--":
                yield from args[number:]
                return
            name, equals, value = argument.partition("=")
            if not equals or name not in switches or value.lower() not in ("true", "false"):
                yield argument
            elif value.lower() == "true":
                yield name
            elif switches[name].secondary_opts:
                yield switches[name].secondary_opts[0]
