"""Answers to failed requests: problem details (RFC 9457), from the tree of errors.

    {"type": "/problems#CallTimeout", "title": "…", "status": 504, "detail": "…",
     "error": "CallTimeout", "may_have_executed": true, "attempts": 1}

`request_id` is there if the request was sent, and has an ID. `BadRequest` has `path` and `reason`,
too, and an error that the method declares its `data`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from requite.errors import (
    BadReply,
    BadRequest,
    CallError,
    ConfigurationError,
    NoService,
    ProtocolViolation,
    RemoteFailure,
)
from requite.typed.refusals import error_of, told_by

CONTENT_TYPE: Final = "application/problem+json"
_AGAIN: Final = {"Retry-After": "1"}
_PASSING: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Kind(NamedTuple):
    """A kind of failure: the status of its answer, and what happened, in words."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "BadRequest": Kind(400, "The request does not fit the method"),
    "Unauthorized": Kind(401, "The request has no valid token or password"),
    "Denied": Kind(403, "The caller has no right to make this call"),
    "ForeignPage": Kind(403, "The request comes from a web page of another site"),
    "NoMethod": Kind(404, "There is no such method"),
    "BadMethod": Kind(405, "Only another HTTP method is possible here"),
    "LateBody": Kind(408, "The body did not arrive in time"),
    "TooLarge": Kind(413, "The body is too large"),
    "BadType": Kind(415, "The method takes a body of another content type"),
    "ForeignHost": Kind(421, "The request names a host that is not this gateway"),
    "DeclaredError": Kind(422, "The method refused the request with an error that it declares"),
    "QuotaReached": Kind(429, "The user has reached a limit of its quota"),
    "RemoteFailure": Kind(500, "The handler failed"),
    "Internal": Kind(500, "The gateway failed"),
    "BadReply": Kind(502, "The reply does not fit the method"),
    "BadDescription": Kind(502, "The service does not describe itself as a typed service"),
    "WorkerLost": Kind(502, "The worker was lost with the request"),
    "Poisoned": Kind(502, "Every worker that got the request was lost"),
    "TransportError": Kind(503, "The gateway has no connection to the broker"),
    "NoService": Kind(503, "No worker serves the method"),
    "Overloaded": Kind(503, "A limit was reached"),
    "Draining": Kind(503, "The gateway is being stopped"),
    "Cancelled": Kind(503, "The call was cancelled"),
    "SlowReader": Kind(503, "The client reads the partial replies too slowly"),
    "CallTimeout": Kind(504, "The deadline passed without a reply"),
}
"""All kinds of failures, by the name in `type`."""

_BY_STATUS: Final = {404: "NoMethod", 405: "BadMethod"}


class Problem(Exception):
    """An answer other than success. `error` is its name; `kind` its key in `KINDS`, if another."""

    def __init__(
        self,
        error: str,
        detail: str,
        *,
        kind: str = "",
        may_have_executed: bool = False,
        attempts: int = 0,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.error = error
        self.kind = kind or error
        self.may_have_executed = may_have_executed
        self._attempts = attempts
        self._headers = headers
        self._members = members

    @property
    def status(self) -> int:
        """The status of the answer."""
        return KINDS[self.kind].status

    def encoded(self, root: str) -> bytes:
        """Return the object as JSON; `root` is the path under which the gateway is mounted."""
        return msgspec.json.encode(
            {
                "type": f"{root}/problems#{self.kind}",
                "title": KINDS[self.kind].title,
                "status": self.status,
                "detail": str(self),
                "error": self.error,
                "may_have_executed": self.may_have_executed,
                "attempts": self._attempts,
                **self._members,
            }
        )

    def response(self, root: str) -> Response:
        """Return the answer. One with status 429 or 503 says when to try again if the request has
        not run."""
        headers = {"Cache-Control": "no-store", **(self._headers or {})}
        if self.status in _PASSING and not self.may_have_executed:
            headers = _AGAIN | headers
        return Response(self.encoded(root), self.status, headers, CONTENT_TYPE)


def of_status(status: int, detail: str, headers: Mapping[str, str] | None) -> Problem:
    """Return the problem of a request that reaches no method of the gateway."""
    return Problem(_BY_STATUS.get(status, "BadRequest"), detail, headers=headers)


def of_error(error: Exception, declared: Container[str] = ()) -> Problem:
    """Return the problem of a failed call; `declared` are the names of the errors of its method."""
    if isinstance(error, RemoteFailure) and not isinstance(error, BadReply):
        told = told_by(error)
        if told is not None and told["error"] in declared:
            return _declared(told, error)
        error = error_of(error, {})
        if isinstance(error, NoService):  # the service says so itself
            return Problem("NoMethod", str(error), attempts=error.attempts, **_id_of(error))
    if isinstance(error, CallError):
        return _of_call(error)
    if isinstance(error, ProtocolViolation):
        return Problem("BadDescription", str(error))
    if isinstance(error, ConfigurationError):
        return Problem("Internal", str(error))
    raise error


def _declared(told: Mapping[str, Any], failure: RemoteFailure) -> Problem:
    data = {"data": told["data"]} if "data" in told else {}
    return Problem(
        told["error"],
        str(told.get("message", "")),
        kind="DeclaredError",
        may_have_executed=failure.may_have_executed,
        attempts=failure.attempts,
        **_id_of(failure),
        **data,
    )


def _of_call(error: CallError) -> Problem:
    place: dict[str, Any] = {}
    if isinstance(error, BadRequest | BadReply):
        place = {"path": error.path, "reason": error.reason}
    names = (kind.__name__ for kind in type(error).__mro__)
    return Problem(
        next((name for name in names if name in KINDS), "RemoteFailure"),
        str(error),
        may_have_executed=error.may_have_executed,
        attempts=error.attempts,
        **_id_of(error),
        **place,
    )


def _id_of(error: CallError) -> dict[str, Any]:
    return {"request_id": error.request_id} if error.request_id else {}
