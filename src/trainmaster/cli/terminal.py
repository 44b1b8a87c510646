"""What reaches a terminal: text, and no commands to it but colours.

Logs, events, names and errors hold text of others. Sequences in it can rename a window, write to the clipboard, move
the cursor and make a terminal answer as if the user had typed. So on a terminal control characters are shown as `git`
and `kubectl` show them (ESC as `^[`). Colours pass, because training programs print them and they can do no harm; they
end with the line. Tabs pass, and carriage returns, by which progress bars work. A file or a pipe gets every byte as it
is: it is no terminal, and programs read it.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_RESET = "\x1b[0m"
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_CONTROL = re.compile(_COLOUR + r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def shown(text: str) -> str:
    """The text without commands to a terminal other than colours, which end with it."""
    if text.isprintable():
        return text
    cleaned = _CONTROL.sub(_shown, text)
    return cleaned if "\x1b" not in cleaned or cleaned.endswith(_RESET) else f"{cleaned}{_RESET}"


def _shown(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) > 1:
        return text
    number = ord(text)
    if number < 0x20:
        return f"^{chr(number + 0x40)}"
    return "^?" if number == 0x7F else f"\\x{number:02x}"


class Guarded(io.TextIOWrapper):
    """A terminal's stream that writes text as `shown`."""

    def write(self, text: str) -> int:
        super().write(shown(text))
        return len(text)


def guard() -> None:
    """From now on, text that is printed on a terminal is `shown`. Called once, when the program begins."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def unguard() -> None:
    """`--raw`: what is printed reaches the terminal as it is."""
    sys.stdout, sys.stderr = _unguarded(sys.stdout, sys.__stdout__), _unguarded(sys.stderr, sys.__stderr__)


def is_guarded() -> bool:
    return isinstance(sys.stdout, Guarded)


def console() -> Console:
    """For text in colours and pictures that move: its own commands pass, those in the text do not."""
    from rich.console import Console  # many verbs need none, and it takes long to import

    if not is_guarded():
        return Console(highlight=False)

    class Painter(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=shown(segment.text))

    return Painter(file=sys.__stdout__, highlight=False)


def _guarded(stream: TextIO) -> TextIO:
    if not (isinstance(stream, io.TextIOWrapper) and stream.isatty()):
        return stream
    return Guarded(stream.buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True)


def _unguarded(stream: TextIO, own: TextIO | None) -> TextIO:
    if not isinstance(stream, Guarded) or own is None:
        return stream
    stream.detach()  # both have one buffer, which would be closed with the first
    return own
