"""A user that floods a broker, without regard for its answers: `python -m bench.load.flooder JOB`.

It runs at the lowest priority, as if it were on another machine: the broker does not have to share
its processor with it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from time import sleep

from bench.load import zmtp
from requite.framing import SocketType, Zmtp
from requite.framing.z85 import KEY_SIZE, decode_z85
from requite.framing.zmtp_curve import CurveClient, KeyPair
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import ClientRequest

CHUNK_BYTES = 1 << 16
_MIB = 1 << 20
_CONNECTIONS = 10
_TIMEOUT_MS = 30_000
_LARGE_FRAME = b"\x02" + (64 * _MIB).to_bytes(8, "big")  # a frame that is never completed
_AGAIN_S = 0.001  # after a refused connection

Stream = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Flood:
    """What a flooder sends to a port: `kind` is a key of `KINDS`. `curve`: the broker's key."""

    port: int
    kind: str
    curve: str = ""

    @classmethod
    def from_argument(cls, text: str) -> Flood:
        """Parse the result of `to_argument`."""
        return cls(**json.loads(text))

    def to_argument(self) -> str:
        """Return the flood as a command-line argument."""
        return json.dumps(asdict(self))


def requests(service: bytes, body: bytes, at_once: int) -> Stream:
    """Yield requests for ever, with a number each."""
    header, *frames = by_version("0.3").encode(ClientRequest(service, [body], 0, _TIMEOUT_MS))
    encoded = zmtp.encode([header, *frames])
    before, after = encoded[:9], encoded[17:]  # the request id starts nine bytes in
    numbers = count(1)
    while True:
        yield b"".join([before + next(numbers).to_bytes(8, "big") + after for _ in range(at_once)])


def incomplete() -> Stream:
    """Yield a message of 64 MiB but for its last byte."""
    yield _LARGE_FRAME
    for _ in range(63):
        yield bytes(_MIB)
    yield bytes(_MIB - 1)


KINDS: dict[str, Callable[[], Stream]] = {
    "small requests": lambda: requests(b"echo", b"x", 64),
    "small requests, replies not read": lambda: requests(b"echo", b"x", 64),
    "1 MiB requests": lambda: requests(b"absent", bytes(_MIB), 1),
    "incomplete 64 MiB messages": incomplete,
    "mmi.stats, denied": lambda: requests(b"mmi.stats", b"", 64),
    "mmi.ping": lambda: requests(b"mmi.ping", b"", 64),
    "connections": lambda: iter(()),
    "wrong passwords": lambda: iter(()),
    "CURVE handshakes": lambda: iter(()),
}
_SILENT = ("connections", "wrong passwords", "CURVE handshakes")  # after the handshake


class Connection:
    """A connection that sends a stream as fast as it can, and discards what it receives."""

    def __init__(self, sock: socket.socket, stream: Stream, *, reads: bool) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self._stream = stream
        self._reads = reads
        self._rest = memoryview(b"")

    def fileno(self) -> int:
        """Return its descriptor, for `select`."""
        return self.sock.fileno()

    def discard(self) -> None:
        """Read and discard. Raises `OSError` if the connection has ended."""
        if self._reads:
            while data := self.sock.recv(CHUNK_BYTES):
                if len(data) < CHUNK_BYTES:
                    return
            raise ConnectionError("the broker closed the connection")

    def send(self) -> None:
        """Send until the broker does not read any more. Raises `OSError`."""
        if not self._rest:
            self._rest = memoryview(next(self._stream, b""))
        sent = self.sock.send(self._rest)
        self._rest = self._rest[sent:]


def flood(job: Flood) -> None:
    """Keep connections busy for ever; replace those that the broker closes."""
    reads = job.kind != "small requests, replies not read"
    sends = job.kind not in _SILENT
    wanted = _CONNECTIONS if sends else 10 * _CONNECTIONS
    connections: list[Connection] = []
    while True:
        while len(connections) < wanted:
            try:
                sock = _connect(job)
                connections.append(Connection(sock, KINDS[job.kind](), reads=reads))
            except OSError:  # refused by the quota of connections
                sleep(_AGAIN_S)
                break
        readable, writable, _ = select.select(connections, connections if sends else [], [], 0.01)
        for connection in {*readable, *writable}:
            try:
                if connection in readable:
                    connection.discard()
                if connection in writable:
                    connection.send()
            except BlockingIOError:
                continue
            except OSError:
                connection.sock.close()
                connections.remove(connection)


def _connect(job: Flood) -> socket.socket:
    if job.kind == "wrong passwords":
        return zmtp.log_in(job.port, b"ann", b"wrong")
    if job.kind == "CURVE handshakes":
        return _shake_curve_hands(job)
    return zmtp.connect(job.port, b"denied")


def _shake_curve_hands(job: Flood) -> socket.socket:
    """Connect, and prove a key that no user has: the broker has computed all it ever does."""
    key = KeyPair.of(os.urandom(KEY_SIZE))
    mechanism = CurveClient(decode_z85(job.curve), key, os.urandom)
    framing = Zmtp(SocketType.DEALER, mechanism=mechanism)
    sock = zmtp.dial(job.port)
    sock.sendall(framing.opening())
    while b"INITIATE" not in (answer := framing.output()):
        sock.sendall(answer)
        framing.receive(sock.recv(CHUNK_BYTES))
    sock.sendall(answer)
    return sock


def main() -> None:
    """Flood until a signal."""
    os.nice(19)
    try:
        flood(Flood.from_argument(sys.argv[1]))
    except (KeyboardInterrupt, socket.gaierror):
        return


if __name__ == "__main__":
    main()
