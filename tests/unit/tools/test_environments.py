"""Environments are made once, made again when their making was broken off, and made anew when their recipe changes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tools import environments, environments_debian, environments_step

ROOT = Path(__file__).parents[3]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """A cache of its own, a list of one environment, and the commands that would have been run."""
    listed = tmp_path / "environments.toml"
    listed.write_text('small = ["wheel==1"]')
    commands: list[Sequence[str]] = []

    def run(
        name: str, command: Sequence[str], *, variables: Mapping[str, str] | None = None, grows: Path | None = None
    ) -> None:
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "RECIPES", listed)
    monkeypatch.setattr(environments, "run", run)
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


def test_what_a_killed_maker_had_started_keeps_others_waiting(tmp_path):
    told, lock = tmp_path / "told", tmp_path / "small.lock"
    os.mkfifo(told)
    program = (
        "import sys; from pathlib import Path; from tools import environments\n"
        "with environments._locked(Path(sys.argv[1])):\n"
        "    environments.run('small', ['sh', '-c', 'echo $$ > \"$0\"; exec sleep 1000', sys.argv[2]])"
    )
    maker = subprocess.Popen([sys.executable, "-c", program, lock, told], cwd=ROOT)
    started = int(told.read_text())

    maker.kill()
    maker.wait()

    with lock.open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(started, signal.SIGKILL)
        fcntl.flock(other, fcntl.LOCK_EX)


def test_another_list_is_another_environment(made):
    before = environments.location("small")
    environments.RECIPES.write_text('small = ["wheel==2"]')

    assert environments.location("small") != before


def test_downloads_are_counted_with_the_environment_and_do_not_stay_in_it(made, monkeypatch):
    unpacked: list[Path] = []

    def run(
        name: str, command: Sequence[str], *, variables: Mapping[str, str] | None = None, grows: Path | None = None
    ) -> None:
        if variables:
            unpacked.append(Path(variables["TMPDIR"]))
            assert grows in unpacked[0].parents
            assert unpacked[0].is_dir()
        else:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(environments, "run", run)

    environments.environment("small")

    assert [path.exists() for path in unpacked] == [False]


def test_who_comes_second_waits_and_finds_it_made(made):
    threads = [threading.Thread(target=environments.environment, args=("small",)) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 2


def test_what_pip_does_not_have_comes_after_it_in_the_order_of_the_recipe(made, monkeypatch):
    environments.RECIPES.write_text("""
        [base]
        pip = ["wheel==1"]
        debian = ["mpi=4.*"]
        build = ["arranged"]

        [whole]
        extends = "base"
        pip = ["torch==2"]
        build = ["compiled==0.1"]
    """)
    steps: list[object] = []
    build = environments.Build(lambda name, directory, wanted: steps.append(wanted))
    monkeypatch.setattr(environments, "BUILDS", {"arranged": build, "compiled": build})
    monkeypatch.setattr(environments_debian, "NEEDS", ())
    monkeypatch.setattr(environments_debian, "unpack", lambda name, packages, directory, suite: steps.append(packages))

    directory = environments.environment("whole")

    assert (directory / "requirements.txt").read_text() == "wheel==1\ntorch==2\n"
    assert steps == [("mpi=4.*",), "arranged", "compiled==0.1"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param('debian = ["mpi=5.*"]\nbuild = ["openmpi"]', id="debian"),
        pytest.param('debian = ["mpi=4.*"]\nsuite = "sid"\nbuild = ["openmpi"]', id="suite"),
        pytest.param('debian = ["mpi=4.*"]\nbuild = ["openmpi", "horovod==2"]', id="build"),
    ],
)
def test_every_part_of_a_recipe_is_in_the_name_of_its_directory(made, changed):
    environments.RECIPES.write_text('[mpi]\ndebian = ["mpi=4.*"]\nbuild = ["openmpi"]')
    before = environments.location("mpi")

    environments.RECIPES.write_text(f"[mpi]\n{changed}")

    assert environments.location("mpi") != before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param('small = "wheel"', "small is 'wheel'; it should be a list for pip, or a table", id="no list"),
        pytest.param("[small]\nconda = []", "small.conda is not known; there are extends, pip", id="unknown part"),
        pytest.param('[small]\nbuild = ["gcc==1"]', "small.build has gcc, which is not known", id="unknown build"),
        pytest.param('[small]\nextends = "large"', "knows no large; it has small", id="unknown base"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_told_with_its_field(made, capsys, text, told):
    environments.RECIPES.write_text(text)

    assert environments.main(["small"]) == 1
    assert told in capsys.readouterr().err


def test_one_whose_last_step_failed_is_not_whole(made, monkeypatch):
    def fail(name: str, directory: Path, wanted: str) -> None:
        raise environments.Unavailable("does not compile")

    environments.RECIPES.write_text('[small]\nbuild = ["horovod==1"]')
    monkeypatch.setattr(environments, "BUILDS", {"horovod": environments.Build(fail)})

    first, second = environments.main(["small"]), environments.main(["small"])

    assert (first, second) == (1, 1)
    assert len(made) == 4


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        pytest.param('debian = ["mpi"]', "apt-get", id="packages without apt"),
        pytest.param('build = ["horovod==1"]', "g++", id="build without a compiler"),
    ],
)
def test_a_program_that_is_missing_is_told_before_anything_is_made(made, monkeypatch, capsys, text, missing):
    environments.RECIPES.write_text(f"[small]\n{text}")
    monkeypatch.setattr("shutil.which", lambda program: None if program == missing else f"/usr/bin/{program}")

    assert environments.main(["small"]) == 1
    assert f"small cannot be made without {missing}, and there is none on PATH" in capsys.readouterr().err
    assert made == []


@pytest.mark.parametrize("name", tomllib.loads(environments.RECIPES.read_text()))
def test_a_recipe_of_this_project_can_be_read(name):
    found = environments.recipe(name)

    assert found.pip or found.debian
    assert {build.partition("==")[0] for build in found.build} <= environments.BUILDS.keys()


def test_an_unknown_name_is_told_with_the_known_ones(made, capsys):
    assert environments.main(["large"]) == 1
    assert "knows no large; it has small" in capsys.readouterr().err


def test_what_is_there_and_what_is_to_be_made_is_told_before_it_is_waited_for(made, capsys):
    environments.RECIPES.write_text('small = ["wheel==1"]\nlarge = ["wheel==2"]')
    environments.environment("large")
    capsys.readouterr()

    assert environments.main(["all"]) == 0

    told = capsys.readouterr()
    lines = [line.partition(" in ")[0] for line in told.err.splitlines()]
    assert lines[:2] == ["1/2 small: not there yet, or not whole", "small: installing wheel==1"]
    assert lines[-1] == "2/2 large: cached"
    assert told.out.splitlines() == [str(environments.location(name)) for name in ("small", "large")]


def test_without_a_name_all_are_listed_and_none_is_made(made, capsys):
    environments.RECIPES.write_text('jax = ["wheel==1"]\nlarge = ["wheel==2"]')
    directory = environments.environment("large")
    (directory / "library").write_bytes(bytes(2_000_000))
    made.clear()

    assert environments.main([]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "jax    light  not made",
        f"large         cached, 2 MB in {directory}",
    ]
    assert made == []


def test_light_environments_are_known():
    assert {*environments.LIGHT} <= tomllib.loads(environments.RECIPES.read_text()).keys()


def test_a_command_that_takes_long_tells_how_far_it_is(tmp_path, monkeypatch):
    told: list[str] = []
    (tmp_path / "half").write_bytes(bytes(3_000_000))
    os.mkfifo(tmp_path / "end")

    def tell(text: str) -> None:
        told.append(text)
        (tmp_path / "end").write_text("now\n")

    monkeypatch.setattr(environments_step, "BEAT", 0.5)
    monkeypatch.setattr(environments_step, "tell", tell)

    environments_step.run("small", ["sh", "-c", 'read word < "$0"', str(tmp_path / "end")], grows=tmp_path)

    assert len(told) == 1
    assert re.fullmatch(r"small: \d+ s, 3 MB so far …", told[0])


def test_a_command_that_fails_is_told_with_its_exit_code():
    with pytest.raises(environments.Unavailable, match=r"small could not be made: \S+ ended with exit code 3$"):
        environments_step.run("small", ["sh", "-c", "exit 3"])
