"""Typed calls in the body: golden bytes, and what is none."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement

from requite.typed.envelope import (
    Reply,
    Request,
    unwrap_reply,
    unwrap_request,
    wrap_refusal,
    wrap_reply,
    wrap_request,
)


@requirement("typed:body-request")
def test_bytes_of_a_request() -> None:
    body = wrap_request("orders.price", b'{"sku":"a"}')
    assert body == bytes.fromhex("1152515431 0c") + b'orders.price{"sku":"a"}'
    assert unwrap_request(body) == Request("orders.price", b'{"sku":"a"}')


@requirement("typed:body-reply")
def test_bytes_of_replies() -> None:
    assert wrap_reply(b'{"price":"2"}') == bytes.fromhex("1152515431 00") + b'{"price":"2"}'
    assert wrap_refusal(b"no") == bytes.fromhex("1152515431 01") + b"no"
    assert unwrap_reply(wrap_reply(b"yes")) == Reply(False, b"yes")
    assert unwrap_reply(wrap_refusal(b"no")) == Reply(True, b"no")


@requirement("typed:body-unmarked")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"sku":"a"}',
        b"\x11RQT",
        b"\x11RQT1",
        b"\x11RQT1\x00",
        b"\x11RQT1\x05name",
        b"\x11RQT1\x02\xff\xff{}",
        b"\x11RQT2\x01a",
    ],
)
def test_other_requests_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="typed call"):
        unwrap_request(body)


@pytest.mark.parametrize("body", [b"", b"\x11RQT1", b"\x11RQT1\x02", b"hello"])
def test_other_replies_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="typed service"):
        unwrap_reply(body)


def test_the_longest_name() -> None:
    assert unwrap_request(wrap_request("n" * 255, b"")).name == "n" * 255
