"""Run the tests that depend on the sandbox on the other machines that people have. Needs root.

    python -m tools.machines [MACHINE…]

On one of them namespaces are forbidden, one has an ordinary user, and one has both, as notebook servers do. The user is
made once; its clone and virtual environment stay in its home, so that the next run installs nothing.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
USER = "trainmaster-test"
CLONE = "trainmaster"
NEEDS = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
PYTHONS = (os.environ.get("PYTHON", ""), "/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    is_confined: bool
    has_user: bool

    @property
    def confinement(self) -> list[str]:
        """Of `tools.confined`."""
        user = ["--user", USER] if self.has_user else []
        return [*user, *([] if self.is_confined else ["--allow-namespaces"])]


MACHINES = (
    Machine("no-namespaces", is_confined=True, has_user=False),
    Machine("user", is_confined=False, has_user=True),
    Machine("user-no-namespaces", is_confined=True, has_user=True),
)


class Unavailable(Exception):
    """A machine that cannot be had here; the message says what to do."""


def main() -> int:
    names = [machine.name for machine in MACHINES]
    parser = argparse.ArgumentParser(prog="python -m tools.machines", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("machine", nargs="*", help=f"{', '.join(names)} (default: all of them)")
    chosen = parser.parse_args().machine
    if unknown := set(chosen) - set(names):
        parser.error(f"no machine is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    try:
        if os.geteuid() != 0:
            raise Unavailable("only root can play other users; run the tests themselves: make test")
        return max([run(machine) for machine in MACHINES if not chosen or machine.name in chosen])
    except Unavailable as error:
        sys.stderr.write(f"python -m tools.machines: {error}\n")
        return 1


def run(machine: Machine) -> int:
    """The exit code of the tests there."""
    sys.stdout.write(f"\n=== {machine.name}\n")
    sys.stdout.flush()
    began = time.monotonic()
    words = [*machine.confinement, "make"]
    if machine.has_user:
        user = the_user()
        clone = copied(user)
        words += ["-C", str(clone), f"PYTHON={python_of(user)}"]
    words += ["test-sandbox", *(["PYTEST=--no-namespaces"] if machine.is_confined else [])]
    code = subprocess.run([sys.executable, "-m", "tools.confined", *words], cwd=ROOT, check=False).returncode
    sys.stdout.write(f"=== {machine.name}: exit code {code} after {time.monotonic() - began:.0f} s\n")
    return code


def the_user() -> pwd.struct_passwd:
    """Made if it is not there."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        if shutil.which("useradd") is None:
            raise Unavailable(f"no useradd on PATH; make a user called {USER} with a home by other means") from None
        subprocess.run(["useradd", "--create-home", USER], check=True)
        return pwd.getpwnam(USER)


def copied(user: pwd.struct_passwd) -> Path:
    """A copy of this clone in the user's home. The virtual environment of an earlier copy is kept."""
    clone = Path(user.pw_dir, CLONE)
    clone.mkdir(exist_ok=True)
    for entry in clone.iterdir():
        if entry.name != ".venv":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    names = [name for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0") if name]
    for name in names:
        source, target = ROOT / name, clone / name
        if os.path.lexists(source):  # what is deleted, but not yet in a commit, is still listed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    subprocess.run(["chown", "-R", "--no-dereference", f"{USER}:", str(clone)], check=True)
    return clone


def python_of(user: pwd.struct_passwd) -> str:
    """An interpreter that this user may run: root's own often is not."""
    for python in filter(None, PYTHONS):
        if can_run(user, [python, "-c", NEEDS]):
            return python
    raise Unavailable(
        f"user {user.pw_name} may run no Python 3.11 that has its venv module: set PYTHON=… "
        "(Debian and Ubuntu have it in the package python3-venv)"
    )


def can_run(user: pwd.struct_passwd, command: Sequence[str]) -> bool:
    words = [sys.executable, "-m", "tools.confined", "--user", user.pw_name, "--allow-namespaces", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
