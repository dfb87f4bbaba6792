"""Where to listen and where to dial, as text: `tcp://host:port`, `ipc:///path`, `inproc://name`.

An address here names a place only; which protocol is spoken there is told by the scheme of a
service's URL, one layer up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from requite.errors import ConfigurationError

PORT_MAX: Final = 65535
# sun_path holds 108 bytes on Linux and 104 on the BSDs and macOS, the final zero included.
_PATH_SIZE_MAX: Final = 103
_WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port of a host: a name, an IPv4 or an IPv6 address (held without brackets).

    To listen, port 0 takes a free one, and host `*` all addresses of the machine.
    """

    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """Whether this stands for all addresses of the machine."""
        return self.host == _WILDCARD

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self._plain}"

    @property
    def _plain(self) -> str:
        return f"{self.host}:{self.port}"


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


Address = TcpAddress | IpcAddress | InprocAddress


def parse_address(text: str) -> Address:
    """Read an address. Raises `ConfigurationError`, which quotes what it could not read."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        _refuse(text, "it has no scheme; write tcp://host:port, ipc:///path or inproc://name")
    if scheme == "tcp":
        return parse_tcp(rest, text)
    if scheme == "ipc":
        return parse_ipc(rest, text)
    if scheme == "inproc":
        return _parse_inproc(rest, text)
    _refuse(text, f"scheme {scheme!r} is unknown; there are tcp, ipc and inproc")


def parse_tcp(rest: str, text: str, default_port: int | None = None) -> TcpAddress:
    """Read `host:port`; `text` is the whole of it, for the message."""
    host, port = _split_host(rest, text)
    if not host:
        _refuse(text, "the host is missing; write * to listen at all addresses")
    if not port:
        if default_port is None:
            _refuse(text, "the port is missing")
        return TcpAddress(host, default_port)
    # str.isdecimal also takes digits of other scripts, hence isascii.
    if not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        _refuse(text, f"{port!r} is not a port (0 to {PORT_MAX})")
    return TcpAddress(host, int(port))


def parse_ipc(path: str, text: str) -> IpcAddress:
    """Read the path of a Unix socket; `text` is the whole of it, for the message."""
    if not path.startswith("/"):
        _refuse(text, "the path of an ipc address is absolute: ipc:///run/name.sock")
    if "\0" in path or path.endswith("/"):
        _refuse(text, "the path does not name a file")
    if len(path.encode()) > _PATH_SIZE_MAX:
        _refuse(text, f"the path is longer than the {_PATH_SIZE_MAX} bytes a Unix socket may have")
    return IpcAddress(path)


def _parse_inproc(name: str, text: str) -> InprocAddress:
    if not name:
        _refuse(text, "the name is missing")
    return InprocAddress(name)


def _split_host(rest: str, text: str) -> tuple[str, str]:
    """Split `host:port`; an IPv6 address stands in brackets."""
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            _refuse(text, "the bracket of the IPv6 address is not closed, or not followed by :port")
        return host, after[1:]
    host, _, port = rest.partition(":")
    if ":" in port:
        _refuse(text, "an IPv6 address stands in brackets: tcp://[::1]:5555")
    if "/" in rest or any(character.isspace() for character in rest):
        _refuse(text, "nothing but host:port follows the scheme")
    return host, port


def _refuse(text: str, why: str) -> NoReturn:
    raise ConfigurationError(f"cannot read the address {text!r}: {why}")
