"""TLS without I/O: two sessions in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import Certificates

from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsFailure, TlsSession

MakePair = Callable[[], tuple[TlsSession, TlsSession]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def make_pair(certificates: Certificates) -> MakePair:
    listening = certificates.to_listen.listening_context()

    def make_pair() -> tuple[TlsSession, TlsSession]:
        client = certificates.to_dial.session_to("localhost")
        client.begin()
        return client, TlsSession(listening, None)

    return make_pair


def exchange(one: TlsSession, other: TlsSession) -> tuple[bytes, bytes]:
    """Exchange the output of both sessions; return what each received."""
    got_one, got_other = b"", b""
    while True:
        to_other, to_one = one.output(), other.output()
        if to_other:
            got_other += other.receive(to_other)
        if to_one:
            got_one += one.receive(to_one)
        if not (to_other or to_one):
            return got_one, got_other


def test_a_handshake_and_data_in_both_directions(make_pair: MakePair) -> None:
    client, server = make_pair()
    assert not client.established
    exchange(client, server)
    assert client.established
    assert server.established
    client.send(b"question")
    server.send(b"answer")
    assert exchange(client, server) == (b"answer", b"question")


def test_more_than_a_record_at_once(make_pair: MakePair) -> None:
    client, server = make_pair()
    exchange(client, server)
    data = bytes(range(256)) * 1000
    client.send(memoryview(data))
    encrypted = client.output()
    assert data not in encrypted
    assert server.receive(encrypted) == data


@given(cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_chunk_sizes_do_not_matter(make_pair: MakePair, cuts: list[int]) -> None:
    client, server = make_pair()
    data = bytes(range(256)) * 80
    got = b""
    sent = False
    while not (sent and len(got) == len(data)):
        if client.established and not sent:
            sent = True
            client.send(data)
        stream = client.output()
        while stream:
            size = cuts[len(stream) % len(cuts)]
            got += server.receive(stream[:size])
            stream = stream[size:]
        if answer := server.output():
            client.receive(answer)
    assert got == data


def test_the_close_of_the_peer_is_reported(make_pair: MakePair) -> None:
    client, server = make_pair()
    exchange(client, server)
    client.send(b"last words")
    client.end()
    client.end()
    assert exchange(client, server) == (b"", b"last words")
    assert server.peer_has_ended
    assert not client.peer_has_ended
    server.send(b"heard")
    server.end()
    assert exchange(client, server) == (b"heard", b"")
    assert client.peer_has_ended


def test_a_close_before_the_handshake_is_harmless(make_pair: MakePair) -> None:
    client, server = make_pair()
    client.end()
    server.end()
    assert not server.established


def test_a_peer_without_tls_is_detected_by_its_first_byte(make_pair: MakePair) -> None:
    for first in (b"\x00SP\x00\x00\x30\x00\x00", b"GET / HTTP/1.1\r\n", b"\xff"):
        for session in make_pair():
            with pytest.raises(TlsFailure, match="the peer does not speak TLS"):
                session.receive(first)


def test_a_flipped_bit_is_detected(make_pair: MakePair) -> None:
    client, server = make_pair()
    exchange(client, server)
    client.send(b"pay 10")
    spoilt = bytearray(client.output())
    spoilt[-1] ^= 1
    with pytest.raises(TlsFailure, match=r"TLS failed: .*bad record mac"):
        server.receive(bytes(spoilt))
    with pytest.raises(TlsFailure, match="the peer refused TLS: bad record mac"):
        client.receive(server.output())


@given(garbage=st.binary(min_size=1, max_size=400))
def test_garbage_fails_or_waits_for_more(make_pair: MakePair, garbage: bytes) -> None:
    for session in make_pair():
        with suppress(TlsFailure):
            assert session.receive(b"\x16" + garbage) == b""
        assert not session.established


@given(garbage=st.binary(min_size=1, max_size=400))
def test_garbage_after_the_handshake_yields_nothing(make_pair: MakePair, garbage: bytes) -> None:
    client, server = make_pair()
    exchange(client, server)
    for session in (client, server):
        with suppress(TlsFailure):
            assert session.receive(garbage) == b""


def test_a_zone_is_not_part_of_a_name(certificates: Certificates, tmp_path: Path) -> None:
    server = TlsSession(certificates.to_listen.listening_context(), None)
    client = TlsSettings(ca=certificates.ca).session_to("::1%lo")
    client.begin()
    exchange(client, server)
    assert client.established
