#!/usr/bin/env python3
"""A small mpirun: takes Open MPI's flags, reads its hostfile, and starts every rank through its remote shell agent.

As Open MPI's daemons do, ranks call home: each tells where it listens, and learns where all the others do.
"""

import os
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

VALUES = {"-np": 1, "-x": 1, "-bind-to": 1, "-map-by": 1, "-mca": 2}
"""How many words follow a flag."""

HOSTFILE, AGENT = "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_agent"


def parsed(words):
    """(flag, its words) of every flag, and the command."""
    flags = []
    while words and words[0].startswith("-"):
        flag, *words = words
        count = VALUES.get(flag, 0)
        flags.append((flag, words[:count]))
        words = words[count:]
    return flags, words


def slots(hostfile):
    """A host for every slot, in the order of the file."""
    found = []
    for line in Path(hostfile).read_text().splitlines():
        host, *settings = line.split()
        count = dict(setting.split("=") for setting in settings)["slots"]
        found += [host] * int(count)
    return found


def exported(flags):
    names = [words[0] for flag, words in flags if flag == "-x"]
    pairs = [name.partition("=") for name in names]
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs}


def forward(rank):
    """What a rank says, a whole line at a time: two of them may speak at once."""
    for line in rank.stdout:
        os.write(sys.stdout.fileno(), line)


def main():
    flags, command = parsed(sys.argv[1:])
    [count] = [int(words[0]) for flag, words in flags if flag == "-np"]
    hosts = slots(os.environ[HOSTFILE])[:count]
    assert len(hosts) == count, f"{count} slots wanted, there are {len(hosts)}"
    with socket.create_server(("", 0)) as door:
        home = f"{meeting.own_address()}:{door.getsockname()[1]}"
        ranks = []
        for rank, host in enumerate(hosts):
            env = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": count, "HOME_ADDRESS": home, **exported(flags)}
            settings = [f"{name}={value}" for name, value in env.items() if value != ""]
            line = f"cd {shlex.quote(str(Path.cwd()))} && exec env {shlex.join([*settings, *command])}"
            ranks.append(subprocess.Popen([os.environ[AGENT], host, line], stdout=subprocess.PIPE))
        speakers = [threading.Thread(target=forward, args=(rank,)) for rank in ranks]
        for speaker in speakers:
            speaker.start()
        meeting.gather(door, count, lambda calls: [where for _, where in sorted(calls)])
    for speaker in speakers:
        speaker.join()
    return max(rank.wait() for rank in ranks)


sys.exit(main())
