"""Feed ZMTP connections coverage-guided garbage.

    python -m fuzz.drive fuzz_zmtp DIRECTORY [libFuzzer options]

An input is a byte that chooses socket type and mechanism, a byte that chooses the chunk size, and
the stream. Checks for each input: only `RemoteViolation` is raised; the chunk size changes neither
the messages nor the end; each delivered message can be sent on, and is received unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from requite.errors import RemoteViolation
from requite.framing import (
    Limits,
    Mechanism,
    Null,
    PlainClient,
    PlainServer,
    SocketType,
    Zmtp,
    known_users,
)
from requite.framing.zmtp_command import encode_command, encode_metadata

LIMITS = Limits(message_size_bytes_max=1 << 16, frames_max=64, handshake_size_max=512)
SOCKET_TYPES = tuple(SocketType)
MECHANISMS: tuple[Mechanism, ...] = (
    Null(),
    PlainClient("user", "secret"),
    PlainServer(known_users({"user": "secret"})),
)
# Chunk sizes in bytes; 0: the whole stream at once.
STEPS = (0, 1, 2, 3, 9, 64, 257, 4096)


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if len(data) < 2:
        return
    kind, step, stream = data[0], STEPS[data[1] % len(STEPS)], bytes(data[2:])
    whole, violated, framing = _run(kind, stream, 0)
    pieces, violated_in_pieces, _ = _run(kind, stream, step)
    assert violated == violated_in_pieces, "the cutting decides whether there is a violation"
    assert whole == pieces[: len(whole)], "the cutting changes messages"
    assert violated or whole == pieces, "the cutting loses messages"
    if whole and framing.socket_type in (SocketType.DEALER, SocketType.ROUTER):
        _send_on(framing, whole)


def _run(kind: int, stream: bytes, step: int) -> tuple[list[list[bytes]], bool, Zmtp]:
    framing = Zmtp(
        SOCKET_TYPES[kind % len(SOCKET_TYPES)],
        mechanism=MECHANISMS[kind // len(SOCKET_TYPES) % len(MECHANISMS)],
        limits=LIMITS,
    )
    messages: list[list[bytes]] = []
    try:
        for chunk in _chunks(stream, step or len(stream)):
            messages += framing.receive(chunk)
            if framing.login is not None:
                framing.login.check_now()
                messages += framing.receive(b"")
            framing.output()
    except RemoteViolation:
        framing.output()
        return messages, True, framing
    return messages, False, framing


def _chunks(stream: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(stream), step or 1):
        yield stream[at : at + step]


def _send_on(framing: Zmtp, messages: list[list[bytes]]) -> None:
    """Check that a second reader accepts the messages: they are within the limits."""
    out = [_beginning(SocketType.DEALER, MECHANISMS[0])]
    for message in messages:
        framing.encode(message, out)
    reader = Zmtp(SocketType.ROUTER, limits=LIMITS)
    assert reader.receive(b"".join(out)) == messages, "what was read is not what is written"


def _beginning(socket_type: SocketType, mechanism: Mechanism) -> bytes:
    """Return the bytes of a peer before its first message, without its replies to ours."""
    metadata = encode_metadata({"Socket-Type": socket_type.encode(), "Identity": b"me"})
    commands = {
        (b"NULL", False): encode_command(b"READY", metadata),
        (b"PLAIN", True): encode_command(b"WELCOME") + encode_command(b"READY", metadata),
        (b"PLAIN", False): encode_command(b"HELLO", b"\x04user\x06secret")
        + encode_command(b"INITIATE", metadata),
    }[mechanism.name, mechanism.as_server]
    return Zmtp(socket_type, mechanism=mechanism).opening() + commands


def corpus() -> Iterator[bytes]:
    """Yield inputs with a complete handshake and traffic, for each socket type and mechanism."""
    peers = (SocketType.ROUTER, SocketType.REQ, SocketType.ROUTER, SocketType.DEALER)
    counterparts = (MECHANISMS[0], MECHANISMS[2], MECHANISMS[1])
    traffic = b"".join(
        (
            b"\x01\x00\x00\x05hello",
            encode_command(b"PING", b"\x00\x0acontext"),
            b"\x01\x00\x01\x01a\x03\x00\x00\x00\x00\x00\x00\x01\x00" + bytes(256) + b"\x00\x00",
            encode_command(b"SUBSCRIBE", b"x"),
        )
    )
    for kind in range(len(SOCKET_TYPES) * len(MECHANISMS)):
        peer = peers[kind % len(SOCKET_TYPES)]
        mechanism = counterparts[kind // len(SOCKET_TYPES)]
        for step in range(len(STEPS)):
            yield bytes((kind, step)) + _beginning(peer, mechanism) + traffic


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
