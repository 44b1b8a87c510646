"""`trainmaster operator`: from flags to the running process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from trainmaster import frameworks
from trainmaster.api.settings import InitContainer, InitContainerMode
from trainmaster.kube import logs
from trainmaster.objects import yamldocument
from trainmaster.operator import hostports, main
from trainmaster.operator.options import Options

log = logs.get(__name__)


def run(
    options: Options,
    waiting: tuple[InitContainerMode, str | None, int, Path],
    ignored: Sequence[str],
    log_level: str,
    log_format: Literal["auto", "json", "text"],
) -> int:
    try:
        logs.setup(log_level, log_format)
        chosen = replace(options, init_container=_init_container(*waiting))
        frameworks.enabled(chosen.schemes)
        hostports.parse_range(chosen.port_range)
    except (logs.BadLevel, frameworks.UnknownScheme, hostports.BadRange, BadTemplate, OSError) as error:
        print(f"trainmaster operator: {error}", file=sys.stderr)
        return 2
    for flag in ignored:
        if flag.startswith("-"):
            log.warning("flag has no meaning here and is ignored", flag=flag.partition("=")[0])
    return main.run(chosen)


class BadTemplate(ValueError):
    """The file given for init containers is none."""


def _checked(template: Path) -> str:
    """Better to stop now than to fail on every worker later."""
    text = template.read_text()
    try:
        containers = yamldocument.document(text.replace("{{", "").replace("}}", ""))
    except yamldocument.BadYaml as error:
        raise BadTemplate(f"{template}: not valid YAML: {error}") from error
    if not isinstance(containers, list) or not all(isinstance(c, dict) and c.get("name") for c in containers):
        raise BadTemplate(f"{template}: must be a list of containers, each with a name")
    return text


def _init_container(mode: InitContainerMode, image: str | None, tries: int, template: Path) -> InitContainer:
    """Who names an image wants that image; who supplies a template wants that template."""
    text = _checked(template) if template.exists() else ""
    if image is None:
        return InitContainer(mode=mode, max_tries=tries, template=text)
    return InitContainer(mode="always" if mode == "auto" else mode, image=image, max_tries=tries, template=text)
