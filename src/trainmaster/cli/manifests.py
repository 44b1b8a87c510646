"""`trainmaster manifests`: the installation, as YAML."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trainmaster import frameworks
from trainmaster.cli.plan import rendered
from trainmaster.operator.install import Installation, crds, manifests, name_outside


def run(given: Mapping[str, Any], *, crds_only: bool) -> int:
    try:
        chosen = frameworks.enabled(given["schemes"])
    except frameworks.UnknownScheme as error:
        print(f"trainmaster manifests: {error}", file=sys.stderr)
        return 2
    installation = Installation(chosen, **given, name_outside=name_outside(given["namespace"]))
    objects = crds(chosen, cel=installation.cel) if crds_only else manifests(installation)
    print("\n---\n".join(rendered(item, "yaml") for item in objects))
    return 0
