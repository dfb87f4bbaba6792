"""The hosts in the HTTP fields `Host` and `Origin`, by which servers recognise foreign web pages.

A page of any site can have a browser send requests to a server on the user's machine or network.
The browser names the page's site in `Origin`. If the site's name resolves to the address of the
server (DNS rebinding), the browser takes both for one site, and `Host` has the site's name.

Hosts are compared in canonical form: names in lower case, IP addresses without brackets.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

# RFC 3986, section 3.2: a host and a port. Browsers encode names in ASCII.
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{0,5}))?")
_ORIGIN: Final = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*)://{_AUTHORITY.pattern}")
_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")
_PORTS: Final = {"http": "80", "https": "443"}
LOCALHOST: Final = "localhost"


def canonical(host: str) -> str | None:
    """Return a host without a port in canonical form; None if it is not a host."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return str(ip_address(bare))
    except ValueError:
        return host.lower() if _NAME.fullmatch(host) else None


def host_of(field: str) -> str | None:
    """Return the host of a `Host` field; None if the field is malformed."""
    found = _AUTHORITY.fullmatch(field)
    return canonical(found[1]) if found else None


def host_of_origin(field: str) -> str | None:
    """Return the host of an `Origin` field; None if there is none (`null`), or it is malformed."""
    scheme, _, authority = field.partition("://")
    return host_of(authority) if scheme.lower() in _PORTS else None


def canonical_origin(field: str) -> str | None:
    """Return an origin as browsers write it (RFC 6454, section 6.2); None if it is malformed."""
    found = _ORIGIN.fullmatch(field)
    if found is None:
        return None
    scheme, host, port = found[1].lower(), canonical(found[2]), found[3]
    if host is None:
        return None
    shown = f"[{host}]" if ":" in host else host
    is_default = not port or port == _PORTS.get(scheme)
    return f"{scheme}://{shown}" if is_default else f"{scheme}://{shown}:{port}"


def needs_no_resolver(host: str) -> bool:
    """Whether a host in canonical form is an IP address or localhost, which no site can claim."""
    try:
        return host == LOCALHOST or bool(ip_address(host))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a host in canonical form is on the loopback interface of every machine."""
    try:
        return host == LOCALHOST or ip_address(host).is_loopback
    except ValueError:
        return False
