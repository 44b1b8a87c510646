"""What a worker says while it waits for its master."""

import socket
import sys
import time

import pytest

from trainmaster.frameworks import pytorch_wait

WAIT = pytorch_wait._WAIT


def said_while_waiting(seconds, monkeypatch, capsys):
    """The lines of a wait that takes so long, in no time."""
    passed: list[float] = []

    def resolve(name, port):
        if len(passed) < seconds:
            raise OSError

    monkeypatch.setattr(sys, "argv", ["-c", "ddp-master-0"])
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(time, "sleep", passed.append)
    with pytest.raises(SystemExit) as end:
        exec(WAIT, {})
    return end.value.code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("seconds", "times"),
    [(0, 0), (4, 0), (6, 1), (65, 1), (66, 2), (600, 10)],
    ids=["at once", "soon", "a while", "a minute", "more", "ten minutes"],
)
def test_it_says_what_it_waits_for_after_a_while_and_then_once_a_minute(seconds, times, monkeypatch, capsys):
    code, lines = said_while_waiting(seconds, monkeypatch, capsys)

    assert code is None
    assert lines == ["waiting for the name ddp-master-0"] * times


def test_it_gives_up_after_half_an_hour(monkeypatch, capsys):
    code, _ = said_while_waiting(2000, monkeypatch, capsys)

    assert code == "the master has had no address for half an hour"
