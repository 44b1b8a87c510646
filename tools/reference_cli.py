"""The command line from its own declarations: verbs, flags, defaults. Prose stands in `tools/reference/cli.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from tools.reference_text import PROSE, code, codes, header, sections, table
from trainmaster.cli.app import app

SELF_EVIDENT = ("--help", "-h")


def commands() -> Mapping[str, Any]:
    found: Mapping[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # the group's own attribute
    return found


def files() -> Iterator[tuple[str, str]]:
    prose = sections((PROSE / "cli.md").read_text())
    known = commands()
    parts = [header("the declarations in cli/ and tools/reference/cli.md"), prose.pop("") + "\n"]
    for heading, body in prose.items():
        told = _verb(known[heading], body) if heading in known else f"{body}\n"
        parts.append(f"## {heading}\n\n{told}")
    yield "reference/cli.md", "\n".join(parts)


def _verb(command: Any, prose: str) -> str:
    usage = " ".join(["trainmaster", command.name, *(_argument(one) for one in command.params if _is_argument(one))])
    flags = [one for one in command.params if not _is_argument(one) and not set(one.opts) & set(SELF_EVIDENT)]
    return f"Usage: `{usage} [FLAGS]`\n\n{prose}\n\n" + table(
        ("flag", "default", "meaning"), (_flag(command, one) for one in flags)
    )


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _argument(parameter: Any) -> str:
    shown = parameter.metavar or parameter.name.upper()
    return shown if parameter.required or shown.startswith("[") else f"[{shown}]"


def _flag(command: Any, parameter: Any) -> tuple[str, str, str]:
    kind = _annotation(command, parameter)
    options = get_args(kind) if get_origin(kind) is Literal else ()
    told, _, aside = (
        parameter.help.rstrip("]").rpartition("[") if parameter.help.endswith("]") else (parameter.help, "", "")
    )
    meaning = (told or aside).strip()
    values = [option for option in options if option]
    if values and not parameter.metavar:
        meaning += f" One of {codes(values)}."
    if getattr(parameter, "multiple", False) and "epeatable" not in meaning:
        meaning += " Repeatable."
    return _spelt(parameter, kind), _default(parameter, aside), meaning


def _annotation(command: Any, parameter: Any) -> Any:
    """The type that the verb declares, out of `Annotated[X | None, …]`."""
    signature = inspect.signature(inspect.unwrap(command.callback), eval_str=True)
    kind = get_args(signature.parameters[parameter.name].annotation)[0]
    inner = [one for one in get_args(kind) if one is not type(None)]
    return inner[0] if len(inner) == 1 and get_origin(kind) is not Literal else kind


def _spelt(parameter: Any, kind: Any) -> str:
    names = sorted(parameter.opts, key=len) if len(parameter.opts[0]) > 2 else parameter.opts
    value = "" if kind is bool else " " + (parameter.metavar or _value(kind))
    shown = codes(f"{name}{value}" if name == names[-1] else name for name in names)
    return shown + (f", {codes(parameter.secondary_opts)}" if parameter.secondary_opts else "")


def _value(kind: Any) -> str:
    return {int: "N", float: "N", str: "TEXT", Path: "FILE"}.get(kind, "WHICH")


def _default(parameter: Any, aside: str) -> str:
    source = f"{code('$' + parameter.envvar)}, else " if parameter.envvar else ""
    if parameter.required:
        return "required"
    if aside:
        return source + aside
    value = parameter.default
    if value in (None, "", False) or value == []:
        return source.removesuffix(", else ") if source else ""
    return source + code(str(value).lower() if isinstance(value, bool) else value)
