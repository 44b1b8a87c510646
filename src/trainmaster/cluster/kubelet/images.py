"""Container images are not pulled: their names are mapped to environments of this machine.

The mapping is in `trainmaster.yaml`, beside the manifest or in the current directory:

    images:
    - match: "docker.io/kubeflow/*"        # glob
      python: ./venv                       # a virtual environment, a directory with bin/, or an interpreter
      files: {"/var/tf_mnist": ./src}      # what the image has at a path -> what lies there on this machine
      entrypoint: ["python", "/examples/train.py"]
      command: ["--epochs", "1"]           # given to the entrypoint when the container has no args
      env: {OMP_NUM_THREADS: "1"}
      workdir: /examples
      sshd: real                           # ssh and sshd of this machine instead of the cluster's own

Only `match` is needed. Where several entries match, each says what it says; where they disagree, the longest pattern
wins, and of equal ones the last (`--image` comes last). A pattern without a tag matches every tag, and `docker.io/` may
be left out as with Docker.
On the command line, `--image PATTERN=VALUE` gives a directory with bin/, a virtual environment, an interpreter, or a
quoted command line that is the entrypoint. Relative paths start at the file, or at the current directory for `--image`.

Some images the cluster itself knows, below all other mappings. An image that nothing maps runs the container's command
with this Python's programs first on PATH. `images_config` reads the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.cluster.kubelet.images_config import ImageError, ImageMapping, mappings_of, parse_option

__all__ = ["UNPULLED", "ImageError", "ImageMapping", "Images", "ResolvedImage", "parse_option"]

UNPULLED = "is not pulled here"
"""Known by these words wherever the message turns up."""


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """What a container of this image starts with. `match` is the pattern of its mapping, if it has one."""

    image: str
    path_prefix: tuple[Path, ...]
    overlays: Mapping[str, Path] = field(default_factory=dict)
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    match: str = ""
    has_own_ssh: bool = False

    def argv(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """What runs, by Docker's rules: a command replaces entrypoint and cmd of the image, args replace its cmd.

        `[""]` is what some generators write for no command.
        """
        if command and list(command) != [""]:
            return [*command, *args]
        is_known = self.entrypoint is not None or bool(self.cmd)
        argv = [*(self.entrypoint or ()), *(args or self.cmd)]
        if not is_known or not argv:  # args alone do not tell what an unknown image would start with them
            raise ImageError(self._remedy())
        return argv

    @property
    def is_mapped(self) -> bool:
        return bool(self.match)

    def _remedy(self) -> str:
        why = f"the container has no command, image {self.image} {UNPULLED}, and"
        if self.is_mapped:
            told = f"{why} the entry for it gives no entrypoint. Add the last line to that entry in trainmaster.yaml:"
        else:
            told = f"{why} no entry for it says what to run. Add to trainmaster.yaml:\nimages:"
        line = '  entrypoint: ["python", "train.py"]  # what the image would start'
        return f'{told}\n- match: "{self.match or self.image}"\n{line}'


BUILT_IN = (ImageMapping("*kubectl-delivery*", entrypoint=("kubectl-delivery",)),)
"""Images whose work the cluster does itself (`toolbox`)."""


class Images:
    """Which environment an image stands for. Later mappings win over earlier ones that are as long."""

    def __init__(self, mappings: Sequence[ImageMapping] = ()) -> None:
        self.mappings = tuple(mappings)

    @classmethod
    def from_config(cls, data: Mapping[str, Any] | None, file: Path) -> Images:
        """From the parsed content of a `trainmaster.yaml`, whatever its name; relative paths start beside it."""
        return cls(mappings_of(data, file))

    def resolve(self, image: str) -> ResolvedImage:
        # Sorting is stable: of patterns as long as each other, the later one has the last word.
        found = sorted((m for m in self.mappings if m.matches(image)), key=lambda mapping: len(mapping.match))
        known = [mapping for mapping in BUILT_IN if mapping.matches(image)]
        resolved = ResolvedImage(image, (Path(sys.executable).parent,))
        for mapping in (*known, *found):
            resolved = ResolvedImage(
                image,
                mapping.path_prefix or resolved.path_prefix,
                {**resolved.overlays, **mapping.overlays},
                resolved.entrypoint if mapping.entrypoint is None else mapping.entrypoint,
                mapping.cmd or resolved.cmd,
                {**resolved.env, **mapping.env},
                mapping.workdir or resolved.workdir,
                match=mapping.match,
                has_own_ssh=resolved.has_own_ssh if mapping.has_own_ssh is None else mapping.has_own_ssh,
            )
        return resolved
