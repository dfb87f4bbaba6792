"""Feed AMQP's framing, and the readers of methods and properties, coverage-guided garbage.

    python -m fuzz.drive fuzz_amqp DIRECTORY [libFuzzer options]

An input is a byte that says whether the handshake precedes the stream, a byte that chooses the
chunk size, and the stream. Checks for each input: only `RemoteViolation` is raised, with a message;
the chunk size changes neither the messages nor the end; each message can be decoded by all its
readers, and encoded again with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.amqp import Amqp, AmqpSettings
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.sim.rabbitmq import server_methods
from requite.sim.rabbitmq.server_framing import ServerFraming

SETTINGS: Final = AmqpSettings(body_size_max=1 << 14)
# Chunk sizes in bytes; 0: the whole stream at once.
STEPS: Final = (0, 1, 2, 3, 9, 64, 257, 4096)
_KINDS: Final = ("raw", "open")


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if len(data) < 2:
        return
    kind, step, stream = _KINDS[data[0] % 2], STEPS[data[1] % len(STEPS)], bytes(data[2:])
    whole, end = run(kind, stream, 0)
    assert end != "violation without a reason", "nobody could tell what is wrong"
    pieces, end_in_pieces = run(kind, stream, step)
    assert end == end_in_pieces, "the cutting decides how it ends"
    assert whole == pieces[: len(whole)], "the cutting changes messages"
    assert end == "violation" or whole == pieces, "the cutting loses messages"
    for message in pieces:
        _read(message)


def run(kind: str, stream: bytes, step: int) -> tuple[list[list[bytes]], str]:
    """Read a stream in chunks; return the messages, and how it ended."""
    framing = Amqp(SETTINGS)
    messages: list[list[bytes]] = []
    if kind == "open":
        framing.receive(handshake())
    try:
        for at in range(0, len(stream), step or len(stream) or 1):
            messages += framing.receive(stream[at : at + (step or len(stream))])
            framing.output()
        end = framing.farewell or ("mid" if framing.mid_message else "")
        framing.at_end()
    except RemoteViolation as violation:
        framing.output()
        end = "violation" if str(violation) else "violation without a reason"
    return messages, end


def handshake() -> bytes:
    """Return the bytes that RabbitMQ sends until a connection is open."""
    out: list[bytes] = []
    server = ServerFraming(4096, 20)
    for method in (
        server_methods.start(),
        server_methods.tune(4096, 20),
        methods.CONNECTION_OPEN_OK + b"\0",
    ):
        server.encode([methods.CONNECTION, method], out)
    return b"".join(out)


def _read(message: list[bytes]) -> None:
    """Decode a message with all decoders of messages from RabbitMQ."""
    if not message:
        return
    with suppress(RemoteViolation):
        methods.decode(message[1])
    if len(message) > 2:
        with suppress(RemoteViolation):
            _check(decode_properties(message[2]), message[3] if len(message) > 3 else b"")


def _check(properties: Properties, body: bytes) -> None:
    wire.request_id_of(properties.correlation_id)
    wire.attempt_of(properties, True)
    wire.status_error(properties.headers.get(wire.STATUS), body, 1)
    for read in (
        lambda: wire.partial_index(properties.headers),
        lambda: wire.remaining_s(properties),
    ):
        with suppress(RemoteViolation):
            read()
    # A reply copies these, whatever their values are.
    names = properties._replace(headers={}, flaw="")
    assert decode_properties(encode_properties(names, 0)) == names, "names do not stay the same"
    with suppress(LocalViolation):  # requite does not encode fractions and huge numbers
        again = decode_properties(encode_properties(properties, len(body)))
        assert again.headers == properties.headers, "headers do not stay the same"


def corpus() -> Iterator[bytes]:
    """Yield streams that complete the handshake and have traffic."""
    for step in range(len(STEPS)):
        yield bytes((0, step)) + handshake() + _session()
        yield bytes((1, step)) + _session()
    yield b"\0\0AMQP\0\0\x09\x01"
    yield bytes((0, 1)) + handshake()[:100]


def _session() -> bytes:
    """Return a session of RabbitMQ: replies, deliveries of all kinds, and a close."""
    headers = {"x-status": "ok", "x-partial": 3, "n": {"a": [1, None, True, b"b"]}}
    names = Properties("00000000000000ff", "replies", "00" * 16, "1000", headers, True)
    channel = methods.channel(1)
    out: list[bytes] = []
    server = ServerFraming(4096, 20)
    for method in (
        server_methods.channel_opened(),
        server_methods.declared("queue", 1, 2),
        server_methods.consuming("replies"),
        server_methods.confirmed(3, multiple=True, is_taken=False),
        server_methods.cancelled("replies", by_us=True),
        server_methods.close(methods.CHANNEL_CLOSE, 404, "NOT_FOUND", methods.QUEUE_DECLARE),
    ):
        server.encode([channel, method], out)
    for size in (0, 5, 9000, 20_000):
        header = encode_properties(names, size)
        for method in (
            server_methods.deliver("replies", 7, True, "", "k"),
            server_methods.returned("", "k"),
        ):
            server.encode([channel, method, header, bytes(size)], out)
    odd = encode_properties(Properties("c" * 200, "r" * 200), 0).replace(b"c" * 200, b"\xff" * 200)
    server.encode([channel, server_methods.deliver("replies", 8, False, "", "k"), odd, b""], out)
    server.encode([], out)
    for method in (
        server_methods.blocked("memory"),
        server_methods.close(methods.CONNECTION_CLOSE, 320, "CONNECTION_FORCED"),
    ):
        server.encode([methods.CONNECTION, method], out)
    return b"".join(out)


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
