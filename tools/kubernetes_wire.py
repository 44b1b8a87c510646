"""Make src/trainmaster/cluster/data/wire.json.gz: which field of a Kubernetes object has which number in protobuf.

Go clients, kubectl's `create` commands among them, send built-in kinds in protobuf. The numbers and types are in the
`generated.proto` files of k8s.io/api, the JSON names and what is left out when empty in the tags of its Go types (both
Apache 2.0). Debian carries them, here unpacked under one directory:

    for each of golang-k8s-api-dev, golang-k8s-apimachinery-dev, golang-k8s-apiextensions-apiserver-dev:
        apt-get download it && dpkg-deb -x it ROOT
    python tools/kubernetes_wire.py ROOT src/trainmaster/cluster/data/wire.json.gz

A message is `{number: [JSON name, type, flags]}`; flags are r repeated, m map (type of its values), i inlined, z left
out when zero.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

PACKAGES = re.compile(
    r"k8s\.io/(api/(admissionregistration|apps|authentication|authorization|autoscaling|batch|certificates|coordination"
    r"|core|discovery|events|networking|node|policy|rbac|scheduling|storage)/v[12]"
    r"|apimachinery/pkg/(apis/meta/v1|runtime|api/resource|util/intstr)"
    r"|apiextensions-apiserver/pkg/apis/apiextensions/v1)$"
)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^ *(?:(optional|repeated) ([\w.]+)|map<string, ([\w.]+)>) (\w+) = (\d+)", re.MULTILINE)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
TAGGED = re.compile(r"^\s*(?:\w+\s+)?(\S+)\s+`[^`]*protobuf:\"\w+,(\d+),[^`]*`", re.MULTILINE)
JSON_TAG = re.compile(r'json:"([^"]*)"')

Tags = dict[tuple[str, int], tuple[str, bool, bool]]


def tags_of(package: Path) -> Tags:
    """By struct and number: JSON name (empty if inlined), left out when empty, is a pointer."""
    found: Tags = {}
    for file in package.glob("*.go"):
        if file.name.startswith(("generated", "zz_")) or file.name.endswith("_test.go"):
            continue
        for name, body in STRUCT.findall(file.read_text()):
            for match in TAGGED.finditer(body):
                tag = JSON_TAG.search(match.group(0))
                title, *options = (tag.group(1) if tag else "").split(",")
                pointer = match.group(1).startswith("*")
                found[name, int(match.group(2))] = (title, "omitempty" in options, pointer)
    return found


def messages_of(package: Path, name: str) -> dict[str, dict[str, list[str]]]:
    tags = tags_of(package)
    found: dict[str, dict[str, list[str]]] = {}
    for message, body in MESSAGE.findall((package / "generated.proto").read_text()):
        fields = found[f"{name}.{message}"] = {}
        for label, plain, mapped, title, number in FIELD.findall(body):
            kind = (plain or mapped).lstrip(".")
            if "." not in kind and kind[0].isupper():
                kind = f"{name}.{kind}"
            shown, omitted, pointer = tags.get((message, int(number)), (title, False, False))
            flags = (
                "r" * (label == "repeated") + "m" * bool(mapped) + "i" * (not shown) + "z" * (omitted and not pointer)
            )
            fields[number] = [shown, kind, flags]
    return found


def main(root: str, target: str) -> None:
    known: dict[str, dict[str, list[str]]] = {}
    base = Path(root) / "usr/share/gocode/src"
    for proto in sorted(base.rglob("generated.proto")):
        place = str(proto.parent.relative_to(base))
        if PACKAGES.fullmatch(place):
            known |= messages_of(proto.parent, place.replace("/", "."))
    data = json.dumps(known, separators=(",", ":"), sort_keys=True).replace("k8s.io.", "").encode()
    Path(target).write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
