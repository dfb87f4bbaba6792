"""Addresses to listen at and to dial, as text:

    tcp://host:port   tls://host:port   ws://host:port/path   wss://host:port/path
    ipc:///path       inproc://name

An address names only the transport; the scheme of a service's URL, one layer up, names the
protocol.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NoReturn

from requite.errors import ConfigurationError

PORT_MAX: Final = 65535
# RFC 6455, section 3: the ports of HTTP and HTTPS, on which WebSockets are opened.
WS_PORT: Final = 80
WSS_PORT: Final = 443
# sun_path holds 108 bytes on Linux and 104 on the BSDs and macOS, the final zero included.
_PATH_SIZE_MAX: Final = 103
_WILDCARD: Final = "*"
# RFC 3986, section 3.3, without the query: it is copied into the HTTP request line unchanged.
_WS_PATH: Final = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class HostAddress(ABC):
    """A port of a host: a name, an IPv4 or an IPv6 address (held without brackets).

    To listen, port 0 means a free port, and host `*` all addresses of the machine.
    """

    host: str
    port: int

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The part before `://`."""

    @property
    def is_secure(self) -> bool:
        """Whether the address uses TLS."""
        return False

    @property
    def is_wildcard(self) -> bool:
        """Whether the host means all addresses of the machine."""
        return self.host == _WILDCARD

    @property
    def authority(self) -> str:
        """Host and port as in a URL, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class TcpAddress(HostAddress):
    """Bytes over TCP."""

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return "tcp"


@dataclass(frozen=True, slots=True)
class TlsAddress(HostAddress):
    """Bytes over TLS over TCP."""

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return "tls"

    @property
    def is_secure(self) -> bool:
        """Whether the address uses TLS: always."""
        return True


@dataclass(frozen=True, slots=True)
class WsAddress(HostAddress):
    """A WebSocket: for the transport it is TCP, or TLS if `secure`.

    `path` begins with a slash and is in wire form, with `%xx` unchanged. The framing does the
    WebSocket handshake.
    """

    path: str = "/"
    secure: bool = False

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return "wss" if self.secure else "ws"

    @property
    def is_secure(self) -> bool:
        """Whether the address uses TLS."""
        return self.secure

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class IpcAddress:
    """A Unix socket: the absolute path of its file."""

    path: str

    def __str__(self) -> str:
        return f"ipc://{self.path}"


@dataclass(frozen=True, slots=True)
class InprocAddress:
    """A name within one event loop."""

    name: str

    def __str__(self) -> str:
        return f"inproc://{self.name}"


Address = HostAddress | IpcAddress | InprocAddress


def is_private(address: Address) -> bool:
    """Whether no other machine can read what is sent there: over TLS, or within this machine."""
    return is_local(address) or (isinstance(address, HostAddress) and address.is_secure)


def is_local(address: Address) -> bool:
    """Whether only processes of this machine reach an address: over loopback, a Unix socket, or
    within a process. A host name other than `localhost` may be that of another machine."""
    if not isinstance(address, HostAddress):
        return True
    if address.host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return False


_SHAPES: Final = {
    "tcp": "tcp://host:port",
    "tls": "tls://host:port",
    "ws": "ws://host:port/path",
    "wss": "wss://host:port/path",
    "ipc": "ipc:///path",
    "inproc": "inproc://name",
}
SCHEMES: Final = tuple(_SHAPES)


def parse_address(text: str, schemes: Collection[str] = SCHEMES) -> Address:
    """Parse an address of one of these schemes.

    Raises `ConfigurationError`, which quotes the text.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        _refuse(text, f"it has no scheme; write {_in_words([_SHAPES[s] for s in schemes], 'or')}")
    if scheme not in schemes:
        place = "tcp" if scheme == "mdp" else scheme.rpartition("+")[2]
        meant = f"; did you mean {place}://{rest}?" if place in schemes else ""
        there = f"the schemes are {_in_words(schemes, 'and')}"
        _refuse(text, f"the scheme {scheme!r} cannot be used here; {there}{meant}")
    match scheme:
        case "ipc":
            return parse_ipc(rest, text)
        case "inproc":
            return parse_inproc(rest, text)
        case "ws" | "wss":
            authority, slash, path = rest.partition("/")
            return parse_ws(authority, slash + path, text, secure=scheme == "wss")
        case "tls":
            return parse_tls(rest, text)
        case _:
            return parse_tcp(rest, text)


def parse_tcp(rest: str, text: str, default_port: int | None = None) -> TcpAddress:
    """Parse `host:port`; `text` is the whole address, for error messages."""
    return TcpAddress(*_read_authority(rest, text, default_port))


def parse_tls(rest: str, text: str, default_port: int | None = None) -> TlsAddress:
    """Parse `host:port` of a TLS address."""
    return TlsAddress(*_read_authority(rest, text, default_port))


def parse_ws(authority: str, path: str, text: str, *, secure: bool) -> WsAddress:
    """Parse `host:port` and the path of a WebSocket; an empty path means `/`."""
    host, port = _read_authority(authority, text, WSS_PORT if secure else WS_PORT)
    path = path or "/"
    if not _WS_PATH.fullmatch(path):
        _refuse(text, f"{path!r} is not a valid HTTP path; percent-encode other characters (%xx)")
    return WsAddress(host, port, path, secure)


def parse_ipc(path: str, text: str) -> IpcAddress:
    """Parse the path of a Unix socket; `text` is the whole address, for error messages."""
    if not path.startswith("/"):
        _refuse(text, "the path of an ipc address must be absolute: ipc:///run/name.sock")
    if "\0" in path or path.endswith("/"):
        _refuse(text, "the path does not name a file")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        _refuse(text, "the path does not name a file")
    if size > _PATH_SIZE_MAX:
        _refuse(
            text, f"the path is longer than {_PATH_SIZE_MAX} bytes, the maximum for a Unix socket"
        )
    return IpcAddress(path)


def parse_inproc(name: str, text: str) -> InprocAddress:
    """Parse the name of an `inproc` address."""
    if not name:
        _refuse(text, "the name is missing")
    return InprocAddress(name)


def _read_authority(rest: str, text: str, default_port: int | None = None) -> tuple[str, int]:
    host, port = _split_host(rest, text)
    if not host:
        _refuse(text, "the host is missing; write * to listen at all addresses")
    if not host.isprintable():
        _refuse(text, f"{host!r} is not a valid host")
    if not port:
        if default_port is None:
            _refuse(text, "the port is missing")
        return host, default_port
    if not _is_port(port):
        _refuse(text, f"{port!r} is not a port (0 to {PORT_MAX})")
    return host, int(port)


def _is_port(text: str) -> bool:
    # str.isdecimal also takes digits of other scripts, hence isascii; int refuses very long ones.
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(PORT_MAX))
    return is_number and int(text) <= PORT_MAX


def _split_host(rest: str, text: str) -> tuple[str, str]:
    """Split `host:port`; an IPv6 address is in brackets."""
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            _refuse(text, "the bracket of the IPv6 address is not closed, or not followed by :port")
        return host, after[1:]
    host, _, port = rest.partition(":")
    if ":" in port:
        _refuse(text, "put an IPv6 address in brackets: tcp://[::1]:5555")
    if "/" in rest or any(character.isspace() for character in rest):
        _refuse(text, "only host:port may follow the scheme")
    return host, port


def _in_words(parts: Collection[str], conjunction: str) -> str:
    *first, last = parts
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _refuse(text: str, why: str) -> NoReturn:
    raise ConfigurationError(f"cannot read the address {text!r}: {why}")
