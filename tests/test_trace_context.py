"""Trace contexts (W3C Trace Context, section 3.2)."""

from __future__ import annotations

import pytest

from requite.trace_context import decode_traceparent, encode_traceparent, is_sampled, is_valid

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{PARENT}-01"


def test_a_traceparent_survives_the_way_through_an_engine() -> None:
    for flags in ("00", "01", "03"):
        text = f"00-{TRACE_ID}-{PARENT}-{flags}"
        trace = decode_traceparent(text)
        assert trace == bytes.fromhex(TRACE_ID + PARENT + flags)
        assert encode_traceparent(trace) == text
        assert is_sampled(trace) is (flags != "00")


def test_no_trace_has_no_text() -> None:
    assert encode_traceparent(b"") == ""
    assert not is_sampled(b"")


def test_a_later_version_may_have_more_fields() -> None:
    assert decode_traceparent(f"01-{TRACE_ID}-{PARENT}-01-more") == decode_traceparent(SAMPLED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        SAMPLED + "-more",  # not in version 00
        f"ff-{TRACE_ID}-{PARENT}-01",  # an invalid version
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID.upper()}-{PARENT}-01",
        f"00-{TRACE_ID[:-1]}-{PARENT}-01",
        SAMPLED + "\n",
        f"00-{TRACE_ID[:-1]}g-{PARENT}-01",
        "\u0660\u0660" + SAMPLED[2:],  # digits, but not these
    ],
)
def test_a_malformed_traceparent_counts_as_none(text: str) -> None:
    assert decode_traceparent(text) == b""


def test_only_contexts_of_the_right_size_with_ids_are_valid() -> None:
    trace = decode_traceparent(SAMPLED)
    assert is_valid(trace)
    assert not is_valid(trace[:-1])
    assert not is_valid(bytes(16) + trace[16:])
    assert not is_valid(trace[:16] + bytes(8) + trace[24:])
