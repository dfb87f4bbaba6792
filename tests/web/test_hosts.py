"""Which hosts a server accepts in the requests of web pages."""

from __future__ import annotations

from typing import Any

import pytest

from requite.web.hosts import Hosts


def asked(host: str, own: str) -> dict[str, Any]:
    """Return a request for `host` that arrived at the address `own`."""
    return {"type": "http", "headers": [(b"host", host.encode())], "server": (own, 9464)}


@pytest.mark.parametrize("place", ["0.0.0.0", "::"])
@pytest.mark.parametrize("host", ["0.0.0.0:9464", "[::]:9464"])
def test_a_wildcard_address_is_no_host(place: str, host: str) -> None:
    hosts = Hosts((place, "metrics"))
    assert hosts.foreign_host(asked(host, "127.0.0.1")) == ascii(host)
    assert hosts.foreign_host(asked("metrics:9464", "127.0.0.1")) is None
    assert hosts.foreign_host(asked("10.0.0.5:9464", "10.0.0.5")) is None
    assert hosts.foreign_host(asked("localhost", "127.0.0.1")) is None
