"""Settings of clients and workers, and the plans that a protocol makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from requite.chronicle import Chronicle
from requite.core.calls import Calls
from requite.core.jobs import Jobs
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Engine
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX
from requite.request import RetryPolicy
from requite.shell.connections import Connections
from requite.transport.address import Address

CAPACITY_DEFAULT: Final = 16
"""How many requests a worker takes at a time: enough that the next request is already here when one
is answered."""

PATIENCE_S: Final = 1.0
"""Seconds before a worker logs that it waits for its peer. A broker that is started together with
its worker is up by then."""


NO_DIALECTS: Final = "no dialects (MDP has)"
NO_HOLD_BACK: Final = "no broker that reports expired calls (MDP 0.3 has)"
NO_LEASES: Final = "no handler leases (MDP 0.3 has, or use asyncio.timeout() in the handler)"
"""Features that several protocols lack, in the words of `refuse_given`."""


class Carries(NamedTuple):
    """What messages carry besides their bodies, where typed services need it.

    `names`: the name of the service. `refusals`: negative replies. `partials`: partial replies.
    """

    names: bool
    refusals: bool
    partials: bool


BODIES: Final = Carries(names=False, refusals=False, partials=False)
"""Of protocols whose messages carry nothing but bodies."""


# --- clients --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The user's settings of a client; None: not given."""

    retry: RetryPolicy | None
    slots: int
    heartbeat: HeartbeatPolicy | float | None
    dialect: str | None
    connections: int
    message_size_max: int
    hold_back: float | None = None


class Traits(Protocol):
    """The call options that a protocol supports; unsupported ones are refused, never ignored."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Raise `ConfigurationError` for call options that the protocol does not support."""

    def check_service(self, service: str) -> None:
        """Raise `ConfigurationError` for an invalid service name ("": no name was given)."""

    def check_frames(self, count: int) -> None:
        """Raise `ConfigurationError` for a body with more frames than peers accept."""


@dataclass(frozen=True, slots=True)
class PlainTraits:
    """Traits of a protocol without service names and keys: one request, one reply.

    For error messages, `protocol` is its name ("SP") and `whom` the peer to dial for a service
    ("the place that serves it"). `frames_max`: how many frames of a body peers accept.
    """

    protocol: str
    whom: str
    frames_max: int = BODY_FRAMES_MAX

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Refuse partial replies and idempotency keys, which need a header."""
        if partials:
            raise ConfigurationError(
                f"{self.protocol} has no partial replies; use `call` instead of `stream`, or MDP"
            )
        if key:
            raise ConfigurationError(
                f"{self.protocol} does not carry idempotency keys; use MDP 0.3"
            )

    def check_service(self, service: str) -> None:
        """Refuse any service name."""
        if service:
            raise ConfigurationError(
                f"{self.protocol} has no service names, so {service!r} cannot be addressed; connect"
                f" to {self.whom}, or use MDP"
            )

    def check_frames(self, count: int) -> None:
        """Refuse a body with more frames than peers accept."""
        if self.frames_max == 1 and count > 1:
            raise ConfigurationError(
                f"the body has {count} frames, but {self.protocol} carries only one; join"
                " them, or use MDP"
            )
        check_body_frames(count)


def check_body_frames(count: int) -> None:
    """Raise `ConfigurationError` for a body with more than `BODY_FRAMES_MAX` frames."""
    if count > BODY_FRAMES_MAX:
        raise ConfigurationError(f"the body has {count} frames; the maximum is {BODY_FRAMES_MAX}")


class CallEngine(Engine, Protocol):
    """A client's engine, with its table of calls."""

    @property
    def calls(self) -> Calls[Any]: ...


class ClientPlan(NamedTuple):
    """A protocol's plan for one client; `make_engine` may be called again for a fresh engine.

    `make_engine(origin, chronicle)`: `origin` is the first half of the call ids (8 random bytes).
    `holds`: the engine buffers calls while all peers push back, so the client need not pause.
    """

    make_engine: Callable[[bytes, Chronicle | None], CallEngine]
    connections: Connections
    traits: Traits
    holds: bool = False


# --- workers --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The user's settings of a worker; None: not given.

    `name` identifies the worker in journals; its engines record in `chronicle`.
    """

    capacity: int | None
    heartbeat: HeartbeatPolicy | float | None
    handler_timeout: float | None
    threads: int | None
    dialect: str | None
    hops: int | None
    message_size_max: int
    name: bytes
    chronicle: Chronicle | None


def refuse_given(
    settings: ClientSettings | WorkerSettings, whose: str, absent: Mapping[str, str]
) -> None:
    """Raise `ConfigurationError` for a given setting that the protocol does not support. `absent`
    maps settings to the missing feature; `whose` begins the sentence ("SP has")."""
    for name, what in absent.items():
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"{whose} {what}; remove `{name}`")


class Served(Protocol):
    """A service, as far as plans need it."""

    @property
    def name(self) -> str:
        """The service name."""

    @property
    def in_thread(self) -> bool:
        """Whether the handler runs in a thread."""


S = TypeVar("S", bound=Served)


class WorkEngine(Engine, Protocol):
    """A worker's engine, with its table of jobs."""

    @property
    def jobs(self) -> Jobs[Any]: ...

    @property
    def is_answered(self) -> bool:
        """Whether the peer has acknowledged the worker on this connection, or need not."""


def _take_note(_addresses: Sequence[Address]) -> None:
    """Ignore the bound addresses, as most protocols do."""


def no_call_id(_token: Any) -> bytes:
    """Return no call id, for protocols without them."""
    return b""


class Unanswered(NamedTuple):
    """What to log of a peer that does not acknowledge the worker, and after how many seconds.

    `text` follows the address: "has not answered READY".
    """

    text: str = ""
    patience_s: float = PATIENCE_S


class ServicePlan(NamedTuple, Generic[S]):
    """A plan to serve one service: an engine and connections.

    At most `capacity` requests are in hand at a time, and at most `threads` calls of a `def`
    handler run. A reply has at most `frames_max` frames. `holds`: the engine buffers partial
    replies while a peer pushes back, so handlers need not pause. `bound` gets the bound addresses,
    with actual ports. `call_id` maps a request's token to its call id, equal for all attempts
    (empty: unknown). `unanswered` is for protocols whose peer acknowledges the worker before it
    sends requests.
    """

    service: S
    engine: WorkEngine
    connections: Connections
    capacity: int
    threads: int
    frames_max: int
    holds: bool = False
    bound: Callable[[Sequence[Address]], object] = _take_note
    call_id: Callable[[Any], bytes] = no_call_id
    unanswered: Unanswered = Unanswered()
