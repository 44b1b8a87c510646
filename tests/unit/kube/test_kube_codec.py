"""Bytes to values: what is kept, what is dropped, what is said of what does not fit."""

from __future__ import annotations

import gc

import pytest
from msgspec import Raw

from trainmaster.kube import codec, errors
from trainmaster.objects.meta import Object
from trainmaster.objects.pod import Pod

GOOD = b'{"kind": "Pod", "metadata": {"name": "a", "namespace": "n", "resourceVersion": "3"}, "spec": {"x": 1}}'
ODD = b'{"kind": "Pod", "metadata": {"name": "odd", "namespace": "n"}, "status": {"phase": 3}}'


def test_raw_parts_are_copied_out_of_their_buffer() -> None:
    decoded = codec.decode(GOOD, Object)

    assert bytes(decoded.spec) == b'{"x": 1}'
    assert len(bytes(memoryview(decoded.spec).obj)) == len(b'{"x": 1}')
    assert bytes(decoded.status) == b""


def test_one_odd_object_does_not_hide_the_others() -> None:
    values, failures = codec.decode_each([Raw(GOOD), Raw(ODD)], Pod)

    assert [pod.name for pod in values] == ["a"]
    assert list(failures) == ["n/odd"]
    assert "Pod n/odd is not a Pod" in str(failures["n/odd"])


def test_page_with_an_odd_object_is_refused() -> None:
    with pytest.raises(errors.Undecodable, match="n/odd"):
        codec.decode_page(b'{"items": [%s, %s]}' % (GOOD, ODD), Pod)


def test_collector_is_left_as_it_was() -> None:
    gc.disable()
    try:
        codec.decode_page(b'{"items": [%s]}' % GOOD, Pod)
        assert not gc.isenabled()
    finally:
        gc.enable()
    codec.decode_page(b'{"items": [%s]}' % GOOD, Pod)
    assert gc.isenabled()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"metadata": 3}'])
def test_head_of_anything_is_a_head(content: bytes) -> None:
    assert codec.head_of(content) == codec.Head()


def test_head_takes_null_for_absent() -> None:
    head = codec.head_of(b'{"kind": null, "metadata": {"name": "a", "namespace": null, "finalizers": null}}')

    assert head.metadata.key == "a"


def test_bytes_are_sent_as_they_are() -> None:
    assert codec.encode(b"as it is") == b"as it is"
    assert codec.encode({"a": 1}) == b'{"a":1}'
