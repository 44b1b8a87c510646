"""Debian packages inside an environment: fetched with apt, unpacked under `debian/`, never installed on the machine.

Only the packages that are listed are fetched, whatever the machine has, so that the result is the same everywhere.
Nothing here needs root, and nothing outside the environment is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.environments_step import Unavailable, run, tell

TREE = "debian"
NEEDS = ("apt-get", "dpkg-deb")


def unpack(name: str, packages: Sequence[str], directory: Path) -> None:
    """Puts the packages' files under `debian/` in the environment; `package=version*` pins one."""
    spool = directory / "packages"
    spool.mkdir()
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
        state = spool / "apt"
        (state / "lists" / "partial").mkdir(parents=True)
        options = [f"Dir::State::Lists={state / 'lists'}", f"Dir::Cache={state}", "Acquire::Languages=none"]
        run(name, [*_apt(*options), "update"], folder=spool)
        run(name, [*_apt(*options), "download", *packages], folder=spool)


def _apt(*options: str) -> list[str]:
    # As root, apt would give up its rights before it writes, and could not reach a directory of root's.
    settings = ["APT::Sandbox::User=root", *options]
    return ["apt-get", "--quiet=2", *(word for setting in settings for word in ("--option", setting))]
