"""Failed logins by address: the next logins from such an address have to wait.

The wait doubles with each failure, from 0.1 s to 5 s, and is forgotten 5 minutes after the last
one. It comes before the password is checked, so that a right guess takes as long as a wrong one. A
limited number of connections per address can wait at a time, so a guesser gains nothing by more;
and one password per address is checked at a time, so that those of others have their turn.
Addresses without failures never wait, and peers that prove themselves by other means than a
password neither. A refused peer is closed later after many failures at its address.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from requite.shell.link import Link

_DELAY_S_MIN: Final = 0.1
_DELAY_S_MAX: Final = 5.0
_DOUBLINGS_MAX: Final = 6  # 0.1 s doubled six times exceeds the maximum
_FORGET_S: Final = 300.0
_ADDRESSES_MAX: Final = 1024
_WAITING_MAX: Final = 16  # connections of one address
_MANY: Final = 16  # failures


def address_of(link: Link) -> str:
    """Return the address of a peer without its port. Addresses that one machine can use at will
    are one: those of loopback, and the 2^64 of an IPv6 network."""
    name = link.stream.peer_name.rpartition(":")[0]
    scheme, border, host = name.partition("://")
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:  # a Unix socket
        return name
    if address.is_loopback:
        return f"{scheme}{border}localhost"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{scheme}{border}[{IPv6Network((int(address), 64), strict=False)}]"
    return name


class Logins:
    """Failed logins of accepted links, how many links of each address wait, and the one of each
    whose password is being checked."""

    __slots__ = ("_checking", "_crowds", "_failures", "_waiting")

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number, last
        self._waiting: dict[Link, str] = {}  # addresses
        self._crowds: Counter[str] = Counter()  # how many links wait, by address
        self._checking: dict[str, Link] = {}  # by address

    def __len__(self) -> int:
        return len(self._waiting) + len(self._crowds) + len(self._checking)

    def failed(self, link: Link, now: float) -> str:
        """Count a failed login; return what follows from it, for the log."""
        address = address_of(link)
        count = self._count(address, now) + 1
        self._failures[address] = count, now
        self._failures.move_to_end(address)
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        logins = "one failed login" if count == 1 else f"{count} failed logins"
        return f"{logins} from {address}; passwords from there wait {self.delay_s(link, now):g} s"

    def delay_s(self, link: Link, now: float) -> float:
        """Return how long a login of this link has to wait."""
        count = self._count(address_of(link), now) if self._failures else 0
        if not count:
            return 0.0
        return min(_DELAY_S_MAX, _DELAY_S_MIN * (1 << min(count - 1, _DOUBLINGS_MAX)))

    def _count(self, address: str, now: float) -> int:
        count, last = self._failures.get(address, (0, now))
        return count if now - last < _FORGET_S else 0

    def has_many_failures(self, link: Link, now: float) -> bool:
        """Whether more logins from the address of a link have failed than by mistakes."""
        return self._count(address_of(link), now) > _MANY

    def wait(self, link: Link) -> bool:
        """Count a link that waits; return False if too many of its address wait already."""
        address = address_of(link)
        if self._crowds[address] >= _WAITING_MAX:
            return False
        self._waiting[link] = address
        self._crowds[address] += 1
        return True

    def begin_check(self, link: Link) -> bool:
        """Begin the check of a password, until `forget`; return False if that of another link of
        the address is being checked."""
        return self._checking.setdefault(address_of(link), link) is link

    def forget(self, link: Link) -> None:
        """Remove a link that waits no more, and whose password has been checked."""
        if self._checking:
            checked = address_of(link)
            if self._checking.get(checked) is link:
                del self._checking[checked]
        address = self._waiting.pop(link, None)
        if address is not None:
            self._crowds[address] -= 1
            if not self._crowds[address]:
                del self._crowds[address]
