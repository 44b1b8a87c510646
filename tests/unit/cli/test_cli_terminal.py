"""What other people's text can do to a terminal: nothing but colours."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from trainmaster.cli import descriptors, logs, terminal
from trainmaster.cli.follow import Rank
from trainmaster.cli.terminal import shown

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
TITLE = "\x1b]0;owned\x07"
CLEAR = "\x1b[2J\x1b[H"
ANSWER = "\x1b[6n\x1bZ\x05"
EIGHT_BIT = "\x9b2J\x9d0;owned\x9c"
COMMANDS = CLIPBOARD + TITLE + CLEAR + ANSWER + EIGHT_BIT
RED = "\x1b[1;31mred\x1b[0m"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text, 中文 and 😀\tand tabs", "plain text, 中文 and 😀\tand tabs"),
        (CLEAR, "^[[2J^[[H"),
        (TITLE, "^[]0;owned^G"),
        (EIGHT_BIT, "\\x9b2J\\x9d0;owned\\x9c"),
        ("a\x08b\x7f\x00", "a^Hb^?^@"),
        (RED, RED),
        ("\x1b[38;2;1;2;3mblue", "\x1b[38;2;1;2;3mblue\x1b[0m"),
        (" 10%\r 20%\r\n", " 10%\r 20%\r\n"),
        (f"\x1b[{'1;' * 21}m", f"^[[{'1;' * 21}m"),
        ("\x1b[?25l", "^[[?25l"),
    ],
)
def test_colours_pass_and_all_other_commands_are_seen(text: str, safe: str) -> None:
    assert shown(text) == safe


@pytest.mark.parametrize("text", ["\x1b[" + "1;" * 100_000, "\x1b" * 200_000, "\x9b[" * 100_000])
def test_long_text_takes_no_longer_than_its_length(text: str) -> None:
    assert len(shown(text)) <= 4 * len(text)


def on_a_terminal(*command: str, cwd: Path | None = None) -> str:
    """What a program writes to the terminal that is its stdout and stderr."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "500"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=cwd, env=environment):
        os.close(theirs)
        written = b""
        while part := _read(ours):
            written += part
    os.close(ours)
    return written.decode()


def _read(terminal_end: int) -> bytes:
    try:
        return os.read(terminal_end, 1 << 16)
    except OSError:  # nobody holds the other end any more
        return b""


def commands_in(written: str) -> list[str]:
    return [
        sequence
        for sequence in (CLIPBOARD, TITLE, "\x1b[2J", "\x1b[H", "\x1b[6n", "\x9b", "\x05")
        if sequence in written
    ]


PRINTS = """
import sys
from trainmaster.cli import terminal
terminal.guard()
{raw}
text = {text!r}
print(text)
print(text, file=sys.stderr)
sys.stdout.write(text[:3]); sys.stdout.write(text[3:])
"""
PAINTS = """
from trainmaster.cli import terminal
terminal.guard()
from rich.live import Live
from rich.table import Table
from rich.text import Text
console, text = terminal.console(), {text!r}
with Live("moving", console=console):
    print(text)
    console.print(Text(text))
    console.print(Text.from_ansi(text))
table = Table()
table.add_column(text)
table.add_row(text)
console.print(table)
"""


@pytest.mark.parametrize("program", [PRINTS, PAINTS], ids=["printed", "painted"])
def test_no_command_in_a_text_reaches_the_terminal(program: str) -> None:
    text = f"{COMMANDS} end"

    written = on_a_terminal(sys.executable, "-c", program.replace("{text!r}", repr(text)).replace("{raw}", ""))

    assert commands_in(written) == []
    assert "end" in written
    assert ("\x1b[?25l" in written) == (program is PAINTS)  # what paints hides the cursor by a command of its own


def test_raw_text_reaches_the_terminal_as_it_is() -> None:
    program = PRINTS.replace("{text!r}", repr(COMMANDS)).replace("{raw}", "terminal.unguard()")

    assert len(commands_in(on_a_terminal(sys.executable, "-c", program))) == 7


def test_a_pipe_gets_every_byte() -> None:
    program = PRINTS.replace("{text!r}", repr(COMMANDS)).replace("{raw}", "")

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{COMMANDS}\n{COMMANDS}"
    assert done.stderr == f"{COMMANDS}\n"


MANIFEST = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: one}
spec:
  "un\\e]0;owned\\x07known": 1
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers: [{name: pytorch, image: "image\\e]0;owned\\x07\\e[2J", command: ["\\e[2J"]}]
"""


@pytest.mark.parametrize("words", [(), ("-o", "table"), ("-o", "json")], ids=["yaml", "table", "json"])
def test_plan_shows_what_a_manifest_commands_the_terminal(tmp_path: Path, words: Sequence[str]) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    plan = (sys.executable, "-m", "trainmaster", "plan", "job.yaml", *words)

    guarded, raw = (on_a_terminal(*plan, *flag, cwd=tmp_path) for flag in ((), ("--raw",)))

    assert commands_in(guarded) == []
    assert "image" in guarded
    assert TITLE in raw


def test_too_few_open_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    command = f"ulimit -n 128; exec {sys.executable} -m trainmaster run job.yaml"

    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "trainmaster run: this process may open 128 files at once (ulimit -Hn), and a cluster needs 256: raise the "
        "limit, in a new shell or as root, with: ulimit -n 4096"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("soft", "hard", "raised"), [(128, 4096, 4096), (1024, 1 << 20, 65536), (4096, -1, 65536)])
def test_the_soft_limit_is_raised_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int
) -> None:
    chosen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: chosen.append(limits))

    descriptors.raise_limit()

    assert chosen == [(raised, hard)]


LIMITED = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: one}
spec:
  pytorchReplicaSpecs:
    Master:
      template: {spec: {containers: [{name: pytorch, image: x, command: [sh, -c, "ulimit -n"]}]}}
"""


def test_containers_keep_the_limit_of_open_files_that_the_user_has(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(LIMITED)
    command = f"ulimit -Sn 300; exec {sys.executable} -m trainmaster run job.yaml"

    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert "[master-0] 300" in done.stdout.splitlines()


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_logs_pass_on_commands_when_they_are_asked_to(capsys: pytest.CaptureFixture[str], several: bool) -> None:
    rank = types.SimpleNamespace(title="worker-1", job=types.SimpleNamespace(name="ddp"))

    logs._shown(logs.LogOptions((), raw=True), several=several)(cast(Rank, rank), COMMANDS)

    assert capsys.readouterr().out == f"{'[worker-1] ' if several else ''}{COMMANDS}\n"


def test_a_stream_that_is_no_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout, sys.stderr

    terminal.guard()

    assert (sys.stdout, sys.stderr) == before
    assert not terminal.is_guarded()
