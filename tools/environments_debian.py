"""Debian packages inside an environment: fetched with apt, unpacked under `debian/`, never installed on the machine.

Only the packages that are listed are fetched, whatever the machine has, so that the result is the same everywhere.
Nothing here needs root, and nothing outside the environment is written.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.environments_step import Unavailable, run, tell

TREE = "debian"
NEEDS = ("apt-get", "dpkg-deb")
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def unpack(name: str, packages: Sequence[str], directory: Path, suite: str = "") -> None:
    """Puts the packages' files under `debian/` in the environment; `package=version*` pins one.

    They are of that suite, whatever Debian this machine is.
    """
    spool = directory / "packages"
    spool.mkdir()
    if suite:
        _fetch_with_lists(name, packages, spool, _sources_of(name, suite, spool))
    else:
        _fetch(name, packages, spool)
    for package in sorted(spool.glob("*.deb")):
        run(name, ["dpkg-deb", "--extract", str(package), str(directory / TREE)])
    shutil.rmtree(spool)


def libraries(directory: Path) -> Path:
    """Where the unpacked shared libraries lie; the name of the directory tells the machine's architecture."""
    return next((directory / TREE / "usr" / "lib").glob("*-linux-gnu*"))


def _fetch(name: str, packages: Sequence[str], spool: Path) -> None:
    """By the package lists of this machine; where it has none, or old ones, by lists fetched for this once."""
    try:
        run(name, [*_apt(), "download", *packages], folder=spool)
    except Unavailable:
        tell(f"{name}: the package lists of this machine do not have all of these; fetching newer ones …")
        _fetch_with_lists(name, packages, spool, ())


def _fetch_with_lists(name: str, packages: Sequence[str], spool: Path, sources: Sequence[str]) -> None:
    state = spool / "apt"
    (state / "lists" / "partial").mkdir(parents=True)
    options = [f"Dir::State::Lists={state / 'lists'}", f"Dir::Cache={state}", "Acquire::Languages=none", *sources]
    run(name, [*_apt(*options), "update"], folder=spool)
    run(name, [*_apt(*options), "download", *packages], folder=spool)


def _sources_of(name: str, suite: str, spool: Path) -> Sequence[str]:
    """apt's settings for that suite of the archive from which this machine has its own."""
    try:
        archive = SOURCES.read_text().split("\n\n")[0]
    except OSError as error:
        raise Unavailable(
            f"the environment {name} is made of packages of Debian's {suite}, which only a Debian can fetch: {error}"
        ) from error
    parts = spool / "sources"
    parts.mkdir()
    (parts / "debian.sources").write_text(re.sub(r"(?m)^Suites:.*$", f"Suites: {suite}", archive) + "\n")
    return ["Dir::Etc::SourceList=/dev/null", f"Dir::Etc::SourceParts={parts}"]


def _apt(*options: str) -> list[str]:
    # As root, apt would give up its rights before it writes, and could not reach a directory of root's.
    settings = ["APT::Sandbox::User=root", *options]
    return ["apt-get", "--quiet=2", *(word for setting in settings for word in ("--option", setting))]
