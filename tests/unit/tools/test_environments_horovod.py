"""Horovod's source is asked for, brought up to the C++ of today's torch, and built with what the environment has."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tools import environments_horovod
from tools.environments_step import Unavailable, run


class Builder:
    """Downloads a source in which the C++ standard is `said`, and keeps what the build would have seen."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.lists: list[str] = []
        self.variables: Mapping[str, str] = {}

    def run(self, name: str, command: Sequence[str], *, variables: Mapping[str, str] | None = None) -> None:
        if "download" in command:
            self._download(Path(command[command.index("--dest") + 1]))
        elif "install" in command:
            self.lists = [(Path(command[-1]) / place).read_text() for place in environments_horovod.LISTS]
            self.variables = variables or {}
        else:
            run(name, command)

    def _download(self, work: Path) -> None:
        source = work / "horovod-1"
        for place in environments_horovod.LISTS:
            (source / place).parent.mkdir(parents=True, exist_ok=True)
            (source / place).write_text(f"{self.said}\n")
        with tarfile.open(work / "horovod-1.tar.gz", "w:gz") as packed:
            packed.add(source, "horovod-1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "debian" / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    return tmp_path


def test_the_source_asks_for_todays_standard_when_it_is_built(directory, monkeypatch):
    builder = Builder("set(CMAKE_CXX_STANDARD 14)")
    monkeypatch.setattr(environments_horovod, "run", builder.run)

    environments_horovod.build("horovod", directory, "horovod==1")

    assert builder.lists == ["set(CMAKE_CXX_STANDARD 17)\n"] * 2
    assert builder.variables["PATH"].startswith(f"{directory}/bin:")
    assert f"-rpath,{directory}/debian/usr/lib/x86_64-linux-gnu" in builder.variables["LDFLAGS"]
    assert builder.variables["HOROVOD_WITH_MPI"] == "1"
    assert not (directory / "build").exists()


def test_a_source_that_is_not_as_expected_is_not_built(directory, monkeypatch):
    builder = Builder("set(CMAKE_CXX_STANDARD 20)")
    monkeypatch.setattr(environments_horovod, "run", builder.run)

    with pytest.raises(Unavailable, match=r"CMakeLists.txt lacks set\(CMAKE_CXX_STANDARD 14\)"):
        environments_horovod.build("horovod", directory, "horovod==2")

    assert builder.lists == []
