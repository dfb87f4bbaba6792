"""Typed calls in the body, where messages carry neither the name of a method nor negative replies.

    request     %d17 %s"RQT1" length name payload       length: one byte, of the name in UTF-8
    reply       %d17 %s"RQT1" status payload            status: 0 for OK, 1 for a negative reply

Source: docs/protocols/typed.md, section "In the body".
"""

from __future__ import annotations

from typing import Final, NamedTuple

MARK: Final = b"\x11RQT1"
_NAME_AT: Final = len(MARK) + 1
_OK: Final = MARK + b"\0"
_FAILED: Final = MARK + b"\1"


class Request(NamedTuple):
    """The name of a method, and its encoded message."""

    name: str
    payload: bytes


def wrap_request(name: str, payload: bytes) -> bytes:
    """Return the body of a request. `name` has 1 to 255 bytes."""
    encoded = name.encode()
    return b"%b%c%b%b" % (MARK, len(encoded), encoded, payload)


def unwrap_request(body: bytes) -> Request:
    """Return what a request is. Raises `ValueError`."""
    if not body.startswith(MARK):
        raise ValueError("the request is not a typed call: it does not begin with 11 RQT1")
    size = body[len(MARK)] if len(body) > len(MARK) else 0
    end = _NAME_AT + size
    if not size or len(body) < end:
        raise ValueError("the request is a typed call without the whole name of a method")
    try:
        return Request(body[_NAME_AT:end].decode(), body[end:])
    except UnicodeDecodeError:
        raise ValueError("the request is a typed call of a name that is not UTF-8") from None


def wrap_reply(payload: bytes) -> bytes:
    """Return the body of a reply."""
    return _OK + payload


def wrap_refusal(reason: bytes) -> bytes:
    """Return the body of a negative reply."""
    return _FAILED + reason


class Reply(NamedTuple):
    """An encoded reply or, of a negative one, the reason."""

    is_negative: bool
    payload: bytes


def unwrap_reply(body: bytes) -> Reply:
    """Return what a reply is. Raises `ValueError`."""
    if body.startswith(_OK):
        return Reply(False, body[len(_OK) :])
    if body.startswith(_FAILED):
        return Reply(True, body[len(_FAILED) :])
    raise ValueError("the reply is not that of a typed service: it does not begin with 11 RQT1")
