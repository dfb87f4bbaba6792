"""MDP 0.3 over TLS. The generator verifies no certificate: only the broker is measured."""

from __future__ import annotations

import socket
import ssl
from functools import cache

from bench.load import mdp03, zmtp


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(port: int) -> socket.socket:
    """Connect to a broker on the loopback, and complete both handshakes. Raises `OSError`."""
    sock = zmtp.dial(port)
    return zmtp.shake_hands(_context().wrap_socket(sock))


DIALECT = mdp03.DIALECT._replace(connect=connect)
