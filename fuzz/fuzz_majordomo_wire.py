"""Feed Majordomo's decoders coverage-guided garbage.

    python -m fuzz.drive fuzz_majordomo_wire DIRECTORY [libFuzzer options]

An input is a message, each frame preceded by its size in one byte. Check for each input, dialect
and direction: the result is a command, or a `RemoteViolation` with a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from requite.engine import Message
from requite.errors import RemoteViolation
from requite.protocols.majordomo.dialects import by_version, check_service_name, detect
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientRequest,
    Disconnect,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerRequest,
)

DIALECTS: Final = tuple(by_version(version) for version in ("0.1", "0.2", "0.3"))
DECODERS: Final = tuple(
    decode
    for dialect in DIALECTS
    for decode in (
        dialect.decode_from_client,
        dialect.decode_to_client,
        dialect.decode_from_worker,
        dialect.decode_to_worker,
    )
)
FRAMES_MAX: Final = 64


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    message = frames_of(data)
    detect(message)
    for decode in DECODERS:
        complaint = "not refused"
        try:
            command = decode(message)
            check_service_name(getattr(command, "service", b"none"))
        except RemoteViolation as violation:
            complaint = str(violation)
        assert complaint, "a violation does not say what is wrong"


def frames_of(data: bytes) -> Message:
    """Split an input into frames; the last one may be shorter than its size says."""
    frames: Message = []
    at = 0
    while at < len(data) and len(frames) < FRAMES_MAX:
        end = at + 1 + data[at]
        frames.append(data[at + 1 : end])
        at = end
    return frames


def input_of(message: Message) -> bytes:
    """Return the input with these frames of at most 255 bytes."""
    return b"".join(bytes([len(frame)]) + frame for frame in message)


def corpus() -> Iterator[bytes]:
    """Yield the messages of a request in each dialect, with registration and heartbeats."""
    body = [b"hello"]
    for dialect in DIALECTS:
        yield input_of(dialect.encode(Ready(b"echo", 16, 1000, 30_000)))
        yield input_of(dialect.encode(ClientRequest(b"echo", body, 1, 2500, 1, b"key")))
        yield input_of(dialect.encode(ClientRequest(b"echo", body, 1, principal=b"alice")))
        yield input_of(dialect.encode(WorkerRequest(b"\0addr", body, 9, 2400, 1, b"key")))
        yield input_of(dialect.encode(WorkerFinal(b"\0addr", body, 9, 0)))
        yield input_of(dialect.encode(ClientFinal(b"echo", body, 1, 0, 1)))
        yield input_of(dialect.encode(WorkerHeartbeat(1000)))
        yield input_of(dialect.encode(Disconnect()))


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
