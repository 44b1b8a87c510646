"""Request bodies of Go clients."""

from __future__ import annotations

import pytest

from trainmaster.cluster.server import protobuf


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, *content: bytes | str) -> bytes:
    data = b"".join(each.encode() if isinstance(each, str) else each for each in content)
    return varint(field << 3 | 2) + varint(len(data)) + data


def envelope(version: str, kind: str, *fields: bytes) -> bytes:
    return b"k8s\x00" + part(1, part(1, version), part(2, kind)) + part(2, *fields)


def test_fields_come_out_under_their_json_names():
    body = envelope(
        "v1",
        "ConfigMap",
        part(1, part(1, "c"), part(3, "ns"), part(11, part(1, "a"), part(2, "b"))),
        part(2, part(1, "key"), part(2, "value")),
        part(3, part(1, "bin"), part(2, b"\x00\x01")),
        number(4, 1),
    )

    assert protobuf.decode(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "ns", "labels": {"a": "b"}},
        "data": {"key": "value"},
        "binaryData": {"bin": "AAE="},
        "immutable": True,
    }


def test_zero_is_kept_where_go_has_a_pointer_and_dropped_where_it_has_not():
    body = envelope("apps/v1", "Deployment", part(2, number(1, 0), number(5, 0), number(7, 0), number(9, 0)))

    assert protobuf.decode(body)["spec"] == {"replicas": 0, "progressDeadlineSeconds": 0}


def test_target_port_that_was_not_set_is_not_zero():
    body = envelope("v1", "Service", part(2, part(1, number(3, 80), part(4, number(1, 0), number(2, 0)))))

    assert protobuf.decode(body)["spec"]["ports"] == [{"port": 80}]


def test_inlined_messages_lie_in_their_parent():
    source = part(2, part(19, part(1, part(1, "settings"))))
    body = envelope("v1", "Pod", part(2, part(1, part(1, "v"), source)))

    assert protobuf.decode(body)["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "settings"}}]


def test_numbers_or_text_quantities_and_times_are_what_json_has():
    plain = part(1, number(3, 80), part(4, number(1, 0), number(2, 8080)))
    named = part(1, number(3, 81), part(4, number(1, 1), part(3, "http")))
    service = envelope("v1", "Service", part(1, part(8, number(1, 1_700_000_000))), part(2, plain, named))
    quota = envelope("v1", "ResourceQuota", part(2, part(1, part(1, "cpu"), part(2, part(1, "500m")))))

    decoded = protobuf.decode(service)

    assert decoded["metadata"] == {"creationTimestamp": "2023-11-14T22:13:20Z"}
    assert decoded["spec"]["ports"] == [{"port": 80, "targetPort": 8080}, {"port": 81, "targetPort": "http"}]
    assert protobuf.decode(quota)["spec"]["hard"] == {"cpu": "500m"}


def test_negative_numbers_and_unknown_fields_are_read_past():
    body = envelope("scheduling.k8s.io/v1", "PriorityClass", number(2, -5), part(99, "of the future"))

    assert protobuf.decode(body)["value"] == -5


def test_schemas_of_definitions_keep_their_shapes():
    extra = part(30, number(1, 1))
    items = part(24, part(1, part(5, "string")))
    default = part(8, part(1, '{"a":1}'))
    version = part(7, part(1, "v1"), part(4, part(1, part(5, "object"), extra, items, default)))
    body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", part(2, version))

    schema = protobuf.decode(body)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema == {
        "type": "object",
        "additionalProperties": True,
        "items": {"type": "string"},
        "default": {"a": 1},
    }


def test_delete_options_belong_to_every_group():
    body = envelope("apps/v1", "DeleteOptions", number(1, 0), part(4, "Foreground"))

    decoded = protobuf.decode(body)

    assert (decoded["gracePeriodSeconds"], decoded["propagationPolicy"]) == (0, "Foreground")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="not protobuf"),
        pytest.param(b"k8s\x00", id="nothing inside"),
        pytest.param(b"k8s\x00\xff\xff", id="cut off"),
        pytest.param(envelope("v1", "Sofa"), id="unknown kind"),
        pytest.param(envelope("v1", "Pod", number(1, 5)), id="number for a message"),
        pytest.param(envelope("v1", "Pod", b"\x0a\x7f"), id="length beyond the end"),
        pytest.param(envelope("v1", "Pod", part(1, part(1, b"\xff"))), id="text that is not UTF-8"),
        pytest.param(envelope("v1", "Pod", b"\x80" * 12), id="endless number"),
    ],
)
def test_broken_bytes_are_a_value_error(body: bytes):
    with pytest.raises(ValueError, match="."):
        protobuf.decode(body)
