"""The documents that kubectl explain, apply and diff read."""

from __future__ import annotations

import re
import struct
from typing import Any

import msgspec
import pytest

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.server import openapi_proto
from trainmaster.cluster.server.discovery import Discovery
from trainmaster.cluster.server.openapi import OpenApi

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What to train.",
            "properties": {
                "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "queue": {"type": "string", "nullable": True},
            },
        }
    },
}
JOB = Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", custom=True, schema=SCHEMA)


def documents(*custom: Kind) -> tuple[OpenApi, Kinds]:
    kinds = Kinds(BUILTIN)
    made = OpenApi(kinds, Discovery(kinds), "v1.32.0")
    for kind in custom:
        kinds.replace(kind.group, kind.plural, [kind])
    return made, kinds


def decoded(document: tuple[bytes, str] | None) -> Any:
    assert document is not None
    return msgspec.json.decode(document[0])


def fields(message: bytes) -> dict[int, list[Any]]:
    """A protobuf message as its fields by number, undecoded."""
    found: dict[int, list[Any]] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            value: Any = varint()
        else:
            size = 8 if wire == 1 else varint()
            value = message[position : position + size]
            position += size
        found.setdefault(number, []).append(value)
    return found


def test_v2_has_types_and_says_that_dry_run_is_understood():
    openapi, _ = documents()

    made = decoded(openapi.v2())

    patch = made["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Pod", "version": "v1"}
    assert "dryRun" in [parameter["name"] for parameter in patch["parameters"]]
    assert made["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["description"]


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_every_reference_leads_somewhere(version: str):
    openapi, _ = documents(JOB)
    texts = [openapi.v2()[0].decode()]
    if version == "v3":
        index = decoded(openapi.v3_index())["paths"]
        parts = [path.split("/")[1:] if path.startswith("apis/") else ["", "v1"] for path in index]
        found = [openapi.v3(group, name) for group, name in parts]
        texts = [document[0].decode() for document in found if document is not None]

    for text in texts:
        document = msgspec.json.decode(text)
        known = document.get("definitions") or document["components"]["schemas"]
        assert set(re.findall(r'"#/(?:definitions|components/schemas)/([^"]+)"', text)) <= set(known)


def test_custom_resource_brings_its_schema_to_both_versions():
    openapi, _ = documents(JOB)

    v2 = decoded(openapi.v2())["definitions"]["org.kubeflow.v1.PyTorchJob"]
    v3 = decoded(openapi.v3("kubeflow.org", "v1"))["components"]["schemas"]["org.kubeflow.v1.PyTorchJob"]

    spec = v2["properties"]["spec"]["properties"]
    assert spec == {
        "port": {"x-kubernetes-int-or-string": True},
        "template": {"x-kubernetes-preserve-unknown-fields": True},
        "queue": {},
    }
    assert v3["properties"]["spec"]["properties"]["queue"]["nullable"] is True
    assert v3["x-kubernetes-group-version-kind"] == [{"group": "kubeflow.org", "kind": "PyTorchJob", "version": "v1"}]


def test_index_changes_with_the_kinds():
    openapi, kinds = documents()
    before = openapi.v3_index()
    kinds.replace(JOB.group, JOB.plural, [JOB])

    after = openapi.v3_index()

    assert before[1] != after[1]
    assert "apis/kubeflow.org/v1" in decoded(after)["paths"]
    assert decoded(after)["paths"]["api/v1"] == decoded(before)["paths"]["api/v1"]


def test_v3_keeps_what_stands_beside_a_reference():
    openapi, _ = documents()

    schemas = decoded(openapi.v3("apps", "v1"))["components"]["schemas"]

    strategy = schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"]
    assert strategy["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}]
    assert strategy["x-kubernetes-patch-strategy"] == "retainKeys"


def test_protobuf_holds_every_definition_and_path():
    openapi, _ = documents(JOB)
    text = decoded(openapi.v2())

    top = fields(openapi.v2_proto()[0])

    types = [fields(entry)[1][0].decode() for entry in fields(top[9][0])[1]]
    paths = [fields(entry)[1][0].decode() for entry in fields(top[8][0])[2]]
    assert top[1] == [b"2.0"]
    assert sorted(types) == sorted(text["definitions"])
    assert sorted(paths) == sorted(text["paths"])


def test_protobuf_schema_carries_limits_enums_and_extensions():
    schema = {"type": "integer", "minimum": -1, "maxLength": 300, "enum": [1, "a"], "required": ["x"], "x-y": {"z": 1}}
    document = {"swagger": "2.0", "info": {"title": "t", "version": "v"}, "paths": {}, "definitions": {"T": schema}}

    entry = fields(fields(fields(openapi_proto.document(document))[9][0])[1][0])

    made = fields(entry[2][0])
    assert made[9] == [struct.pack("<d", -1)]
    assert made[11] == [300]
    assert [fields(each)[2] for each in made[20]] == [[b"1"], [b'"a"']]
    assert made[19] == [b"x"]
    assert fields(made[22][0])[1] == [b"integer"]
    assert fields(fields(made[31][0])[2][0])[2] == [b'{"z":1}']


def test_definitions_cover_every_built_in_kind():
    known = {
        (mark["group"], mark["version"], mark["kind"])
        for schema in definitions.load().values()
        for mark in schema.get("x-kubernetes-group-version-kind") or ()
    }

    assert [kind for kind in BUILTIN if (kind.group, kind.version, kind.kind) not in known] == []
