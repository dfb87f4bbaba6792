"""Caches of recurring header tables: each table is encoded and decoded once."""

from __future__ import annotations

from typing import Any

import pytest

from requite.framing.amqp import Amqp
from requite.protocols.amqp.fields import table
from requite.protocols.amqp.methods import publish
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties


@pytest.mark.parametrize("value", [1, True, 0, False, "1", ""])
def test_equal_values_of_different_types_are_cached_separately(value: Any) -> None:
    properties = Properties("c", headers={"x": value})
    for _ in range(2):
        encoded = encode_properties(properties, 0, headers_recur=True)
        assert encoded == encode_properties(properties, 0)
        decoded = decode_properties(encoded).headers["x"]
        assert (decoded, type(decoded)) == (value, type(value))


def test_cached_headers_are_immutable() -> None:
    header = encode_properties(Properties("c", headers={"x": "y"}), 0)
    headers = decode_properties(header).headers
    with pytest.raises(TypeError):
        headers["x"] = "z"  # type: ignore[index]
    assert decode_properties(header).headers == {"x": "y"}


def test_malformed_headers_are_reported_every_time() -> None:
    whole = encode_properties(Properties("c", headers={"x": "y"}), 0)
    assert table({"x": "y"}) in whole
    broken = whole.replace(b"\x01xS", b"\x01x?")
    for _ in range(2):
        assert "malformed" in decode_properties(broken).flaw


@pytest.mark.parametrize("size", [0, 1, 2048, 2049, 300_000])
def test_content_survives_the_round_trip_at_any_size(size: int) -> None:
    framing = Amqp()
    framing.ready = True
    body = b"x" * size
    message = b"\0\x01", publish("", "q"), encode_properties(Properties("c"), size), body
    out: list[bytes] = []
    assert framing.encode(message, out) == sum(map(len, out))
    other = Amqp()
    other.ready = True
    assert other.receive(b"".join(out)) == [[*message]]
