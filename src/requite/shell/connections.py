"""The connections of a shell: which address to dial when, and the last error of each.

A plan lists its addresses as `Connections`. A `ConnectionKeeper` has an `AddressList` for the
engine's `Connect` effects, and a `PersistentConnection` for each endpoint that the shell reconnects
to. This module does not dial: the asyncio shell (`aio_dialler`), the blocking shell
(`sync_dialler`) and the simulator do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from requite.backoff import MAX_S, Backoff
from requite.errors import LocalViolation, TransportError
from requite.framing.base import Framing
from requite.shell import clock, entropy
from requite.shell.host import Host
from requite.shell.link import Link, LinkLimits
from requite.transport.address import Address, InprocAddress
from requite.transport.base import DIAL_TIMEOUT_S
from requite.transport.descriptors import shortage
from requite.transport.tls import TlsSettings

# The standby of a pair takes over within seconds, and must be found soon after.
_PAUSE_AMONG_SEVERAL_S_MAX: Final = 0.5
# Time limit for one of several addresses to answer. Doubled whenever all have failed, so that a
# slow network does not prevent every connection.
_PATIENCE_S: Final = 1.0
_PATIENCE_S_MAX: Final = 8.0
# A connection that lived for this long resets the back-off.
LIVED_S: Final = 1.0


# --- plans ----------------------------------------------------------------------------------------
def no_framing() -> NoReturn:
    """Stand in for `make_framing` if every endpoint has its own."""
    raise LocalViolation("this shell cannot connect to an address without a framing for it")


class Endpoint(NamedTuple):
    """An address to dial or to listen at, with its framing.

    `place` is passed to the engine with every peer of this address. `tls`: settings for secure
    addresses.
    """

    address: Address
    make_framing: Callable[[], Framing]
    place: Any = None
    tls: TlsSettings | None = None


class Connections(NamedTuple):
    """The addresses that an engine's shell dials and listens at.

    For an engine that requests connections: `dial_to`, `make_framing` for their framing, and `tls`
    if their addresses are secure. For one with several peers: endpoints with persistent connections
    (`keep`) and to `listen` at.

    `read_first`: replies carry no request id, so the shell must read pending replies before it
    sends the next request. This matters for the blocking shell, which reads only while a thread
    waits.
    """

    make_framing: Callable[[], Framing] = no_framing
    dial_to: Sequence[Address] = ()
    keep: Sequence[Endpoint] = ()
    listen: Sequence[Endpoint] = ()
    limits: LinkLimits = LinkLimits()
    read_first: bool = False
    tls: TlsSettings | None = None


# --- dialling order -------------------------------------------------------------------------------
def backoff_for(addresses: Sequence[Address]) -> Backoff:
    """Return the back-off between rounds through these addresses."""
    return Backoff(
        entropy.jitter, max_s=_PAUSE_AMONG_SEVERAL_S_MAX if len(addresses) > 1 else MAX_S
    )


class AddressList:
    """The `addresses` of a service, dialled in turn; empty if the engine never connects.

    `wanted` connections are dialled one after another, all to the `current` address. When one fails
    or ends, the next address becomes current; after all have failed in a row, there is a pause.

    Several addresses belong to a pair, one of which serves at a time (Guide, "High-availability
    Pair"). An address that does not answer is then given up soon: the port of a stopped process
    still accepts connections.
    """

    short_s = 0.0
    """A connection that lived for less than this counts as a failure."""

    def __init__(
        self, addresses: Sequence[Address], backoff: Backoff, clock: Callable[[], float]
    ) -> None:
        self.addresses = tuple(addresses)
        self.wanted = 0
        self._backoff = backoff
        self._clock = clock
        self.is_stopped = False
        self._at = 0
        self._failures = 0  # in a row
        self._links: dict[Link, tuple[Address, float]] = {}  # the address, and when it was dialled
        self._troubles: dict[Address, str] = {}  # since the last connection that worked
        self._has_joined = False  # ever
        self._unshaken: set[Address] = set()  # the last connection ended during its handshake
        self._refusals: dict[Address, str] = {}

    # --- for diallers -----------------------------------------------------------------------------
    def want(self) -> None:
        """Request one more connection, unless the list is stopped."""
        if not self.is_stopped:
            self.wanted += 1

    def stop(self) -> None:
        """Ignore further requests for connections; those wanted already are still dialled."""
        self.is_stopped = True

    @property
    def current(self) -> Address:
        """The address to dial now."""
        return self.addresses[self._at]

    def pause_s(self) -> float:
        """Return the seconds to wait before dialling; 0 unless all addresses have just failed."""
        if not self._failures or self._failures % len(self.addresses):
            return 0.0
        return self._backoff.next_s()

    def timeout_s(self) -> float:
        """Return the time limit, in seconds, for dialling the current address."""
        return min(DIAL_TIMEOUT_S, self.patience_s())

    def patience_s(self) -> float:
        """Return the time limit, in seconds, for the current address to accept, and then for its
        handshake, before the next address is tried; `inf` if there is only one.
        """
        if len(self.addresses) < 2:
            return inf
        rounds = self._failures // len(self.addresses)
        return min(_PATIENCE_S * 2.0 ** min(rounds, 30), _PATIENCE_S_MAX)

    def failed(self, address: Address, error: TransportError) -> None:
        """Record a failed attempt to dial an address."""
        self._unshaken.discard(address)
        self._refusals.pop(address, None)
        self._go_on_from(address, str(error))
        self._failures += 1

    def opened(self, address: Address, link: Link) -> None:
        """Record an open connection; one fewer is wanted."""
        self.wanted -= 1
        self._links[link] = (address, self._clock())

    def ended(self, link: Link, reason: str) -> bool:
        """Record the end of a link; return whether it was one of these connections.

        A connection that ended during its handshake counts as a failure.
        """
        if link not in self._links:
            return False
        address, opened_at = self._links.pop(link)
        lived_s = self._clock() - opened_at if link.joined else 0.0
        if lived_s >= LIVED_S:
            self._backoff.reset()
        if link.joined and lived_s >= self.short_s:
            self._failures = 0
        else:
            self._failures += 1
        if link.joined:
            self._troubles.clear()
            self._unshaken.clear()
        else:
            self._unshaken.add(address)
        trouble = f"the connection to {address} ended: {reason}"
        self._note_refusal(address, link, trouble)
        self._go_on_from(address, trouble)
        return True

    # --- for error messages -----------------------------------------------------------------------
    @property
    def trouble(self) -> str:
        """Why there is no connection, for error messages; "" if there is one.

        During a handshake this is the reason why the previous handshake failed, if it did.
        """
        if any(link.joined for link in self._links):
            return ""
        troubles = self._troubles | {
            address: f"{address} has not completed the handshake yet"
            for address, _ in self._links.values()
            if address not in self._unshaken
        }
        told = [troubles[address] for address in self.addresses if address in troubles]
        return "; ".join(told) or f"{self._names()} has not answered yet"

    @property
    def refusal(self) -> str:
        """Why every address refused the credentials or their absence; "" while one may still accept
        them, and once there has been a connection."""
        if any(link.joined for link in self._links):
            return ""
        if not all(address in self._refusals for address in self.addresses):
            return ""
        return "; ".join(self._refusals.values())

    def _note_refusal(self, address: Address, link: Link, trouble: str) -> None:
        self._has_joined = self._has_joined or (link.joined and not link.framing.refusal)
        if link.framing.refusal and not self._has_joined:
            self._refusals[address] = trouble
        else:
            self._refusals.pop(address, None)

    def _go_on_from(self, address: Address, trouble: str) -> None:
        self._troubles[address] = trouble
        if address == self.current:  # several connections may end at once
            self._at = (self._at + 1) % len(self.addresses)

    def _names(self) -> str:
        return " or ".join(map(str, self.addresses))


class PersistentConnection(AddressList):
    """A connection to one endpoint that is dialled from the beginning and whenever it ends.

    Protocols without a broker use several addresses at a time (SP). Their engines request no
    connections; they only get `PeerJoined` and `PeerLost`.

    When the connection ends it is redialled at once, unless it was short: a peer that accepts and
    closes connections must not be dialled in a tight loop. The pauses then grow as after failed
    attempts.
    """

    short_s = LIVED_S

    def __init__(self, endpoint: Endpoint, backoff: Backoff, clock: Callable[[], float]) -> None:
        super().__init__([endpoint.address], backoff, clock)
        self.endpoint = endpoint
        self.want()

    def ended(self, link: Link, reason: str) -> bool:
        """Record the end of a link; if it was this connection, dial again."""
        was_ours = super().ended(link, reason)
        if was_ours:
            self.want()
        return was_ours


# --- all connections of a shell -------------------------------------------------------------------
Opened = Callable[[Any], Link]
"""Passes a new stream to the host."""


class Dialling(Protocol):
    """A dialler of one address list."""

    def go_on(self) -> None:
        """Dial, if a connection is wanted and none is being dialled."""


D = TypeVar("D", bound=Dialling)


class ConnectionKeeper(Generic[D]):
    """All address lists that a shell dials; iterate over it for their diallers.

    `make_dialler(addresses, opened, tls)` makes the dialler of an address list. `opened` is the
    host's method. `backoff` sets the pauses between attempts at `dial_to`.
    """

    def __init__(
        self,
        connections: Connections,
        opened: Callable[..., Link],
        make_dialler: Callable[[AddressList, Opened, TlsSettings | None], D],
        backoff: Backoff | None = None,
    ) -> None:
        self.dial_to = AddressList(
            connections.dial_to, backoff or backoff_for(connections.dial_to), clock.now
        )
        self._opened = opened
        self._make_dialler = make_dialler
        self._on_demand = make_dialler(self.dial_to, self._open_on_demand, connections.tls)
        self._kept: dict[PersistentConnection, D] = {}
        for endpoint in connections.keep:
            self.keep(endpoint)

    def __iter__(self) -> Iterator[D]:
        yield self._on_demand
        yield from self._kept.values()

    def connect(self) -> None:
        """Perform an engine's `Connect`."""
        self.dial_to.want()
        self._on_demand.go_on()

    def begin(self) -> None:
        """Dial all persistent connections for the first time, unless they are stopped."""
        for kept, dialler in self._kept.items():
            if not kept.is_stopped:
                dialler.go_on()

    def keep(self, endpoint: Endpoint) -> D:
        """Add a persistent connection to an endpoint; return its dialler."""
        kept = PersistentConnection(endpoint, Backoff(entropy.jitter), clock.now)
        opened = opener(self._opened, endpoint, kept=True)
        self._kept[kept] = dialler = self._make_dialler(kept, opened, endpoint.tls)
        return dialler

    def ended(self, link: Link, reason: str) -> None:
        """Record the end of a link; redial it if it is persistent."""
        self.dial_to.ended(link, reason)
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.go_on()

    def trouble(self, links: Iterable[Link], listening: Iterable[Address]) -> str:
        """Return why no peer is connected, for error messages; "" if one is."""
        if any(link.joined and not link.ended for link in links):
            return ""
        troubles = [trouble for _, trouble in self.troubles()]
        troubles += [f"no peer is connected to {address}" for address in listening]
        return "; ".join(dict.fromkeys(troubles))  # there may be several connections to one address

    def troubles(self) -> list[tuple[Address, str]]:
        """Return for each list its current address and why there is no connection ("": there is
        one). Persistent connections come first, in order."""
        lists: list[AddressList] = [*self._kept]
        if self.dial_to.addresses:
            lists.append(self.dial_to)
        return [(each.current, each.trouble) for each in lists]

    def kept_trouble(self) -> str:
        """Return why persistent connections are down; "" if all are up."""
        return "; ".join(filter(None, (kept.trouble for kept in self._kept)))

    def _open_on_demand(self, stream: Any) -> Link:
        return self._opened(stream, patience_s=self.dial_to.patience_s())


def accepter(host: Host, endpoint: Endpoint) -> Opened:
    """Return a function that passes an endpoint's accepted streams to the host, and has it drop a
    connection when file descriptors run short."""
    give = opener(host.opened, endpoint, accepted=True)
    if isinstance(endpoint.address, InprocAddress):  # inproc uses no descriptors
        return give

    def accept(stream: Any) -> Link:
        link = give(stream)
        if told := shortage(host.giving_way):
            host.make_room(link, told)
        return link

    return accept


def opener(opened: Callable[..., Link], endpoint: Endpoint, **how: bool) -> Opened:
    """Return a function that passes an endpoint's streams to the host."""

    def give(stream: Any) -> Link:
        return opened(stream, framing=endpoint.make_framing(), place=endpoint.place, **how)

    return give
