"""Duplicate keys are found in any well-formed JSON and MessagePack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requite.typed.keys import check_json_keys, check_msgpack_keys

_LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary(max_size=300) | st.datetimes()
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=60,
)


@settings(max_examples=30)
@given(_VALUES)
def test_what_an_encoder_writes_has_no_duplicates(value: Any) -> None:
    check_json_keys(msgspec.json.encode(value))
    check_msgpack_keys(msgspec.msgpack.encode(value))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value)) is not ...


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'[1,{"b":{"a":1,"c":[],"a":2}}]',
        b'{"a":1,"\\u0061":2}',
        b'{":k":"x",":k":1}',
    ],
)
def test_a_key_twice_in_json_is_found(body: bytes) -> None:
    with pytest.raises(ValueError, match="twice"):
        check_json_keys(body)


@settings(max_examples=30)
@given(_VALUES, _VALUES, st.text(), st.lists(_VALUES, max_size=20))
def test_a_key_twice_in_messagepack_is_found(
    one: Any, other: Any, key: str, around: list[Any]
) -> None:
    encode: Callable[[Any], bytes] = msgspec.msgpack.encode
    twice = b"\x82" + encode(key) + encode(one) + encode(key) + encode(other)
    head = bytes([0x90 + len(around[:10]) + 1])
    body = head + b"".join(map(encode, around[:10])) + twice
    with pytest.raises(ValueError, match="twice"):
        check_msgpack_keys(body)


def test_the_same_key_in_two_objects_is_no_duplicate() -> None:
    value = [{"a": {"a": 1}}, {"a": 2}]
    check_json_keys(msgspec.json.encode(value))
    check_msgpack_keys(msgspec.msgpack.encode(value))
    with pytest.raises(ValueError, match="twice"):  # so both do look
        check_json_keys(b'[{"a":1,"a":1}]')


def test_a_duplicate_among_many_keys_is_found_at_once() -> None:
    """Comparing each key with all others would take minutes here."""
    keys = [f"k{number}" for number in range(200_000)]
    body = "{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}"
    with pytest.raises(ValueError, match="k199999"):
        check_json_keys(body.encode())
