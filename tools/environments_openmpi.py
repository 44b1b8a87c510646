"""Open MPI from Debian's packages, made to work from the environment instead of from `/usr`.

In the place of every program lies a script that sets what Open MPI needs to find itself. `mpirun` reaches other hosts
through an agent, which may start `orted` there with an empty environment; with the script it comes up all the same, and
the ranks below it find `python`, libmpi and its plugins.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tools.environments_debian import TREE, libraries

SETTINGS = """\
# Pods are hosts to MPI, yet share the machine: TCP between all ranks, as shared memory is named after the host alone;
# no binding to cores, or every pod would take the first one.
pml = ob1
btl = self,tcp
hwloc_base_binding_policy = none
# The plugins for fast networks are here, the libraries that they need are not.
mca_base_component_show_load_errors = 0
"""


def arrange(name: str, directory: Path, wanted: str) -> None:
    """`bin/` gets Open MPI's programs; they work with no more than a shell."""
    tree = directory / TREE
    (tree / "etc" / "openmpi" / "openmpi-mca-params.conf").write_text(SETTINGS)
    variables = tree / "variables.sh"
    variables.write_text(_variables(directory))
    # mpirun starts `$OPAL_PREFIX/bin/orted` elsewhere: what is called bin has to be the scripts.
    scripts = tree / "usr" / "bin"
    programs = scripts.rename(tree / "usr" / "programs")
    scripts.mkdir()
    for program in sorted(programs.iterdir()):
        script = scripts / program.name.removesuffix(".openmpi")
        script.write_text(f'#!/bin/sh\n. {shlex.quote(str(variables))}\nexec {shlex.quote(str(program))} "$@"\n')
        script.chmod(0o755)
        (directory / "bin" / script.name).symlink_to(script)


def _variables(directory: Path) -> str:
    found = libraries(directory)
    values = {
        "OPAL_PREFIX": directory / TREE / "usr",
        "OPAL_SYSCONFDIR": directory / TREE / "etc" / "openmpi",
        "PMIX_LIBDIR": found / "pmix2" / "lib",
        "PMIX_DATADIR": found / "pmix2" / "share",
    }
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in values.items()]
    before = {"PATH": directory / "bin", "LD_LIBRARY_PATH": found}
    lines += [f"export {name}={shlex.quote(str(value))}${{{name}:+:${name}}}" for name, value in before.items()]
    return "\n".join(lines) + "\n"
