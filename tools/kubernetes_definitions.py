"""Make src/trainmaster/cluster/data/definitions.json.gz: the types of Kubernetes' own kinds, for /openapi.

The source is `_definitions.json` of the package kubernetes-validate (Apache 2.0, from Kubernetes' swagger file, also
Apache 2.0). That package turned swagger into JSON Schema; this undoes it (null types, invented enums), drops the
groups that the embedded cluster does not serve, and cuts descriptions to what `kubectl explain` is read for.

    pip download --no-deps kubernetes-validate==1.37.0 && unzip …whl '*v1.32.0-local/_definitions.json'
    python tools/kubernetes_definitions.py PATH/_definitions.json src/trainmaster/cluster/data/definitions.json.gz
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

KEPT = re.compile(
    r"^io\.k8s\.(api\.(admissionregistration|apps|authentication|authorization|autoscaling|batch|certificates|coordination"
    r"|core|discovery|events|networking|node|policy|rbac|scheduling|storage)\.v[12]\."
    r"|apimachinery\.|apiextensions-apiserver\.|kube-aggregator\.)"
)
LIMIT = 240
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "description": "A number or a string such as a port's name or a percentage.",
        "format": "int-or-string",
        "type": "string",
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "description": "An amount such as 500m, 2 or 4Gi.",
        "type": "string",
    },
}


def shorten(text: str) -> str:
    """The first sentences, up to the limit: enough to know what a field is for."""
    text = " ".join(re.sub(r"More info: \S+", "", text).split())
    if len(text) <= LIMIT:
        return text
    cut = text[:LIMIT]
    end = max(cut.rfind(". "), cut.rfind("; "))
    return cut[: end + 1] if end > 60 else cut[: cut.rfind(" ")] + " …"


def restore(schema: dict[str, Any]) -> dict[str, Any]:
    """One JSON Schema node turned back into the swagger node it was made from."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "description":
            made[key] = shorten(value)
        elif key == "type":
            made[key] = value if isinstance(value, str) else next(name for name in value if name != "null")
        elif key == "$ref":
            made[key] = value.replace("#/$defs/", "#/definitions/")
        elif key == "properties":
            made[key] = {name: restore(field) for name, field in value.items()}
        elif key in ("items", "additionalProperties"):
            made[key] = restore(value) if isinstance(value, dict) else value
        elif key != "enum":
            made[key] = value
    return made


def main(source: str, target: str) -> None:
    types = json.loads(Path(source).read_bytes())["$defs"]
    kept = {name: SPECIAL.get(name) or restore(types[name]) for name in sorted(types) if KEPT.match(name)}
    missing = set(re.findall(r"#/definitions/([\w.-]+)", json.dumps(kept))) - set(kept)
    if missing:
        raise SystemExit(f"referred to but not kept: {', '.join(sorted(missing))}")
    data = json.dumps(kept, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    Path(target).write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
