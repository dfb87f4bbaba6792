"""The bodies of requests: read within limits, and converted to what a service takes.

Clients send and get JSON, whatever the codec of the service (`requite.typed.transcoding`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from requite.gateway.problems import Problem
from requite.typed.codec import FLAWS, JSON, flaw_of
from requite.typed.schema import is_bytes, is_nothing
from requite.typed.transcoding import from_json, to_json

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive

    from requite.gateway.policy import GatewayPolicy
    from requite.protocols.majordomo.quotas import Usage
    from requite.typed.described import DescribedMethod, Description

JSON_TYPE: Final = "application/json"
BYTES_TYPE: Final = "application/octet-stream"


class Bodies:
    """The bytes of all bodies that a gateway holds."""

    def __init__(self) -> None:
        self.held = 0


class Body:
    """The body of one request. Leaving the context gives its bytes back.

    `usage` counts them for the quota of the user, if there is one.
    """

    usage: Usage | None = None

    def __init__(self, bodies: Bodies, policy: GatewayPolicy) -> None:
        self._bodies: Final = bodies
        self._policy: Final = policy
        self._size = 0
        self.is_read = False

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_error: object) -> None:
        self._bodies.held -= self._size
        if self.usage is not None:
            self.usage.size -= self._size
        self._size = 0

    def check_length(self, field: str) -> None:
        """Refuse a body by its `Content-Length`, before it is read."""
        if field.isdecimal() and len(field) < 20 and int(field) > self._policy.body_size_max:
            raise self._too_large()

    async def read(self, receive: Receive) -> bytes:
        """Return the body. Raises `Problem` for one beyond a limit, and `ClientDisconnect`."""
        chunks = []
        while not self.is_read:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            chunks.append(chunk)
            self._size += len(chunk)
            self._bodies.held += len(chunk)
            if self.usage is not None:
                self.usage.size += len(chunk)
            self.is_read = not message.get("more_body", False)
            if self._size > self._policy.body_size_max:
                raise self._too_large()
            if self._bodies.held > self._policy.bodies_size_max:
                raise Problem("Overloaded", "the gateway holds too many bodies; it has not run")
            if self.usage is not None and self.usage.size > self.usage.bytes_max:
                why = self.usage.exceeds(b"", 0.0)
                raise Problem("QuotaReached", f"{why}; the request has not run")
        return b"".join(chunks)

    def _too_large(self) -> Problem:
        size_max = self._policy.body_size_max
        return Problem("TooLarge", f"the body has more than {size_max} bytes, the maximum")


def check_coding(field: str) -> None:
    """Raise `Problem` for a compressed body: a method of bytes would get it as it is."""
    if field.strip().lower() not in ("", "identity"):
        raise Problem("BadType", "send the body without Content-Encoding; it has not run")


def check_type(headers: Headers, method: DescribedMethod) -> None:
    """Raise `Problem` unless a body has the content type of its method.

    The types are those that web pages of other sites cannot send without the gateway's consent. So
    a method without input takes an empty body without a type only from clients other than pages:
    browsers send `Origin` with each POST of a page.
    """
    field = headers.get("content-type", "")
    if not field and is_nothing(method.input) and _is_empty(headers) and "origin" not in headers:
        return
    wanted = BYTES_TYPE if is_bytes(method.input) else JSON_TYPE
    if field.partition(";")[0].strip().lower() != wanted:
        raise Problem("BadType", f"send Content-Type: {wanted}")


def _is_empty(headers: Headers) -> bool:
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


def payload_of(body: bytes, method: DescribedMethod, described: Description) -> bytes:
    """Return what the service gets. Raises `Problem` for a body that is not JSON, or that has an
    object with a key twice."""
    try:
        return from_json(body, method, described)
    except FLAWS as error:
        path, reason = flaw_of(error)
        raise Problem("BadRequest", f"{path}: {reason}", path=path, reason=reason) from error


def event_data_of(payload: bytes, method: DescribedMethod, codec: str) -> bytes:
    """Return a partial reply as JSON: bytes are a string in base 64, since events are text. Raises
    `Problem` as `json_of`."""
    return JSON.encode(payload) if is_bytes(method.output) else json_of(payload, method, codec)


def json_of(payload: bytes, method: DescribedMethod, codec: str, attempts: int = 1) -> bytes:
    """Return a reply as JSON, or as bytes. Raises `Problem` for one that is neither JSON nor
    MessagePack."""
    try:
        return to_json(payload, method, codec)
    except FLAWS as error:
        path, reason = flaw_of(error)
        raise Problem(
            "BadReply",
            f"the reply is not {codec} that JSON can have: {path}: {reason}; the handler has run",
            may_have_executed=True,
            attempts=attempts,
            path=path,
            reason=reason,
        ) from error
