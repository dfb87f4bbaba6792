"""Feed SP's framings, on streams and on WebSockets, coverage-guided garbage.

    python -m fuzz.drive fuzz_sp DIRECTORY [libFuzzer options]

An input is a byte that chooses the framing, a byte that chooses the chunk size, and the stream.
Checks for each input: only `RemoteViolation` is raised, with a message; the chunk size changes
neither the messages nor the end; each delivered message can be sent on, and is received unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from requite.errors import RemoteViolation
from requite.framing import Framing, Limits, SpStream, SpWebSocket

REQ, REP = 48, 49
LIMITS: Final = Limits(message_size_bytes_max=1 << 16)
# The last two get the handshake before the input: no fuzzer finds the answer to a random key.
KINDS: Final = ("stream", "ipc", "server", "client", "open server", "open client")
# Chunk sizes in bytes; 0: the whole stream at once.
STEPS: Final = (0, 1, 2, 3, 9, 64, 257, 4096)


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if len(data) < 2:
        return
    kind, step, stream = KINDS[data[0] % len(KINDS)], STEPS[data[1] % len(STEPS)], bytes(data[2:])
    whole, end, framing = run(kind, stream, 0)
    assert end != "violation without a reason", "nobody could tell what is wrong"
    pieces, end_in_pieces, _ = run(kind, stream, step)
    assert end == end_in_pieces, "the cutting decides how it ends"
    assert whole == pieces[: len(whole)], "the cutting changes messages"
    assert end == "violation" or whole == pieces, "the cutting loses messages"
    if whole and framing.ready:
        _send_on(kind, whole)


def run(kind: str, stream: bytes, step: int) -> tuple[list[list[bytes]], str, Framing]:
    """Read a stream in chunks; return the messages, how it ended, and the framing."""
    framing = make(kind)
    messages: list[list[bytes]] = []
    try:
        for at in range(0, len(stream), step or len(stream) or 1):
            messages += framing.receive(stream[at : at + (step or len(stream))])
            framing.output()
        end = framing.farewell or ("mid" if framing.mid_message else "")
        framing.at_end()
    except RemoteViolation as violation:
        framing.output()
        end = "violation" if str(violation) else "violation without a reason"
    return messages, end, framing


def make(kind: str) -> Framing:
    """Return the framing of a kind, in its state before the input."""
    if kind in ("stream", "ipc"):
        return SpStream(REP, REQ, in_band=kind == "ipc", limits=LIMITS)
    client = SpWebSocket(REQ, REP, is_client=True, host="h", limits=LIMITS)
    server = SpWebSocket(REP, REQ, is_client=False, limits=LIMITS)
    if kind.startswith("open"):
        server.receive(client.opening())
        client.receive(server.output())
    return client if kind.endswith("client") else server


def _send_on(kind: str, messages: list[list[bytes]]) -> None:
    """Check that a second reader accepts the messages: they are within the limits."""
    beginning, sender, receiver = _pair(kind)
    out = [beginning]
    for message in messages:
        sender.encode(message, out)
    assert receiver.receive(b"".join(out)) == messages, "what was read is not what is written"


def _pair(kind: str) -> tuple[bytes, Framing, Framing]:
    """Return the sender's bytes before its messages, the sender, and the receiver."""
    if kind in ("stream", "ipc"):
        sender = SpStream(REQ, REP, in_band=kind == "ipc")
        receiver = make(kind)
        sender.receive(receiver.opening())
        return sender.opening(), sender, receiver
    client = SpWebSocket(REQ, REP, is_client=True, host="h", limits=LIMITS)
    server = SpWebSocket(REP, REQ, is_client=False, limits=LIMITS)
    server.receive(client.opening())
    client.receive(server.output())
    return b"", *((server, client) if kind.endswith("client") else (client, server))


def corpus() -> Iterator[bytes]:
    """Yield inputs for each kind; where possible, with a complete handshake and traffic."""
    for number, kind in enumerate(KINDS):
        for step in range(len(STEPS)):
            yield bytes((number, step)) + _session(kind)


def _session(kind: str) -> bytes:
    """Return a session of a peer: handshake, messages, and close."""
    if kind == "client":
        return (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nno\n"
        )
    beginning, sender, _ = _pair(kind)
    if kind == "server":  # any client's request will do
        beginning = SpWebSocket(REQ, REP, is_client=True, host="h", limits=LIMITS).opening()
    out = [beginning]
    for message in ([b"\x80\0\0\1", b"hello"], [b""], [bytes(300)], *[[b"again"]] * 12):
        sender.encode(message, out)
    if isinstance(sender, SpWebSocket):
        out += _rare_frames(masked=kind.endswith("server"))
    return b"".join((*out, sender.closing()))


def _rare_frames(*, masked: bool) -> Iterator[bytes]:
    """Yield a ping, a pong, and a message in two fragments with a ping between them."""
    key = bytes(4) if masked else b""  # a mask of zeros changes nothing
    for first, payload in ((0x89, b"hi"), (0x8A, b""), (2, b"a"), (0x89, b""), (0x80, b"b")):
        yield bytes((first, len(payload) | 128 * masked)) + key + payload


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
