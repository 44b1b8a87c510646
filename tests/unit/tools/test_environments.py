"""Environments are made once, made again when their making was broken off, and made anew when their list changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools import environments


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """A cache of its own, a list of one environment, and the commands that would have been run."""
    listed = tmp_path / "environments.toml"
    listed.write_text('small = ["wheel==1"]')
    commands: list[Sequence[str]] = []

    def run(name: str, command: Sequence[str]) -> None:
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "REQUIREMENTS", listed)
    monkeypatch.setattr(environments, "_run", run)
    return commands


def test_an_environment_is_made_once(made):
    first = environments.environment("small")
    second = environments.environment("small")

    assert first == second
    assert (first / "requirements.txt").read_text() == "wheel==1\n"
    assert len(made) == 2


def test_one_whose_making_was_broken_off_is_made_again(made):
    stale = environments.location("small")
    stale.mkdir(parents=True)
    (stale / "half").touch()

    environments.environment("small")

    assert not (stale / "half").exists()
    assert len(made) == 2


def test_another_list_is_another_environment(made):
    before = environments.location("small")
    environments.REQUIREMENTS.write_text('small = ["wheel==2"]')

    assert environments.location("small") != before


def test_who_comes_second_waits_and_finds_it_made(made):
    threads = [threading.Thread(target=environments.environment, args=("small",)) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 2


def test_an_unknown_name_is_told_with_the_known_ones(made, capsys):
    assert environments.main(["large"]) == 1
    assert "knows no large; it has small" in capsys.readouterr().err
