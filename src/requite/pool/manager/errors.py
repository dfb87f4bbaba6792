"""What goes wrong with RabbitMQ, in words that name the setting to look at."""

from __future__ import annotations

from typing import Final

from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    IncompatibleProtocolError,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from requite.url import redact

FAILURES: Final = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError, EOFError)
"""Whatever an operation on a connection may raise when RabbitMQ refuses, or is gone."""

_REFUSALS: Final = (
    (ProbableAuthenticationError, "RabbitMQ refuses user and password"),
    (AuthenticationError, "RabbitMQ refuses user and password"),
    (ConnectionNotAllowed, "there is no such virtual host, or the user may not use it"),
    (IncompatibleProtocolError, "who answers there speaks no AMQP 0.9.1"),
    (ChannelAccessRefused, "the user may not do what a manager does"),
    (ChannelPreconditionFailed, "an exchange or queue of the pool is there, made otherwise"),
)


def is_taken(error: BaseException) -> bool:
    """Whether somebody else consumes exclusively."""
    taken = isinstance(error, ChannelAccessRefused) and "exclusive use" in str(error)
    return taken or isinstance(error, ChannelLockedResource)


def refusal(error: BaseException, url: str) -> str | None:
    """Return why RabbitMQ will not do what it was asked, however often; None for other failures."""
    if isinstance(error, InvalidFrameError) and "OpenOk" in str(error):
        # What aiormq makes of a connection that is closed in place of opened.
        error = ConnectionNotAllowed()
    for kind, text in _REFUSALS:
        if isinstance(error, kind):
            why = f"{text}: {error}" if error.args else text
            return f"rabbitmq.url ({redact(url)}): {why}"
    return None


def sentence(error: BaseException, url: str) -> str:
    """Return a failure as a sentence."""
    known = refusal(error, url)
    return known or f"rabbitmq.url ({redact(url)}): {type(error).__name__}: {error}"
