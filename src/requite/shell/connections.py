"""The connections of a shell: which address is dialled when, and what went wrong last.

A plan says what there is to connect to (`Connections`). A `ConnectionKeeper` has an `AddressList`
for what the engine asks for by `Connect`, and a `PersistentConnection` for each endpoint that the
shell stays connected to by itself. The asyncio shell and the blocking one dial what these say
(`aio_dialler`, `sync_dialler`), and so does the simulator; nothing here dials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, ClassVar, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

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

# The other one of a pair takes over within seconds, and is to be found soon after that.
_PAUSE_AMONG_SEVERAL_S_MAX: Final = 0.5
# How long one of several may take to answer. Doubled whenever all have failed, so that a network
# on which it takes longer keeps nobody away.
_PATIENCE_S: Final = 1.0
_PATIENCE_S_MAX: Final = 8.0
# After a connection that lived for this long, the pauses start anew.
LIVED_S: Final = 1.0


# --- what a plan says -----------------------------------------------------------------------------
def no_framing() -> NoReturn:
    """Stand in for `make_framing` where every endpoint has its own."""
    raise LocalViolation("this shell has only the framings of its endpoints")


class Endpoint(NamedTuple):
    """An address to dial or to listen at, and what is spoken there.

    `place` is told to the engine with every peer that comes by this address. `tls` is for addresses
    that are secure.
    """

    address: Address
    make_framing: Callable[[], Framing]
    place: Any = None
    tls: TlsSettings | None = None


class Connections(NamedTuple):
    """What connects an engine to its peers: where its shell dials and listens.

    An engine that asks for its connections has `dial_to`, and `make_framing` for what comes of it.
    One that is connected to many has endpoints: those to `keep` up, and those to `listen` at.

    `read_first`: nothing in a reply tells which request it is for, so what has come has to be read
    before the next request leaves. A client whose threads read only while they wait has to look.
    """

    make_framing: Callable[[], Framing] = no_framing
    dial_to: Sequence[Address] = ()
    keep: Sequence[Endpoint] = ()
    listen: Sequence[Endpoint] = ()
    limits: LinkLimits = LinkLimits()
    read_first: bool = False


# --- what is dialled when -------------------------------------------------------------------------
def backoff_for(addresses: Sequence[Address]) -> Backoff:
    """Return the pauses between two rounds through these addresses."""
    return Backoff(
        entropy.jitter, max_s=_PAUSE_AMONG_SEVERAL_S_MAX if len(addresses) > 1 else MAX_S
    )


class AddressList:
    """The `addresses` of a service (none: it is never asked), which are dialled in turn.

    As many connections as are `wanted` are dialled, one after the other, all to the `current`
    address. When one fails, or ends, the next address has its turn; when each has failed in a row,
    there is a pause.

    Several addresses are those of a pair of which one serves at a time (Guide, "High-availability
    Pair"). Then an address that does not answer is left soon: a process that was stopped still has
    its port, and its system goes on taking connections for it.
    """

    short_s: ClassVar[float] = 0.0
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
        self._links: dict[Link, tuple[Address, float]] = {}  # dialled where, and when
        self._troubles: dict[Address, str] = {}  # since the last connection that worked
        self._has_joined = False  # ever
        self._unshaken: set[Address] = set()  # where the last connection ended in its handshake
        self._refusals: dict[Address, str] = {}

    # --- for diallers -----------------------------------------------------------------------------
    def want(self) -> None:
        """Have one more connection dialled, unless that is over."""
        if not self.is_stopped:
            self.wanted += 1

    def stop(self) -> None:
        """Want no more connections from now on; those that are wanted already are still dialled."""
        self.is_stopped = True

    @property
    def current(self) -> Address:
        """The address to dial now."""
        return self.addresses[self._at]

    def pause_s(self) -> float:
        """Return how long to wait before dialling; 0 unless all addresses have just failed."""
        if not self._failures or self._failures % len(self.addresses):
            return 0.0
        return self._backoff.next_s()

    def timeout_s(self) -> float:
        """Return how long dialling the current address may take."""
        return min(DIAL_TIMEOUT_S, self.patience_s())

    def patience_s(self) -> float:
        """Return how long the current address may take to answer, to the dialling and then to the
        handshake, before another one has its turn; `inf` where there is no other.
        """
        if len(self.addresses) < 2:
            return inf
        rounds = self._failures // len(self.addresses)
        return min(_PATIENCE_S * 2.0 ** min(rounds, 30), _PATIENCE_S_MAX)

    def failed(self, address: Address, error: TransportError) -> None:
        """Note that nobody could be reached at an address."""
        self._unshaken.discard(address)
        self._refusals.pop(address, None)
        self._go_on_from(address, str(error))
        self._failures += 1

    def opened(self, address: Address, link: Link) -> None:
        """Note that a connection stands, and that one less is wanted."""
        self.wanted -= 1
        self._links[link] = (address, self._clock())

    def ended(self, link: Link, reason: str) -> bool:
        """Note that a link has ended, and return whether it was one of these connections.

        One that ended in its handshake counts as a failure.
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

    # --- for messages of errors -------------------------------------------------------------------
    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does.

        While a handshake goes on, why the last one failed tells more than that.
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
        """Why the credentials were refused, or are missing, at every address; "" while one may
        still take us, and once there has been a connection."""
        if any(link.joined for link in self._links):
            return ""
        if not all(address in self._refusals for address in self.addresses):
            return ""
        return "; ".join(self._refusals.values())

    def _note_refusal(self, address: Address, link: Link, trouble: str) -> None:
        self._has_joined = self._has_joined or link.joined
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
    """The one connection to an endpoint, which is wanted from the beginning and whenever it ends.

    Protocols without a broker know several addresses at a time, and all of them are in use (SP).
    Their engines ask for no connection; they are told who has come and gone.

    When it ends it is dialled again at once, unless it was short: a peer that accepts and hangs up
    must not be dialled in a tight loop, so the pauses grow then as if it had not answered.
    """

    short_s = LIVED_S

    def __init__(self, endpoint: Endpoint, backoff: Backoff, clock: Callable[[], float]) -> None:
        super().__init__([endpoint.address], backoff, clock)
        self.endpoint = endpoint
        self.want()

    def ended(self, link: Link, reason: str) -> bool:
        """Note that a link has ended; if it was this connection, it is wanted again."""
        was_ours = super().ended(link, reason)
        if was_ours:
            self.want()
        return was_ours


# --- all of a shell's -----------------------------------------------------------------------------
Opened = Callable[[Any], Link]
"""Gives a new stream to the host."""


class Dialling(Protocol):
    """What dials the addresses of one list."""

    def go_on(self) -> None:
        """Dial, if a connection is wanted and none is being dialled."""


D = TypeVar("D", bound=Dialling)


class ConnectionKeeper(Generic[D]):
    """All that one shell dials; iterate over it for the diallers.

    `make_dialler(addresses, opened, tls)` makes the one of an address list. `opened` is the host's
    method. `backoff` spaces the attempts at `dial_to`.
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
        self._on_demand = make_dialler(self.dial_to, self._open_on_demand, None)
        self._kept: dict[PersistentConnection, D] = {}
        for endpoint in connections.keep:
            self.keep(endpoint)

    def __iter__(self) -> Iterator[D]:
        yield self._on_demand
        yield from self._kept.values()

    def connect(self) -> None:
        """Do what an engine's `Connect` stands for."""
        self.dial_to.want()
        self._on_demand.go_on()

    def begin(self) -> None:
        """Dial all that is kept for the first time, unless that is over already."""
        for kept, dialler in self._kept.items():
            if not kept.is_stopped:
                dialler.go_on()

    def keep(self, endpoint: Endpoint) -> D:
        """Keep a connection to one more endpoint, and return what dials it."""
        kept = PersistentConnection(endpoint, Backoff(entropy.jitter), clock.now)
        opened = opener(self._opened, endpoint, kept=True)
        self._kept[kept] = dialler = self._make_dialler(kept, opened, endpoint.tls)
        return dialler

    def ended(self, link: Link, reason: str) -> None:
        """Note that a link has ended; see to it that it is dialled again, if it is kept."""
        self.dial_to.ended(link, reason)
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.go_on()

    def trouble(self, links: Iterable[Link], listening: Iterable[Address]) -> str:
        """Return why there is nobody to talk to, for the message of an error; "" if there is."""
        if any(link.joined and not link.ended for link in links):
            return ""
        troubles = [trouble for _, trouble in self.troubles()]
        troubles += [f"nobody is connected to {address}" for address in listening]
        return "; ".join(dict.fromkeys(troubles))  # there may be several connections to one address

    def troubles(self) -> list[tuple[Address, str]]:
        """Return for each list the address to dial now, and why there is no connection; "" where
        there is. Those that are kept up come first, in their order."""
        lists: list[AddressList] = [*self._kept]
        if self.dial_to.addresses:
            lists.append(self.dial_to)
        return [(each.current, each.trouble) for each in lists]

    def kept_trouble(self) -> str:
        """Return why connections that are kept up do not stand; "" if they do."""
        return "; ".join(filter(None, (kept.trouble for kept in self._kept)))

    def _open_on_demand(self, stream: Any) -> Link:
        return self._opened(stream, patience_s=self.dial_to.patience_s())


def accepter(host: Host, endpoint: Endpoint) -> Opened:
    """Return what gives the streams that an endpoint accepts to the host, which makes room for them
    where file descriptors run short."""
    give = opener(host.opened, endpoint, accepted=True)
    if isinstance(endpoint.address, InprocAddress):  # it takes none
        return give

    def accept(stream: Any) -> Link:
        link = give(stream)
        if told := shortage(host.giving_way):
            host.make_room(link, told)
        return link

    return accept


def opener(opened: Callable[..., Link], endpoint: Endpoint, **how: bool) -> Opened:
    """Return what gives the streams of an endpoint to the host."""

    def give(stream: Any) -> Link:
        return opened(stream, framing=endpoint.make_framing(), place=endpoint.place, **how)

    return give
