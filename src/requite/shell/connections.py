"""The keeper of a shell's connections: where to dial, when, and what went wrong last.

A plan says what a shell connects to (`Connections`). There is the list of addresses by which an
engine's `Connect` goes, and one persistent connection for each address that the shell stays
connected to by itself. Shared by the shells, which bring the diallers; nothing here dials.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from requite.backoff import MAX_S, Backoff, pause_s
from requite.errors import LocalViolation, TransportError
from requite.framing.base import Framing
from requite.shell import clock
from requite.shell.host import Host
from requite.shell.link import Link, LinkLimits
from requite.transport.address import Address, InprocAddress
from requite.transport.descriptors import shortage
from requite.transport.tls import TlsSettings

# The other one of a pair takes over within seconds, and is to be found soon after that.
_PAUSE_AMONG_SEVERAL_S_MAX: Final = 0.5
# How long one of several addresses may take to answer. Doubled whenever all have failed, so that a
# network on which it takes longer keeps nobody away.
_PATIENCE_S: Final = 1.0
_PATIENCE_S_MAX: Final = 8.0
# A listener that accepts and hangs up at once must not be dialled in a tight loop, so a connection
# counts as a success only once it has lived for this long.
_LIVED_S: Final = 1.0


# --- what a plan says -----------------------------------------------------------------------------
class Endpoint(NamedTuple):
    """An address to dial or to listen at, and what is spoken there.

    `place` is told to the engine with every peer that comes by this address. `tls` is for addresses
    that are secure.
    """

    address: Address
    make_framing: Callable[[], Framing]
    place: Any = None
    tls: TlsSettings | None = None


def no_framing() -> NoReturn:
    """Stand in for `make_framing` where every endpoint has its own."""
    raise LocalViolation("this shell has no framing but those of its endpoints")


class Connections(NamedTuple):
    """What a plan gives to a shell.

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


# --- where to dial, and when ----------------------------------------------------------------------
class Dialable(Protocol):
    """Where to dial now, after which pause, and what became of it."""

    @property
    def current(self) -> Address:
        """The address to dial now."""

    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does."""

    def pause_s(self) -> float:
        """Return how long to wait before dialling."""

    def patience_s(self) -> float:
        """Return how long to wait for an answer, at most (`inf`: as long as others allow)."""

    def failed(self, address: Address, error: TransportError) -> None:
        """Note that nobody could be reached."""

    def opened(self, address: Address, link: Link) -> None:
        """Note that a connection stands."""


def backoff_for(addresses: Sequence[Address]) -> Backoff:
    """Return the pauses between two rounds through these addresses."""
    return Backoff(random.random, max_s=_PAUSE_AMONG_SEVERAL_S_MAX if len(addresses) > 1 else MAX_S)


class AddressList:
    """The addresses of a service (none: it is never asked), each dialled in its turn.

    All connections go to the `current` address. When one fails, or ends, the next address has its
    turn; when each has failed in a row, there is a pause. Several addresses are those of a pair of
    which one serves at a time (Guide, "High-availability Pair"). Then an address that does not
    answer is left soon: a process that was stopped still has its port, and its system goes on
    taking connections for it.
    """

    def __init__(
        self, addresses: Sequence[Address], backoff: Backoff, clock: Callable[[], float]
    ) -> None:
        self.addresses = tuple(addresses)
        self._backoff = backoff
        self._clock = clock
        self._at = 0
        self._failures = 0  # in a row
        self._links: dict[Link, tuple[Address, float]] = {}  # dialled where, and when
        self._troubles: dict[Address, str] = {}  # since the last connection that worked
        self._has_joined = False  # ever
        self._unshaken: set[Address] = set()  # where the last connection ended in its handshake
        self._refusals: dict[Address, str] = {}

    @property
    def current(self) -> Address:
        """The address to dial now."""
        return self.addresses[self._at]

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

    def pause_s(self) -> float:
        """Return how long to wait before dialling; 0 unless all addresses have just failed."""
        if not self._failures or self._failures % len(self.addresses):
            return 0.0
        return self._backoff.next_s()

    def patience_s(self) -> float:
        """Return how long the current address may take to answer, to the dialling and then to the
        handshake, before another one has its turn; `inf` where there is no other.
        """
        if len(self.addresses) < 2:
            return inf
        rounds = self._failures // len(self.addresses)
        return pause_s(rounds + 1, _PATIENCE_S, _PATIENCE_S_MAX)

    def failed(self, address: Address, error: TransportError) -> None:
        """Note that nobody could be reached at an address."""
        self._unshaken.discard(address)
        self._refusals.pop(address, None)
        self._go_on_from(address, str(error))
        self._failures += 1

    def opened(self, address: Address, link: Link) -> None:
        """Note that a connection stands."""
        self._links[link] = (address, self._clock())

    def ended(self, link: Link, reason: str) -> None:
        """Note that it has ended; one that ended in its handshake counts as a failure."""
        if link not in self._links:
            return
        address, opened_at = self._links.pop(link)
        if link.joined:
            if self._clock() - opened_at >= _LIVED_S:
                self._backoff.reset()
            self._failures = 0
            self._troubles.clear()
            self._unshaken.clear()
        else:
            self._failures += 1
            self._unshaken.add(address)
        trouble = f"the connection to {address} ended: {reason}"
        self._note_refusal(address, link, trouble)
        self._go_on_from(address, trouble)

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


class PersistentConnection:
    """The one connection to an endpoint that is in use all the time, and dialled by itself.

    Protocols without a broker know several addresses at a time (SP). Their engines ask for no
    connection; they are told who has come and gone. When one ends it is dialled again at once,
    unless it was short: a peer that hangs up on everybody must not be dialled in a tight loop, so
    the pauses grow then as if it had not answered.
    """

    def __init__(self, endpoint: Endpoint, backoff: Backoff, clock: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self._backoff = backoff
        self._clock = clock
        self._opened_at = 0.0
        self._link: Link | None = None
        self._in_vain = False  # the last connection was none, or short
        self._was_refused = False  # it ended in its handshake
        self._trouble = f"{endpoint.address} has not answered yet"

    @property
    def current(self) -> Address:
        """The address to dial."""
        return self.endpoint.address

    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does.

        While a handshake goes on, why the last one came to nothing tells more than that.
        """
        if self._link is None or (self._was_refused and not self._link.joined):
            return self._trouble
        if self._link.joined:
            return ""
        return f"{self.current} has not completed the handshake yet"

    def pause_s(self) -> float:
        """Return how long to wait before dialling."""
        return self._backoff.next_s() if self._in_vain else 0.0

    def patience_s(self) -> float:
        """Return how long to wait for an answer: as long as the dialler likes, for there is no
        other address to go on to."""
        return inf

    def failed(self, _address: Address, error: TransportError) -> None:
        """Note that nobody could be reached."""
        self._trouble = str(error)
        self._in_vain = True
        self._was_refused = False

    def opened(self, _address: Address, link: Link) -> None:
        """Note that the connection stands."""
        self._link = link
        self._opened_at = self._clock()

    def ended(self, link: Link, reason: str) -> bool:
        """Note that a link has ended, and return whether it was this connection."""
        if link is not self._link:
            return False
        lived_s = self._clock() - self._opened_at if link.joined else 0.0
        self._link = None
        self._in_vain = lived_s < _LIVED_S
        if not self._in_vain:
            self._backoff.reset()
        self._was_refused = not link.joined
        self._trouble = f"the connection to {self.current} ended: {reason}"
        return True


# --- all of a shell's connections -----------------------------------------------------------------
class Dialling(Protocol):
    """Who dials one `Dialable`."""

    def want(self) -> None:
        """Dial once more, unless dialling has stopped for good."""


D = TypeVar("D", bound=Dialling)
Opened = Callable[[Any], Link]
"""Gives a new stream to the host."""


class Keeper(Generic[D]):
    """The connections of a shell; iterate over it for their diallers.

    `make_dialler(dialable, opened, tls)` makes one. `opened` is the host's method.
    """

    def __init__(
        self,
        address_list: AddressList,
        opened: Callable[..., Link],
        make_dialler: Callable[[Dialable, Opened, TlsSettings | None], D],
    ) -> None:
        self.address_list = address_list
        self._opened = opened
        self._make_dialler = make_dialler
        self._on_connect = make_dialler(address_list, self._open_asked, None)
        self._kept: dict[PersistentConnection, D] = {}

    def __iter__(self) -> Iterator[D]:
        yield self._on_connect
        yield from self._kept.values()

    def connect(self) -> None:
        """Do what an engine's `Connect` stands for."""
        self._on_connect.want()

    def begin(self) -> None:
        """Dial all that is kept for the first time."""
        for dialler in self._kept.values():
            dialler.want()

    def keep(self, endpoint: Endpoint) -> D:
        """Stay connected to one more endpoint; return who dials it."""
        kept = PersistentConnection(endpoint, Backoff(random.random), clock.now)
        opened = opener(self._opened, endpoint, kept=True)
        self._kept[kept] = dialler = self._make_dialler(kept, opened, endpoint.tls)
        return dialler

    def ended(self, link: Link, reason: str) -> None:
        """Note that a link has ended; see to it that it is dialled again, if it is kept."""
        self.address_list.ended(link, reason)
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.want()

    def trouble(self, links: Iterable[Link], listening: Iterable[Address]) -> str:
        """Return why there is nobody to talk to, for the message of an error; "" if there is."""
        if any(link.joined and not link.ended for link in links):
            return ""
        troubles = [kept.trouble for kept in self._kept]
        if self.address_list.addresses:
            troubles.append(self.address_list.trouble)
        troubles += [f"nobody is connected to {address}" for address in listening]
        return "; ".join(dict.fromkeys(troubles))  # an address may be there several times

    def troubles(self) -> list[tuple[Address, str]]:
        """Return each address that is dialled now, and why there is no connection; "" where there
        is. Those that are kept up come first, in their order."""
        dialables: list[Dialable] = [*self._kept]
        if self.address_list.addresses:
            dialables.append(self.address_list)
        return [(each.current, each.trouble) for each in dialables]

    def kept_trouble(self) -> str:
        """Return why connections that are kept up do not stand; "" if they do."""
        return "; ".join(filter(None, (kept.trouble for kept in self._kept)))

    def _open_asked(self, stream: Any) -> Link:
        return self._opened(stream, patience_s=self.address_list.patience_s())


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
