"""Feed handshakes and traffic with CURVE coverage-guided garbage.

    python -m fuzz.drive fuzz_curve DIRECTORY [libFuzzer options]

An input is a byte that chooses what the rest is, a byte that chooses the chunk size, and the rest:

    0  the stream of a client, which a server receives      2  the metadata of a client, in its box
    1  the stream of a server, which a client receives      3  contents of boxes in the traffic
                                                            4  nonce and content of INITIATE's box

Keys and nonces are fixed, so that recorded streams stay valid. Checks for each input: only
`RemoteViolation` is raised; the chunk size changes neither the messages nor the end; nobody is
admitted but the holder of the known key, by its own handshake; messages stay within the limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import shake_256
from pathlib import Path
from struct import pack
from typing import Final

from nacl.bindings import crypto_box_afternm, crypto_box_open_afternm

from requite.errors import RemoteViolation
from requite.framing import Limits, SocketType, Zmtp
from requite.framing.zmtp_command import encode_command, encode_metadata
from requite.framing.zmtp_curve import CurveClient, CurveServer, KeyPair

LIMITS: Final = Limits(message_size_bytes_max=1 << 16, frames_max=64, handshake_size_max=1024)
CLIENT: Final = KeyPair.of(bytes(range(32)))
SERVER: Final = KeyPair.of(bytes(range(32, 64)))
KINDS: Final = 5
# Chunk sizes in bytes; 0: the whole stream at once.
STEPS: Final = (0, 1, 2, 9, 64, 257, 4096)


@dataclass
class Chance:
    """Repeatable bytes in place of a random source."""

    seed: bytes
    drawn: int = 0

    def __call__(self, size: int) -> bytes:
        self.drawn += 1
        return shake_256(self.seed + bytes((self.drawn,))).digest(size)


def client() -> Zmtp:
    """Return the framing of a client."""
    mechanism = CurveClient(SERVER.public, CLIENT, Chance(b"client"))
    return Zmtp(SocketType.DEALER, mechanism=mechanism, limits=LIMITS)


def server() -> Zmtp:
    """Return the framing of a server that admits one key."""
    mechanism = CurveServer((SERVER,), lambda key: key == CLIENT.public_text, Chance(b"server"))
    return Zmtp(SocketType.ROUTER, mechanism=mechanism, limits=LIMITS)


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if len(data) < 2:
        return
    kind, step, rest = data[0] % KINDS, STEPS[data[1] % len(STEPS)], bytes(data[2:])
    if kind in (2, 4):
        (_greet if kind == 2 else _initiate)(rest)
        return
    before, stream = _stream(kind, rest)
    whole, violated, framing = _run(kind, before, stream, 0)
    pieces, violated_in_pieces, _ = _run(kind, before, stream, step)
    assert violated == violated_in_pieces, "the cutting decides whether there is a violation"
    assert whole == pieces[: len(whole)], "the cutting changes messages"
    assert violated or whole == pieces, "the cutting loses messages"
    if framing.ready and kind != 3:
        assert stream.startswith(_recorded()[kind][64:]), "a forged handshake was admitted"
    for message in whole:
        assert len(message) <= LIMITS.frames_max, "too many frames"
        assert sum(map(len, message)) <= LIMITS.message_size_bytes_max, "too many bytes"


def _stream(kind: int, rest: bytes) -> tuple[bytes, bytes]:
    """Return what the peer has sent before the input, and the input as a stream."""
    if kind < 2:
        return _recorded()[kind][:64], rest
    return _recorded()[0], b"".join(_boxes(rest))


def _boxes(rest: bytes) -> Iterator[bytes]:
    """Yield MESSAGE frames of the client; a u8 is the size of each box's content."""
    key = _session_key()
    at, count = 0, 2
    while at < len(rest):
        plain = rest[at + 1 : at + 1 + rest[at]] or b"\x00"
        at += 1 + rest[at]
        count += 1
        nonce = pack(">Q", count)
        box = crypto_box_afternm(plain, b"CurveZMQMESSAGEC" + nonce, key)
        body = b"\x07MESSAGE" + nonce + box
        short = len(body) < 256
        yield (pack(">BB", 0, len(body)) if short else pack(">BQ", 2, len(body))) + body


def _greet(metadata: bytes) -> None:
    """Let a client with this metadata connect."""
    left, right = client(), server()
    left._metadata = metadata[: LIMITS.handshake_size_max - 300]
    try:
        _shake(left, right)
    except RemoteViolation:
        assert not right.ready
        return
    assert right.peer_credential is not None
    assert right.peer_credential.names == (CLIENT.public_text,)


def _initiate(rest: bytes) -> None:
    """Let a client that knows the keys of its connection send this nonce and content, and then a
    frame."""
    right, cookie, _ = _half_shaken()
    nonce, plain = rest[:8].rjust(8, b"\0"), rest[8 : LIMITS.handshake_size_max - 200]
    box = crypto_box_afternm(plain, b"CurveZMQINITIATE" + nonce, _session_key())
    try:
        right.receive(encode_command(b"INITIATE", cookie + nonce + box))
        assert right.peer_credential is not None
        assert right.peer_credential.names == (CLIENT.public_text,)
        assert right.receive(b"\x00\x21\x07MESSAGE" + bytes(25)) == []
    except RemoteViolation:
        assert right.ready == (right.peer_credential is not None)


def _half_shaken() -> tuple[Zmtp, bytes, bytes]:
    """Return a server that waits for INITIATE, its cookie, and the rest of a valid INITIATE."""
    left, right = client(), server()
    left.receive(right.opening())
    right.receive(left.opening())
    right.receive(left.output())
    left.receive(right.output())
    initiate = left.output()[18:]
    return right, initiate[:96], initiate[96:]


def _run(
    kind: int, before: bytes, stream: bytes, step: int
) -> tuple[list[list[bytes]], bool, Zmtp]:
    framing = client() if kind == 1 else server()
    framing.receive(before)
    messages: list[list[bytes]] = []
    try:
        for at in range(0, len(stream), step or len(stream) or 1):
            messages += framing.receive(stream[at : at + (step or len(stream))])
            framing.output()
    except RemoteViolation:
        framing.output()
        return messages, True, framing
    return messages, False, framing


def _shake(left: Zmtp, right: Zmtp) -> tuple[bytes, bytes]:
    """Connect two framings; return all that each has sent."""
    to_right, to_left = left.opening(), right.opening()
    sent = [b"", b""]
    while to_right or to_left:
        sent = [sent[0] + to_right, sent[1] + to_left]
        right.receive(to_right)
        left.receive(to_left)
        to_right, to_left = left.output(), right.output()
    return sent[0], sent[1]


def _pair() -> tuple[Zmtp, Zmtp]:
    left, right = client(), server()
    _shake(left, right)
    return left, right


@cache
def _session_key() -> bytes:
    return _pair()[0]._traffic._key


@cache
def _recorded() -> tuple[bytes, bytes]:
    """Return the streams of a client and of a server up to the end of their handshake."""
    return _shake(client(), server())


def corpus() -> Iterator[bytes]:
    """Yield inputs with a complete handshake and traffic of each kind."""
    messages = ([b"head", b"body"], [b""], [bytes(300), b"x"])
    for step in range(len(STEPS)):
        for kind, stream in enumerate(_recorded()):
            out: list[bytes] = []
            sender = _pair()[kind]
            for message in messages:
                sender.encode(message, out)
            yield bytes((kind, step)) + stream[64:] + b"".join(out)
        yield bytes((2, step)) + encode_metadata({"Socket-Type": b"DEALER", "Identity": b"me"})
        plains = (b"\x01a", b"\x02\x04PING\x00\x0acontext", b"\x00b", b"\x00", b"\x02\x03ABC")
        yield bytes((3, step)) + b"".join(bytes((len(each),)) + each for each in plains)
        _, _, rest = _half_shaken()
        nonce, box = rest[:8], rest[8:]
        yield bytes((4, step)) + nonce + _opened(box, nonce)


def _opened(box: bytes, nonce: bytes) -> bytes:
    return crypto_box_open_afternm(box, b"CurveZMQINITIATE" + nonce, _session_key())


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
