"""Admission of accepted links: who owns each, and what it waits for before it may join.

        handshake ──a password──► wait after failed logins ──► check ──► handshake goes on
        handshake done ──► owner, quota of connections ──► the user's hook ──► identity ──► joined

A link that waits is not read from; the messages and the one chunk that may still arrive are held
back. So an owner of links can check passwords on a thread, and ask a hook, while other links are
served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypedDict

from requite.access.authentication import Ask, Authentication
from requite.core.timers import Timers
from requite.errors import RemoteViolation
from requite.framing.base import Chunk, CredentialsRefused, Login, Message
from requite.framing.router import IdentityTable
from requite.principal import INSIDE
from requite.shell.link import Link, Pause
from requite.shell.logins import Logins
from requite.shell.owners import Identified, Identify, Owners

_log = logging.getLogger("requite.access")
_CROWDED: Final = "too many logins from its address wait"
_CLOSE_LATER_S: Final = 1.0
_CLOSE_LATER_MAX: Final = 1024
_TURN_S: Final = 0.1  # while the password of another link from the same address is checked

Verify: TypeAlias = Callable[[Login, Callable[[], object]], Callable[[], object]]
"""Decides a login, now or later, and then calls the function given. Returns what withdraws it."""


def verify_now(login: Login, decided: Callable[[], object]) -> Callable[[], object]:
    """Check a password at once: for checks that take microseconds. A check that raises admits
    nobody."""
    try:
        login.check_now()
    except Exception:
        login.decide(None)
        _log.exception("cannot check the password of %r", login.user)
    decided()
    return nothing


def nothing() -> None:
    """Withdraw nothing."""


class AdmissionUses(TypedDict, total=False):
    """Who may connect: what the user of a shell decides about accepted links.

    - `identify`: finds the principal of a link.
    - `identified`: is told who that is, and whether it has too many links.
    - `verify`: checks the password for which the handshake of a link waits.
    - `login_refused(peer_name, refusal)`: the credentials in a handshake were wrong.
    - `ask`: asks whether to admit a link that has a principal; None: all are.
    """

    identify: Identify
    identified: Identified
    verify: Verify
    login_refused: Callable[[str, CredentialsRefused], None]
    ask: Ask | None


class Gate(Protocol):
    """What the owner of the links does with one that has waited, or may not join."""

    def go_on(self, link: Link, why: Pause, messages: list[Message], chunk: Chunk) -> None:
        """Handle what a link has sent before and while it waited; read from it again."""

    def refuse(self, link: Link, kind: str, refusal: RemoteViolation) -> None:
        """Close a link that may not join."""


class _Held:
    """What a link waits for, what it has sent, and how to withdraw the question about it."""

    __slots__ = ("chunk", "has_waited", "messages", "refusal", "why", "withdraw")

    def __init__(self, why: Pause, messages: list[Message]) -> None:
        self.why = why
        self.messages = messages
        self.chunk: Chunk = b""
        self.has_waited = False  # its login, because others from its address have failed
        self.refusal: RemoteViolation | None = None  # why it will be closed
        self.withdraw: Callable[[], object] = nothing


class AdmissionControl:
    """Decides which accepted links of a host may join, and holds back those that wait.

    `identify`, `identified`, `verify` and `ask`: see `AdmissionUses`; `identities`: see
    `requite.shell.uses.Uses`. `clock` returns monotonic seconds.
    """

    __slots__ = (
        "_ask",
        "_clock",
        "_due",
        "_gate",
        "_held",
        "_identities",
        "_logins",
        "_owners",
        "_verify",
    )

    def __init__(
        self,
        gate: Gate,
        clock: Callable[[], float],
        identify: Identify,
        identified: Identified,
        verify: Verify,
        ask: Ask | None,
        identities: IdentityTable[Link] | None,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._owners = Owners(identify, identified)
        self._verify = verify
        self._ask = ask
        self._identities = identities
        self._logins = Logins()
        self._held: dict[Link, _Held] = {}
        self._due: Timers[Link] = Timers()  # logins that wait after failed ones

    def __len__(self) -> int:
        return len(self._held) + len(self._due) + len(self._logins) + len(self._owners)

    # --- links that wait --------------------------------------------------------------------------
    def hold_back(self, link: Link, chunk: Chunk) -> bool:
        """Keep more bytes of a link that waits; return False if it does not."""
        held = self._held.get(link)
        if held is None:
            return False
        held.chunk += chunk
        return True

    def _hold(self, link: Link, why: Pause, messages: list[Message]) -> _Held:
        link.pause(why)
        held = self._held[link] = _Held(why, messages)
        return held

    def _go_on(self, link: Link) -> None:
        held = self._held.pop(link)
        self._logins.forget(link)
        self._gate.go_on(link, held.why, held.messages, held.chunk)

    def next_at(self) -> float | None:
        """Return when the next login has waited long enough; None without one."""
        return self._due.next()

    def wake(self, now: float) -> None:
        """Go on with the logins that have waited long enough, and close the links that have."""
        for link in self._due.due(now):
            held = self._held[link]
            if held.refusal is None:
                self._advance(link, held, now)
            else:
                self._gate.refuse(link, "login refused", held.refusal)

    # --- passwords --------------------------------------------------------------------------------
    def log_in(self, link: Link) -> None:
        """Check the password for which a handshake waits; later, after failed logins from its
        address, or not at all if too many wait there."""
        self._advance(link, self._hold(link, Pause.LOGIN, []), self._clock())

    def _advance(self, link: Link, held: _Held, now: float) -> None:
        login = link.framing.login
        assert login is not None
        delay_s = 0.0 if held.has_waited else self._logins.delay_s(link, now)
        if delay_s:
            if self._logins.wait(link):
                held.has_waited = True
                self._due.set(link, now + delay_s)
            else:
                self._close_later(link, held, RemoteViolation(_CROWDED), now)
        elif self._logins.begin_check(link):
            held.withdraw = self._verify(login, partial(self._go_on, link))
        else:
            self._due.set(link, now + _TURN_S)

    def login_failed(self, link: Link, refusal: CredentialsRefused) -> None:
        """Count a failed login and refuse its link; later, if many from its address have failed."""
        now = self._clock()
        told = CredentialsRefused(f"{refusal} ({self._logins.failed(link, now)})")
        if self._logins.has_many_failures(link, now):
            self._close_later(link, self._hold(link, Pause.LOGIN, []), told, now)
        else:
            self._gate.refuse(link, "login refused", told)

    def _close_later(self, link: Link, held: _Held, refusal: RemoteViolation, now: float) -> None:
        """Close a link after a pause, unread: who opens one connection after the other has to wait,
        too."""
        if len(self._held) > _CLOSE_LATER_MAX:
            self._gate.refuse(link, "login refused", refusal)
        else:
            held.refusal = refusal
            self._due.set(link, now + _CLOSE_LATER_S)

    # --- owners and the hook ----------------------------------------------------------------------
    def admit(self, link: Link, messages: list[Message]) -> bool:
        """Find out who owns a link whose handshake is complete; refuse it if it may not connect.
        Return whether it may join now; if the user's hook is asked about it, it waits with its
        messages."""
        if not link.accepted:
            return True
        try:
            self._owners.admit(link)
        except RemoteViolation as refusal:
            self._gate.refuse(link, "connection refused", refusal)
            return False
        if self._ask is None or link.principal is INSIDE:
            return True
        peer = Authentication(
            link.principal.name,
            link.credential,
            link.stream.peer_name,
            link.framing.peer_identity,
        )
        held = self._hold(link, Pause.APPROVAL, messages)
        held.withdraw = self._ask(peer, partial(self._decided, link))
        return False

    def _decided(self, link: Link, refusal: RemoteViolation | None) -> None:
        if refusal is None:
            self._go_on(link)
        else:
            del self._held[link]
            self._gate.refuse(link, "connection refused", refusal)

    def no_longer_admitted(self, links: Iterable[Link]) -> list[tuple[Link, str]]:
        """Return the links whose credential belongs to nobody or to another user now, and why."""
        return self._owners.no_longer_admitted(links)

    # --- identities -------------------------------------------------------------------------------
    def name(self, link: Link) -> Link | None:
        """Give a link its identity; return the link that had it and is displaced.

        A peer can neither close nor keep out the peers of another principal by their identities: it
        gets an assigned one. Raises `RemoteViolation` if the link may not have its identity.
        """
        identities = self._identities
        if identities is None:
            return None
        holder = identities.find(link.identity)
        if holder is not None and holder.principal.name != link.principal.name:
            link.identity = b""
        admission = identities.admit(link, link.identity)
        link.identity = admission.identity
        return admission.displaced

    def forget(self, link: Link) -> None:
        """Remove a link that has ended, and withdraw the question about it."""
        if self._identities is not None:
            self._identities.forget(link.identity, link)
        self._owners.forget(link)
        self._logins.forget(link)
        self._due.clear(link)
        if (held := self._held.pop(link, None)) is not None:
            held.withdraw()
