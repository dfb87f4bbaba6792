"""Connections to a listener, as any of requite's framings makes them."""

from __future__ import annotations

import ssl

from bench.load import zmtp
from requite.framing import Framing

_READ_BYTES = 65_536


class Peer:
    """A connection that has completed its handshake. Raises `ConnectionError` if it fails."""

    def __init__(self, port: int, framing: Framing, context: ssl.SSLContext | None = None) -> None:
        sock = zmtp.dial(port)
        self.sock = sock if context is None else context.wrap_socket(sock)
        self._framing = framing
        self.sock.sendall(framing.opening())
        while not framing.ready:
            chunk = self.sock.recv(_READ_BYTES)
            if not chunk:
                raise ConnectionError("the listener closed the connection in the handshake")
            framing.receive(chunk)
            self.sock.sendall(framing.output())

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def send(self, *messages: list[bytes]) -> None:
        """Send messages."""
        pieces: list[bytes] = []
        for message in messages:
            self._framing.encode(message, pieces)
        self.sock.sendall(b"".join(pieces))
