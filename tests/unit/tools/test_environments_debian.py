"""Debian packages are fetched and unpacked inside the environment, with lists of its own if need be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tools import environments_debian
from tools.environments_step import Unavailable


class Apt:
    """An apt-get that has packages only in lists that were fetched, unless `has_lists`; and a dpkg-deb."""

    def __init__(self, has_lists: bool) -> None:
        self.has_lists = has_lists
        self.commands: list[str] = []
        self.sources = ""

    def run(self, name: str, command: Sequence[str], *, folder: Path | None = None) -> None:
        verb = next(word for word in command if word in ("download", "update", "--extract"))
        self.commands.append(verb)
        for word in command:
            if word.startswith("Dir::Etc::SourceParts="):
                self.sources = (Path(word.partition("=")[2]) / "debian.sources").read_text()
        if verb == "--extract":
            (Path(command[-1]) / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True, exist_ok=True)
        if verb == "download":
            if not self.has_lists and not any("Dir::State::Lists" in word for word in command):
                raise Unavailable("unable to locate package")
            assert folder is not None
            (folder / "mpi_4.deb").touch()
            (folder / "pmix_2.deb").touch()


@pytest.mark.parametrize(
    ("has_lists", "commands"),
    [
        pytest.param(True, ["download", "--extract", "--extract"], id="lists of the machine"),
        pytest.param(False, ["download", "update", "download", "--extract", "--extract"], id="no lists"),
    ],
)
def test_packages_are_unpacked_inside_the_environment(monkeypatch, tmp_path, has_lists, commands):
    apt = Apt(has_lists)
    monkeypatch.setattr(environments_debian, "run", apt.run)

    environments_debian.unpack("mpi", ["mpi=4.*", "pmix"], tmp_path)

    assert apt.commands == commands
    assert [path.name for path in tmp_path.iterdir()] == ["debian"]
    assert environments_debian.libraries(tmp_path) == tmp_path / "debian" / "usr" / "lib" / "x86_64-linux-gnu"


def test_packages_of_another_suite_come_from_the_archive_of_this_machine(monkeypatch, tmp_path):
    apt = Apt(has_lists=True)
    monkeypatch.setattr(environments_debian, "run", apt.run)
    monkeypatch.setattr(environments_debian, "SOURCES", tmp_path / "debian.sources")
    first = "Types: deb\nURIs: http://archive.example/debian\nSuites: bookworm bookworm-updates\nComponents: main"
    environments_debian.SOURCES.write_text(f"{first}\n\nTypes: deb\nURIs: http://archive.example/security\nSuites: s\n")
    (tmp_path / "made").mkdir()

    environments_debian.unpack("kubectl", ["kubectl=1.32.*"], tmp_path / "made", "trixie")

    assert apt.commands == ["update", "download", "--extract", "--extract"]
    assert apt.sources == first.replace("bookworm bookworm-updates", "trixie") + "\n"


def test_a_machine_that_is_no_debian_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(environments_debian, "SOURCES", tmp_path / "absent")

    with pytest.raises(Unavailable, match="which only a Debian can fetch"):
        environments_debian.unpack("kubectl", ["kubectl=1.32.*"], tmp_path, "trixie")
