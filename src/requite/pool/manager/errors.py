"""Errors of RabbitMQ, with messages that name the setting to check."""

from __future__ import annotations

from typing import Final

from requite.errors import ProtocolViolation
from requite.framing.amqp import NO_PASSWORDS, OTHER_PROTOCOL
from requite.speaks.url import redact

# AMQP 0.9.1, section 1.2 of its reference.
_ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
_RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
_NOT_ALLOWED: Final = 530


class Refused(Exception):
    """RabbitMQ refused a method and closed the channel; `code` is its reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectionRefused(Exception):
    """The server refused the connection; `code` is its reply code, or 0."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


FAILURES: Final = (Refused, ConnectionRefused, ProtocolViolation, OSError, TimeoutError)
"""Errors of an operation on a connection that RabbitMQ refuses, or that has ended."""

_NO_USER: Final = "RabbitMQ refused the user name or password"
_NO_VHOST: Final = "the virtual host does not exist, or the user has no access to it"
_REFUSALS: Final = {
    _ACCESS_REFUSED: "the user lacks permissions that a manager requires",
    PRECONDITION_FAILED: "an exchange or queue of the pool exists with other arguments",
}


def is_foreign(reason: str) -> bool:
    """Whether a handshake failed for a reason that no retry changes."""
    return reason.startswith((OTHER_PROTOCOL, NO_PASSWORDS))


def is_taken(error: BaseException) -> bool:
    """Whether another manager consumes exclusively."""
    if not isinstance(error, Refused):
        return False
    taken = error.code == _ACCESS_REFUSED and "exclusive use" in str(error)
    return taken or error.code == _RESOURCE_LOCKED


def refusal(error: BaseException, url: str) -> str | None:
    """Return why RabbitMQ refuses permanently, as a message; None for other failures."""
    match error:
        case ConnectionRefused(code=code) if code == _NOT_ALLOWED:
            why = _NO_VHOST
        case ConnectionRefused(code=code) if code == _ACCESS_REFUSED or _wants_no_password(error):
            why = f"{_NO_USER}: {error}"
        case ConnectionRefused(code=0):
            why = f"the connection was refused: {error}"
        case Refused(code=code) if code in _REFUSALS:
            why = f"{_REFUSALS[code]}: {error}"
        case _:
            return None
    return f"rabbitmq.url ({redact(url)}): {why}"


def _wants_no_password(error: ConnectionRefused) -> bool:
    return str(error).startswith(NO_PASSWORDS)


def sentence(error: BaseException, url: str) -> str:
    """Return the message of a failure."""
    known = refusal(error, url)
    return known or f"rabbitmq.url ({redact(url)}): {type(error).__name__}: {error}"
