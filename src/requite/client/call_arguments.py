"""Validate a call and turn it into the engine's `Submit`; shared by both clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from types import EllipsisType
from typing import Any, Final, Protocol

from requite.engine import Submit
from requite.errors import CallError, CallTimeout, ConfigurationError
from requite.request import Deadline, Reply
from requite.shell import clock
from requite.speaks.plans import Traits

Timeout = float | Deadline | EllipsisType | None
"""Seconds; a `Deadline` that several calls share; None: no limit; `...`: the client's default."""

BytesLike = bytes | bytearray | memoryview
CallBody = BytesLike | Sequence[BytesLike]

TIMEOUT_S: Final = 30.0  # the default of a client
_SERVICES_KNOWN_MAX: Final = 1024
_BYTES: Final = {bytes}


class Taker(Protocol):
    """Receiver of a call's result; every `asyncio.Future` is one. Hashed by identity."""

    def done(self) -> bool: ...
    def set_result(self, reply: Reply, /) -> None: ...
    def set_exception(self, error: CallError, /) -> None: ...


class SubmitBuilder:
    """Builds the `Submit` of each call from a client's defaults and its protocol's traits.

    `service` is that of calls that name none.
    """

    __slots__ = ("_known", "_size_max", "_timeout_s", "_traits", "service")

    def __init__(self, service: str, timeout: float | None, traits: Traits, size_max: int) -> None:
        if size_max < 1:
            raise ConfigurationError(f"message_size_max must be at least 1, not {size_max}")
        self.service = service
        self._timeout_s = inf if timeout is None else check_timeout(timeout)
        self._traits = traits
        self._size_max = size_max
        self._known: set[str] = set()
        if service:
            self._learn(service)

    def submit(
        self,
        token: Any,
        body: CallBody,
        now: float,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        key: bytes = b"",
        partials: bool = False,
    ) -> Submit:
        """Build the engine's input for a call made at `now`.

        Raises `ConfigurationError` for what the client's protocol does not support, `TypeError` for
        a body that is not bytes.
        """
        if body.__class__ is bytes:
            frames: Sequence[bytes] = (body,)
            size = len(body)
        else:
            frames = frames_of(body)
            size = sum(map(len, frames))
            self._traits.check_frames(len(frames))
        if size > self._size_max:
            raise ConfigurationError(
                f"the body has more than the {self._size_max} bytes of message_size_max; raise"
                " message_size_max here and at the peers"
            )
        name = self.service if service is None else service
        if name not in self._known:
            self._learn(name)
        if timeout is ...:
            deadline = now + self._timeout_s
        elif timeout.__class__ is float and timeout > 0:  # the usual case, without a call
            deadline = now + timeout
        elif isinstance(timeout, Deadline):
            deadline = timeout.at
        else:
            deadline = inf if timeout is None else now + check_timeout(timeout)
        if key or partials or not idempotent:
            self._traits.check(key=key, partials=partials, idempotent=idempotent)
        return Submit(token, name, frames, deadline, idempotent, key, partials)

    def until(self, now: float, timeout: Timeout) -> float:
        """Return the deadline, as an instant, of a call made at `now`."""
        if timeout is ...:
            return now + self._timeout_s
        if isinstance(timeout, Deadline):
            return timeout.at
        return inf if timeout is None else now + check_timeout(timeout)

    def _learn(self, service: str) -> None:
        """Validate a service name and cache it."""
        self._traits.check_service(service)
        if len(self._known) >= _SERVICES_KNOWN_MAX:
            self._known.clear()
        self._known.add(service)


def deadline(timeout: float | None) -> Deadline:
    """Return a deadline `timeout` seconds from now (None: no limit) that several calls can share.

        deadline = requite.deadline(2.0)
        first = client.call(b"a", timeout=deadline)
        second = client.call(first.body, timeout=deadline)

    A handler passes its caller's remaining time on with `requite.deadline(request.remaining_s)`.
    Raises `ConfigurationError` for a timeout that is not positive.
    """
    return Deadline() if timeout is None else Deadline(clock.now() + check_timeout(timeout))


def check_timeout(timeout: Any) -> float:
    """Return a timeout in seconds; raise `ConfigurationError` if it is not a positive number."""
    try:
        timeout_s = float(timeout)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"a timeout must be a number of seconds, or None for no limit, not {timeout!r}"
        ) from None
    if not timeout_s > 0:  # also refuses nan
        raise ConfigurationError(f"a timeout must be positive, not {timeout!r}")
    return timeout_s


def frames_of(body: Any) -> Sequence[bytes]:
    """Return the frames of a body; raise `TypeError` unless it is bytes or a sequence of bytes."""
    # A submission's body: 0.4 us here, 1.1 us by the steps below.
    if body.__class__ is tuple and _BYTES.issuperset(map(type, body)):
        return body or (b"",)
    if isinstance(body, bytes | bytearray | memoryview):
        return (bytes(body),)
    if isinstance(body, str):
        raise TypeError("a body must be bytes, not str; encode it: text.encode()")
    if not isinstance(body, Sequence):
        raise TypeError(f"a body must be bytes or a sequence of bytes, not {type(body).__name__}")
    return tuple(map(_frame, body)) or (b"",)


def check_bodies(bodies: Any) -> None:
    """Raise `TypeError` unless `bodies` is an iterable of bodies; a single body is refused, too."""
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise TypeError("map takes an iterable of bodies, not a single body; use call")
    if not isinstance(bodies, Iterable):
        raise TypeError(f"map takes an iterable of bodies, not {type(bodies).__name__}")


def _frame(frame: Any) -> bytes:
    if isinstance(frame, bytes):
        return frame
    if isinstance(frame, bytearray | memoryview):
        return bytes(frame)
    raise TypeError(f"the frames of a body must be bytes, not {type(frame).__name__}")


class Troubled(Protocol):
    """A shell; `trouble` says why it has no connection."""

    @property
    def trouble(self) -> str: ...


def explain(error: CallError, shell: Troubled) -> CallError:
    """Add to the timeout of a call that was never sent why there was no connection."""
    if error.attempts or not isinstance(error, CallTimeout) or not (trouble := shell.trouble):
        return error
    return error.reworded(f"{error} ({trouble})", may_have_executed=False)
