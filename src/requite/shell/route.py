"""Where to dial next, and when: the address list, the pauses, and what went wrong last.

Shared by the shells; it dials nobody itself. All connections go to the `current` address. When one
fails, or ends, the next address has its turn; when each has failed in a row, there is a pause.

Several addresses are those of a pair of which one serves at a time (Guide, "High-availability
Pair"). Then an address that does not answer is left soon: a process that was stopped still has its
port, and its system goes on taking connections for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from requite.errors import TransportError
from requite.shell.link import Link
from requite.transport.address import Address
from requite.transport.backoff import MAX_S, Backoff

# The other one of a pair takes over within seconds, and is to be found soon after that.
_PAUSE_AMONG_SEVERAL_S_MAX: Final = 0.5
# How long one of several may take to answer. Doubled whenever all have failed, so that a network
# on which it takes longer keeps nobody away.
_PATIENCE_S: Final = 1.0
_PATIENCE_S_MAX: Final = 8.0


def backoff_for(addresses: Sequence[Address]) -> Backoff:
    """Return the pauses between two rounds through these addresses."""
    return Backoff(random.random, max_s=_PAUSE_AMONG_SEVERAL_S_MAX if len(addresses) > 1 else MAX_S)


class Route:
    """The way to a service that has one or more `addresses` (none: it is never asked)."""

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
        return min(_PATIENCE_S * 2.0 ** min(rounds, 30), _PATIENCE_S_MAX)

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
            self._backoff.note_life(self._clock() - opened_at)
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
