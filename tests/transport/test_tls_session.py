"""TLS without I/O: two sessions in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import Certificates
from tests.support.tls13 import Tls13Writer, established

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
        client, server = make_pair()
        client.output()
        for session in (client, server):
            with pytest.raises(TlsFailure, match="the peer does not speak TLS"):
                session.receive(first)
        # Only the listener answers: its peer may be a client that reads a reason.
        assert client.output() == b""
        assert server.output() == bytes.fromhex("15030300 02 020a")


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


# --- floods ---------------------------------------------------------------------------------------
@pytest.fixture
def flooded(certificates: Certificates, tmp_path: Path) -> tuple[TlsSession, Tls13Writer]:
    """A listener's session, and a peer that writes its records by hand."""
    server = TlsSession(certificates.to_listen.listening_context(), None)
    return server, established(certificates.to_dial, server, tmp_path / "log")


def feed(session: TlsSession, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each chunk."""
    for chunk in chunks:
        yield session.receive(chunk)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("per_chunk", [1, 100, 2000])
def test_a_flood_of_key_updates_ends_the_session(
    flooded: tuple[TlsSession, Tls13Writer], asks: bool, per_chunk: int
) -> None:
    server, writer = flooded
    sizes: list[int] = []

    def flood() -> Iterator[bytes]:
        while sum(sizes) < 1 << 20:
            yield b"".join(writer.key_update(asks) for _ in range(per_chunk))

    def measured() -> Iterator[bytes]:
        for chunk in flood():
            sizes.append(len(chunk))
            yield chunk

    with pytest.raises(TlsFailure, match=r"sent \d+ bytes of TLS messages without data"):
        assert not any(feed(server, measured()))
    assert sum(sizes[:-1]) <= 33 << 10


def test_a_byte_of_data_does_not_excuse_a_flood(flooded: tuple[TlsSession, Tls13Writer]) -> None:
    server, writer = flooded

    def flood() -> Iterator[bytes]:
        for _ in range(100):
            yield b"".join(writer.key_update() for _ in range(100)) + writer.record(b"x")

    with pytest.raises(TlsFailure, match="without data"):
        assert all(feed(server, flood()))


def test_key_updates_among_data_are_accepted(flooded: tuple[TlsSession, Tls13Writer]) -> None:
    server, writer = flooded
    for _ in range(2000):
        assert server.receive(writer.key_update(True) + writer.record(bytes(64))) == bytes(64)


def test_the_smallest_records_are_accepted(flooded: tuple[TlsSession, Tls13Writer]) -> None:
    server, writer = flooded
    for _ in range(50):
        chunk = b"".join(writer.record(b"x") for _ in range(100))
        assert len(server.receive(chunk)) == 100


def test_empty_records_are_refused(flooded: tuple[TlsSession, Tls13Writer]) -> None:
    server, writer = flooded
    with pytest.raises(TlsFailure, match="TLS failed"):
        server.receive(b"".join(writer.record(b"") for _ in range(100)))


def test_the_largest_record_may_arrive_byte_by_byte(
    flooded: tuple[TlsSession, Tls13Writer],
) -> None:
    server, writer = flooded
    record = writer.record(bytes(1 << 14))
    got = [server.receive(record[at : at + 1]) for at in range(len(record))]
    assert b"".join(got) == bytes(1 << 14)


def test_a_handshake_that_never_ends_is_refused(certificates: Certificates) -> None:
    """A record may announce 65,535 bytes, four times the maximum."""
    server = TlsSession(certificates.to_listen.listening_context(), None)
    with pytest.raises(TlsFailure):
        assert not any(feed(server, [b"\x16\x03\x01\xff\xff" + bytes(2000)] * 100))


def test_a_zone_is_not_part_of_a_name(certificates: Certificates, tmp_path: Path) -> None:
    server = TlsSession(certificates.to_listen.listening_context(), None)
    client = TlsSettings(ca=certificates.ca).session_to("::1%lo")
    client.begin()
    exchange(client, server)
    assert client.established
