"""The files of the image: the interpreter that runs this, the libraries it links, the packages we need, and our own.

Everything Python is laid out below /usr/local, whatever the machine has it: an interpreter finds its library beside
itself. Shared libraries go where the C library is, which the loader searches without being told.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

import trainmaster
from trainmaster.operator.install import NAME, USER

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = f"usr/local/lib/{VERSION}"
PACKAGES = site.getsitepackages(["/usr/local"])[-1].lstrip("/")
"""Where the interpreter looks for packages once it lies in /usr/local: Debian's looks in dist-packages."""

LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "config-*", "*.a", "_test*", "_tkinter*"),
    *("idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "_ctypes_test*", "xxlimited*"),
)
"""Of the standard library: what is for developers, or has its own interpreter's remains in it."""

LOOKED_UP = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
"""Opened by name while a host name is looked up, on machines whose C library does not have them built in."""

START = f"""\
#!/usr/local/bin/{VERSION}
import sys

from trainmaster.cli import main

sys.exit(main())
"""


class Missing(RuntimeError):
    """Something that the image needs and this machine lacks."""


def stage_system(root: Path) -> None:
    """Python, what it links, and the packages we depend on."""
    (root / "usr/local/bin").mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), root / "usr/local/bin" / VERSION)
    (root / "usr/local/bin/python3").symlink_to(VERSION)
    shutil.copytree(Path(sysconfig.get_path("stdlib")), root / LIBRARY, ignore=LEFT_OUT)
    for found in needed(NAME):
        _copy_package(found, root / PACKAGES)
    _copy_libraries(root)
    _copy_accounts(root)
    _compile(root)


def stage_application(root: Path) -> None:
    """Our own code, and the metadata by which it knows its version and its plugins."""
    source = Path(trainmaster.__file__).parent
    shutil.copytree(source, root / PACKAGES / NAME, ignore=shutil.ignore_patterns("__pycache__"))
    found = distribution(NAME)
    place = root / PACKAGES / f"{NAME}-{found.version}.dist-info"
    place.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (place / name).write_text(found.read_text(name) or "")
    start = root / "usr/local/bin" / NAME
    start.parent.mkdir(parents=True, exist_ok=True)
    start.write_text(START)
    start.chmod(0o755)
    _compile(root)


def needed(name: str) -> Iterator[Distribution]:
    """All packages that this one needs in this environment, and those that they need; each once."""
    waiting, seen = [name], {name}
    while waiting:
        found = distribution(waiting.pop())
        if found.name != name:
            yield found
        for line in found.requires or ():
            requirement = Requirement(line)
            is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_wanted and requirement.name.lower() not in seen:
                seen.add(requirement.name.lower())
                waiting.append(requirement.name)


def _copy_package(found: Distribution, packages: Path) -> None:
    if found.files is None:
        raise Missing(f"{found.name} does not say which files it has; install it with pip")
    for file in found.files:
        is_local = ".." not in file.parts and "__pycache__" not in file.parts
        if is_local and file.suffix != ".pyc":
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(found.locate_file(file)), target)


def _copy_libraries(root: Path) -> None:
    """Everything that the interpreter and its extensions link, and what that links in turn."""
    binaries = [root / "usr/local/bin" / VERSION, *sorted((root / "usr/local/lib").rglob("*.so*"))]
    found = dict(sorted(_linked(binaries)))
    if "libc.so.6" not in found:
        raise Missing("ldd does not say where libc.so.6 is; the image can be made on Linux with glibc only")
    home = found["libc.so.6"].parent
    for name in LOOKED_UP:
        if (home / name).exists():
            found[name] = home / name
    for name, path in found.items():
        place = path if name.startswith("ld-") else home / name
        target = root / place.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.resolve(), target)
        target.chmod(0o755)


LINKED = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x", re.MULTILINE)


def _linked(binaries: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for binary in binaries:
        done = subprocess.run(["ldd", str(_original(binary))], capture_output=True, text=True, check=False)
        for match in LINKED.finditer(done.stdout):
            path = Path(match["path"])
            if Path(PACKAGES).name not in path.parts:  # what a package brings itself lies in its own directory
                yield Path(match["name"] or path.name).name, path


def _original(binary: Path) -> Path:
    """The interpreter where the machine has it: its own library may be found only from there."""
    return Path(sys.executable).resolve() if binary.name == VERSION else binary


def _copy_accounts(root: Path) -> None:
    files = {
        "passwd": f"root:x:0:0::/:/sbin/nologin\n{NAME}:x:{USER}:{USER}::/:/sbin/nologin\n",
        "group": f"root:x:0:\n{NAME}:x:{USER}:\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    (root / "etc").mkdir()
    for name, text in files.items():
        (root / "etc" / name).write_text(text)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _compile(root: Path) -> None:
    """Nothing can be written when it runs, so it is compiled now; by content, not by date, and always the same."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    where = ["-s", str(root), "-p", "/", str(root / LIBRARY)]
    subprocess.run([*command, *where], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
