"""Messages as JSON, for callers who know only the description of a service.

The description may come from a foreign peer, so it is checked like any other input. Validation is
that of `jsonschema`: it knows the whole dialect (2020-12), with the keywords that models of
pydantic use and msgspec cannot read. It is pure Python, so a caller can interrupt a regular
expression or a schema that would take forever; a compiled validator would not stop, and one that
recurses natively would end the process.
"""

from __future__ import annotations

import re
from typing import Any, Final

from requite.errors import BadRequest, ConfigurationError, RemoteViolation
from requite.framing.base import Limits
from requite.speaks.plans import Carries
from requite.typed.codec import FLAWS, JSON, NO_BODY, flaw_of, shortened
from requite.typed.described import DescribedMethod, Description
from requite.typed.envelope import wrap_request
from requite.typed.messages import bad_reply, unwrapping
from requite.typed.schema import is_bytes, is_nothing
from requite.typed.transcoding import from_json, to_json

try:
    from jsonschema import Draft202012Validator as Validator
    from jsonschema.exceptions import SchemaError, UnknownType, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        "checking messages needs jsonschema, which is not installed: pip install 'requite[typed]'"
    ) from missing

MESSAGE_SIZE_MAX: Final = Limits().message_size_bytes_max
"""Bytes of a message; brokers and workers refuse larger ones by default."""

_ORDINARY_DEPTH: Final = 32
_value: Final = JSON.decoder(Any)


class JsonMethod:
    """A method of a described service, with messages and replies in JSON.

    `carries` is what the protocol of the calls carries. `streams`: the method has partial replies.
    `decode` returns a reply, given the attempts of its call, too, as a value for JSON; `bytes` of a
    method that returns bytes. It raises `BadReply` for one that the codec cannot decode, and where
    the body says so the error of a negative reply.

    Raises `BadRequest` if the description has no method with this address, and `RemoteViolation`
    for schemas that are none.
    """

    def __init__(self, described: Description, address: str, carries: Carries) -> None:
        self._address = address
        self._carries = carries
        self._described = described
        self._method = method = _method_of(described, address)
        self._whose = f"the description of {address}"
        self.streams = method.partial
        self.decode = self._decode if carries.refusals else unwrapping(self._decode, {})
        schema = {**method.input, "$defs": described.definitions}
        try:
            Validator.check_schema(schema)
        except (SchemaError, RecursionError) as error:
            raise self._unusable(error) from error
        # Without a registry of its own, jsonschema would fetch references from the network.
        self._validator: Any = Validator(schema, registry=Registry())

    def encode(self, text: bytes) -> bytes:
        """Return the body of a request for a message in JSON (`from_json`). Bytes are not JSON: a
        method that takes bytes gets them as they are.

        Raises `BadRequest` for a message that does not fit, which has not been sent, and
        `RemoteViolation` if the schema itself does not work.
        """
        body = self._encode(text)
        return body if self._carries.names else wrap_request(self._address, body)

    def _encode(self, text: bytes) -> bytes:
        if len(text) > MESSAGE_SIZE_MAX:
            raise _refused("$", f"it has {len(text)} bytes; the maximum is {MESSAGE_SIZE_MAX}")
        method = self._method
        if not text and not (is_bytes(method.input) or is_nothing(method.input)):
            raise _refused(*NO_BODY)
        try:
            if text and not is_bytes(method.input):
                self._check(_value(text))
            return from_json(text, method, self._described)
        except FLAWS as error:
            raise _refused(*flaw_of(error)) from error

    def _check(self, message: Any) -> None:
        try:
            flaw = best_match(self._validator.iter_errors(message))
        except RecursionError as error:
            if _depth(message) > _ORDINARY_DEPTH:
                raise _refused("$", "it is nested too deeply") from error
            raise self._unusable("its schema refers to itself without end") from error
        except (Unresolvable, UnknownType, re.error) as error:
            raise self._unusable(error) from error
        if flaw is not None:
            raise _refused(flaw.json_path, flaw.message)

    def _decode(self, body: bytes, attempts: int) -> Any:
        method = self._method
        try:
            said = to_json(body, method, self._described.codec)
            return said if is_bytes(method.output) else _value(said)
        except FLAWS as error:
            raise bad_reply(*flaw_of(error), attempts) from error

    def _unusable(self, reason: object) -> RemoteViolation:
        text = shortened(str(reason).partition("\n")[0])
        return RemoteViolation(f"{self._whose} cannot be used, so nothing was sent: {text}")


def _method_of(described: Description, address: str) -> DescribedMethod:
    for method in described.methods:
        if method.address == address:
            return method
    service, _, name = address.rpartition(".")
    known = ", ".join(each.address.removeprefix(f"{service}.") for each in described.methods)
    reason = shortened(f"{service} has no method {name}; it has {known or 'none'}")
    text = f"{reason}; the request was not sent"
    raise BadRequest(text, path="$", reason=reason, may_have_executed=False)


def _refused(path: str, reason: str) -> BadRequest:
    path, reason = shortened(path), shortened(reason)
    text = f"{path}: {reason}; the request was not sent, so it has not run"
    return BadRequest(text, path=path, reason=reason, may_have_executed=False)


def _depth(value: Any) -> int:
    """Return how deeply a value is nested."""
    depth, level = 0, [value]
    while level:
        depth += 1
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return depth
