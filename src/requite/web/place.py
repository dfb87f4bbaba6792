"""Where an HTTP server listens, as options have it."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.errors import ConfigurationError
from requite.transport.address import PORT_MAX

_LOCALHOST: Final = "127.0.0.1"
_DIGITS_MAX: Final = len(str(PORT_MAX))


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int


def parse_place(text: str) -> Place:
    """Return the host and the port of `HOST:PORT`, `[::1]:PORT` or, on loopback, `:PORT`. Raises
    `ConfigurationError`."""
    host, colon, digits = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_number = digits.isdecimal() and digits.isascii() and len(digits) <= _DIGITS_MAX
    is_port = is_number and int(digits) <= PORT_MAX
    if not colon or not is_port or (":" in host and bare == host) or "/" in host:
        raise ConfigurationError(f"an address of HTTP is HOST:PORT or :PORT, not {text!r}")
    return Place(bare or _LOCALHOST, int(digits))
