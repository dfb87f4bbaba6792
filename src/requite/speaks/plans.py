"""What clients and workers are made of: the settings that users give, and what a protocol makes of
them."""

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
"""How many requests a worker takes at a time: enough for the next one to be here when one is
answered, on any network where that matters."""

PATIENCE_S: Final = 1.0
"""How long a far end may take before a worker says that it waits. A broker that is started together
with its worker is there by then."""


NO_DIALECTS: Final = "no dialects (MDP has)"
NO_HOLD_BACK: Final = "no broker that reports expired calls (MDP 0.3 has)"
NO_LEASES: Final = "no handler leases (MDP 0.3 has, or use asyncio.timeout() in the handler)"
"""What several protocols do not have, as `refuse_given` says it."""


# --- clients --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a user may set on a client, as it was given; None: not given."""

    retry: RetryPolicy | None
    slots: int
    heartbeat: HeartbeatPolicy | float | None
    dialect: str | None
    connections: int
    message_size_max: int
    hold_back: float | None = None


class Traits(Protocol):
    """What a protocol can promise for a call; what it cannot is refused, never dropped."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Raise `ConfigurationError` for what is asked of a call and cannot be had."""

    def check_service(self, service: str) -> None:
        """Raise `ConfigurationError` for a name that no service can have ("": none is named)."""

    def check_frames(self, count: int) -> None:
        """Raise `ConfigurationError` for a body of so many frames that peers do not take it."""


@dataclass(frozen=True, slots=True)
class PlainTraits:
    """What a protocol promises that has neither names nor keys: a request, and one reply to it.

    `protocol` begins what is refused ("SP"); `whom` says whom to dial for a service ("the place
    that serves it"). `frames_max`: how many frames of a body peers take.
    """

    protocol: str
    whom: str
    frames_max: int = BODY_FRAMES_MAX

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Anything but a plain call takes a protocol with a header."""
        if partials:
            raise ConfigurationError(f"{self.protocol} has no partial replies; use call, or MDP")
        if key:
            raise ConfigurationError(
                f"{self.protocol} does not carry idempotency keys; use MDP 0.3"
            )

    def check_service(self, service: str) -> None:
        """Any peer serves everything."""
        if service:
            raise ConfigurationError(
                f"{self.protocol} has no service names, so {service!r} cannot be addressed; connect"
                f" to {self.whom}, or use MDP"
            )

    def check_frames(self, count: int) -> None:
        """Peers have a limit, too."""
        if self.frames_max == 1 and count > 1:
            raise ConfigurationError(
                f"the body has {count} frames, and {self.protocol} carries one; join them, or use"
                " MDP"
            )
        check_body_frames(count)


def check_body_frames(count: int) -> None:
    """Raise `ConfigurationError` for a body of more frames than peers with frames take."""
    if count > BODY_FRAMES_MAX:
        raise ConfigurationError(f"the body has {count} frames; the maximum is {BODY_FRAMES_MAX}")


class CallEngine(Engine, Protocol):
    """The engine of a client, and the table of its calls."""

    @property
    def calls(self) -> Calls[Any]: ...


class ClientPlan(NamedTuple):
    """A protocol made ready for one client. Each has a fresh engine, and may be made again.

    `make_engine(origin, chronicle)`: `origin` is the first half of its call ids (8 bytes, random).
    `holds`: while all peers push back the engine keeps calls itself, and need not be spared them.
    """

    make_engine: Callable[[bytes, Chronicle | None], CallEngine]
    connections: Connections
    traits: Traits
    holds: bool = False


# --- workers --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a user may set on a worker, as it was given; None: not given.

    `name` is what journals call the worker, and `chronicle` where its engines write for them.
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
    """Raise `ConfigurationError` for a setting that means nothing to a protocol. `absent` says of
    each what there is none of; `whose` begins the sentence ("SP has")."""
    for name, what in absent.items():
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"{whose} {what}; remove `{name}`")


class Served(Protocol):
    """What a plan has to know of a service."""

    @property
    def name(self) -> str:
        """The name under which it serves."""

    @property
    def in_thread(self) -> bool:
        """Whether its handler runs in a thread."""


S = TypeVar("S", bound=Served)


class WorkEngine(Engine, Protocol):
    """The engine of a worker, and the table of its jobs."""

    @property
    def jobs(self) -> Jobs[Any]: ...

    @property
    def is_answered(self) -> bool:
        """Whether the far end has answered since the connection stands, or need not."""


def _take_note(_addresses: Sequence[Address]) -> None:
    """Do nothing: most do not care by which address they are known."""


def no_call_id(_token: Any) -> bytes:
    """Know of no call ids."""
    return b""


class Unanswered(NamedTuple):
    """What to say of a far end that does not answer, and how long it may take to.

    `text` follows the address that is connected: "has not answered READY".
    """

    text: str = ""
    patience_s: float = PATIENCE_S


class ServicePlan(NamedTuple, Generic[S]):
    """One service of a worker, ready to be served: its own engine and connections.

    At most `capacity` of its requests are in hand at a time, and `threads` calls of a handler that
    is a plain function run. A reply has at most `frames_max` frames. `holds`: the engine keeps
    partial replies itself, and need not be spared them while a peer pushes back. `bound` is told
    where it listens, with the ports it really got. `call_id` tells by the token of a request which
    call of its client it is, the same for all its tries (empty: nobody knows). `unanswered` is for
    engines whose far end has to answer before requests come.
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
