import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cluster.streams.spdy import (
    DICTIONARY,
    Data,
    Frame,
    Framer,
    GoAway,
    Headers,
    Ping,
    ProtocolError,
    RstStream,
    Settings,
    SynReply,
    SynStream,
    WindowUpdate,
)

stream_ids = st.integers(1, 2**31 - 1)
texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
headers = st.dictionaries(texts.filter(bool).map(str.lower), texts, max_size=4)
frames = st.one_of(
    st.builds(SynStream, stream_ids, headers, st.booleans()),
    st.builds(SynReply, stream_ids, headers, st.booleans()),
    st.builds(RstStream, stream_ids, st.integers(1, 11)),
    st.builds(Settings, st.none() | st.integers(0, 2**31 - 1)),
    st.builds(Ping, st.integers(0, 2**32 - 1)),
    st.builds(GoAway, st.integers(0, 2**31 - 1), st.integers(0, 2)),
    st.builds(Headers, stream_ids, headers, st.booleans()),
    st.builds(WindowUpdate, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
    st.builds(Data, stream_ids, st.binary(max_size=300), st.booleans()),
)


def test_the_dictionary_is_the_one_of_the_specification():
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_the_wire_however_it_is_cut(sent, cuts):
    sender, receiver = Framer(), Framer()
    wire = b"".join(sender.encode(frame) for frame in sent)

    received: list[Frame] = []
    sizes = itertools.cycle(cuts)
    while wire:
        size = next(sizes)
        received += receiver.feed(wire[:size])
        wire = wire[size:]

    assert received == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_protocol_error(garbage):
    framer = Framer()

    try:
        received = list(framer.feed(garbage))
    except ProtocolError:
        received = []

    assert all(frame is not None for frame in received)


@given(st.integers(0, 20), st.binary(max_size=60))
def test_a_control_frame_of_any_content_is_read_or_refused(kind, payload):
    framer = Framer()
    wire = b"\x80\x03" + kind.to_bytes(2, "big") + b"\0" + len(payload).to_bytes(3, "big") + payload

    try:
        received = list(framer.feed(wire))
    except ProtocolError:
        received = []

    assert len(received) <= 1


def test_a_stream_as_kubectl_opens_it_is_read():
    block = zlib.compressobj(zdict=DICTIONARY)
    plain = b"\0\0\0\2\0\0\0\x0aStreamtype\0\0\0\5error\0\0\0\4port\0\0\0\x0280"
    packed = block.compress(plain) + block.flush(zlib.Z_SYNC_FLUSH)
    payload = b"\0\0\0\5\0\0\0\0\0\0" + packed

    (frame,) = Framer().feed(b"\x80\x03\0\x01\0" + len(payload).to_bytes(3, "big") + payload)

    assert frame == SynStream(5, {"streamtype": "error", "port": "80"})


@pytest.mark.parametrize(
    ("wire", "told"),
    [
        pytest.param(b"\x80\x02\0\x01\0\0\0\0", "SPDY version 2 instead of 3", id="version"),
        pytest.param(b"\x80\x03\0\x01\0\xff\xff\xff", "a control frame of 16777215 bytes", id="size"),
        pytest.param(b"\x80\x03\0\x03\0\0\0\x02ab", "malformed control frame of type 3", id="too short"),
        pytest.param(b"\x80\x03\0\x02\0\0\0\x08\0\0\0\1abcd", "malformed control frame of type 2", id="not compressed"),
    ],
)
def test_what_is_wrong_is_said(wire, told):
    framer = Framer()

    with pytest.raises(ProtocolError, match=told):
        list(framer.feed(wire))


def test_headers_that_inflate_without_end_are_refused():
    block = zlib.compressobj(zdict=DICTIONARY)
    packed = block.compress(bytes(64 << 20)) + block.flush(zlib.Z_SYNC_FLUSH)
    payload = b"\0\0\0\1" + packed

    with pytest.raises(ProtocolError, match="headers larger than"):
        list(Framer().feed(b"\x80\x03\0\x02\0" + len(payload).to_bytes(3, "big") + payload))


def test_unknown_kinds_of_frames_are_passed_over():
    framer = Framer()

    received = list(framer.feed(b"\x80\x03\0\x63\0\0\0\x03abc" + Framer().encode(Ping(1))))

    assert received == [Ping(1)]


def test_frames_before_a_bad_one_are_kept():
    framer = Framer()
    frames = framer.feed(Framer().encode(Ping(1)) + b"\x80\x02\0\x01\0\0\0\0")

    assert next(frames) == Ping(1)
    with pytest.raises(ProtocolError):
        next(frames)
