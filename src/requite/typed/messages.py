"""Encode and decode the messages of one method, according to its annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from requite.errors import BadReply, BadRequest, ConfigurationError, RemoteFailure
from requite.typed.codec import FLAWS, Codec, flaw_of
from requite.typed.envelope import unwrap_reply
from requite.typed.refusals import DeclaredError, error_of
from requite.typed.schema import check_type
from requite.typed.signature import Signature

_EMPTY = (b"", b"null", b"\xc0")


Reading = Callable[[bytes], Any]


def reader(codec: Codec, kind: Any) -> Reading:
    """Return the function that decodes a message received; it raises one of `FLAWS`."""
    if kind is bytes:
        return _as_it_is
    return _nothing if kind is None else codec.decoder(kind)


def writer(codec: Codec, kind: Any) -> Callable[[Any], bytes]:
    """Return the function that encodes a message without a check of its type."""
    if kind is bytes:
        return bytes
    return _empty if kind is None else codec.encode


def checked_writer(codec: Codec, kind: Any) -> tuple[Callable[[Any], bytes], Reading]:
    """Return the functions that encode a message and that decode it, as its receiver will; one of
    them raises one of `FLAWS` for a value of another type."""
    if kind is bytes:
        return _only_bytes, _as_it_is
    if kind is None:
        return _only_none, _as_it_is
    return codec.encode, codec.decoder(kind)


def check_types(signature: Signature, whose: str) -> None:
    """Raise `ConfigurationError` for annotations that no message can have."""
    for what, kind in (("takes", signature.input), ("returns", signature.output)):
        try:
            check_type(kind)
        except (*FLAWS, NotImplementedError) as error:
            raise ConfigurationError(f"{whose} {what} {kind!r}: {error}") from error


def request_writer(codec: Codec, signature: Signature) -> Callable[[Any], bytes]:
    """Return the client's encoder of requests; it raises `BadRequest`."""
    encode = writer(codec, signature.input)

    def write(value: Any) -> bytes:
        try:
            return encode(value)
        except (*FLAWS, NotImplementedError) as error:
            path, reason = flaw_of(error)
            raise BadRequest(
                f"{path}: {reason}", path=path, reason=reason, may_have_executed=False
            ) from error

    return write


def bad_reply(path: str, reason: str, attempts: int) -> BadReply:
    """Return the error of a reply that does not fit."""
    text = (
        f"the reply does not fit the method: {path}: {reason}; `requite describe` shows what the"
        " service has now"
    )
    return BadReply(text, path=path, reason=reason, attempts=attempts)


def reply_reader(codec: Codec, signature: Signature) -> Callable[[bytes, int], Any]:
    """Return the client's decoder of replies, which takes the attempts of the call, too; it raises
    `BadReply`."""
    decode = reader(codec, signature.output)

    def read(body: bytes, attempts: int) -> Any:
        try:
            return decode(body)
        except FLAWS as error:
            raise bad_reply(*flaw_of(error), attempts) from error

    return read


def unwrapping(
    read: Callable[[bytes, int], Any], errors: Mapping[str, DeclaredError]
) -> Callable[[bytes, int], Any]:
    """Return a decoder of replies which carry in the body whether they are negative."""

    def read_body(body: bytes, attempts: int) -> Any:
        try:
            reply = unwrap_reply(body)
        except ValueError as error:
            raise bad_reply("$", str(error), attempts) from error
        if not reply.is_negative:
            return read(reply.payload, attempts)
        failure = RemoteFailure(reply.payload.decode(errors="replace"), attempts=attempts)
        raise error_of(failure, errors) from failure

    return read_body


def _as_it_is(body: bytes) -> bytes:
    return body


def _nothing(body: bytes) -> None:
    if body not in _EMPTY:
        raise ValueError("it must be empty")


def _empty(_value: Any) -> bytes:
    return b""


def _only_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return bytes(value)


def _only_none(value: Any) -> bytes:
    if value is not None:
        raise TypeError(f"expected None, got {type(value).__name__}")
    return b""
