"""Check the acknowledged requests against the invariants.

I1, I10: every user finishes. I2: a reply belongs to the request of its ticket. I3: an acknowledged
request, and a reply once delivered, stay until they are closed; a negative reply that the service
would give each time is one. I7: a request is poisoned after
exactly the allowed attempts. I9: no state is left. I13: no request makes Titanic fail. I15: a
closed request is not sent. I16: nobody but its owner sees or closes a request, and it is sent on
behalf of its owner. `keys`: one ticket per owner and key. `window`, `disk`: limits hold. `polite`:
services are not queried too often. `damage`: flipped bits lose only what is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from requite.protocols.titanic.wire import TitanicStatus, decode_answer
from requite.sim.kernel.history import History

if TYPE_CHECKING:
    from requite.sim.titanic.knobs import TitanicKnobs

_SLACK_S = 0.01
_REFUSED = b"3"


def is_refused(body: bytes) -> bool:
    """Whether a service refuses a request each time: it begins with the digit 3."""
    return body.startswith(_REFUSED)


@dataclass(slots=True, eq=False)
class UserRequest:
    """A request of a user, which gets one ticket. `unlucky`: it fails every time, as long as there
    are faults."""

    number: int
    service: str
    body: bytes
    key: bytes
    unlucky: bool
    owner: bytes = b""
    ended: str = ""

    @property
    def reply(self) -> bytes:
        """The reply of its service, or the reason of a negative one."""
        return b"re:" + self.body


@dataclass(slots=True, eq=False)
class IssuedTicket:
    """A ticket that a user has received. `delivered`: a user has received the reply."""

    ticket: bytes
    request: UserRequest
    delivered: bool = False
    poisoned: bool = False
    close_sent: bool = False
    closed: bool = False


@dataclass(slots=True, eq=False)
class AttemptCounts:
    """The attempts of a request. `started`: all; `counted`: those that count towards the limit;
    `answered_at`: the time of the first reply."""

    started: int = 0
    counted: int = 0
    answered_at: float | None = None


class Ledger:
    """All requests, tickets and attempts; it reports violations to the history."""

    def __init__(self, history: History, knobs: TitanicKnobs) -> None:
        self.history = history
        self.requests: dict[int, UserRequest] = {}
        self.tickets: dict[bytes, IssuedTicket] = {}
        self.attempts: dict[bytes, AttemptCounts] = {}
        self.deaths = 0
        self.flips = 0
        self.excused: set[object] = set()
        self.reported = 0
        self.lines: list[str] = []  # the replies to users, for the digest
        self._knobs = knobs
        self._keys: dict[tuple[bytes, bytes], bytes] = {}
        self._asked_at: dict[str, float] = {}

    # --- users ------------------------------------------------------------------------------------
    def acknowledged(self, request: UserRequest, ticket: bytes) -> None:
        """Record that Titanic accepted a submission (200), even if its user no longer waits."""
        if request.key:
            known = self._keys.setdefault((request.owner, request.key), ticket)
            if known != ticket:
                self._excusable(
                    "keys", request, f"key {request.key!r} has tickets {known!r} and {ticket!r}"
                )

    def ticket_received(self, request: UserRequest, ticket: bytes) -> IssuedTicket:
        """Record that a user received a ticket."""
        issued = self.tickets.setdefault(ticket, IssuedTicket(ticket, request))
        if issued.request.owner != request.owner:
            text = f"request {request.number} got the ticket of request {issued.request.number}"
            self.history.violate("I16", f"{text}, of another owner")
        return issued

    def tried(self, issued: IssuedTicket, frames: Sequence[bytes]) -> None:
        """Check what a stranger got for a ticket."""
        status = decode_answer(frames)
        if status.code != 400 or status.is_poisoned or status.is_negative:
            text = f"a stranger got {frames[0]!r:.60} for request {issued.request.number}"
            self.history.violate("I16", text)

    def collected(self, issued: IssuedTicket, status: TitanicStatus, body: bytes) -> None:
        """Check the status that a user received for a ticket."""
        self.lines.append(f"{issued.request.number} {status.code} {len(body)}")
        if status.is_negative:
            self._delivered(issued, status.text.encode(), is_negative=True)
        elif status.code == 200:
            self._delivered(issued, body, is_negative=False)
        elif status.is_poisoned:
            self._poisoned(issued, status)
        elif status.code == 400:
            self._unknown(issued)
        elif status.code == 300 and issued.delivered:
            self._excusable(
                "I3",
                issued.request,
                f"the reply to {issued.request.number} was delivered, now is lost",
            )

    def _delivered(self, issued: IssuedTicket, body: bytes, *, is_negative: bool) -> None:
        request = issued.request
        if body != request.reply or is_negative != is_refused(request.body):
            self.history.violate("I2", f"request {request.number} got {body[:40]!r}")
        if issued.closed:
            self._excusable("I3", request, f"request {request.number} was closed, but is back")
        issued.delivered = True

    def _poisoned(self, issued: IssuedTicket, status: TitanicStatus) -> None:
        limit, attempts = self._knobs.attempts_max, self._attempts(issued.ticket)
        if limit is None or attempts.counted < limit:
            text = f"request {issued.request.number} poisoned after {attempts.counted} attempts: "
            self._excusable("I7", issued.request, text + status.text)
        issued.poisoned = True

    def _unknown(self, issued: IssuedTicket) -> None:
        if issued.close_sent or self._may_be_expired(issued):
            return
        self._excusable(
            "I3",
            issued.request,
            f"request {issued.request.number} was acknowledged, but is unknown",
        )

    def _may_be_expired(self, issued: IssuedTicket) -> bool:
        expire_s, attempts = self._knobs.expire_s, self._attempts(issued.ticket)
        if expire_s is None:
            return False
        answered_at = attempts.answered_at
        if answered_at is None:
            return issued.poisoned or attempts.counted > 0
        return self.history.world.now >= answered_at + expire_s

    # --- services ---------------------------------------------------------------------------------
    def sent(self, ticket: bytes, frames: tuple[bytes, ...], principal: bytes) -> None:
        """Check a request that Titanic sends to its service on behalf of a principal."""
        attempts = self._attempts(ticket)
        attempts.started += 1
        issued = self.tickets.get(ticket)
        if issued is not None:
            self._check_sent(issued, attempts, frames)
            if principal != issued.request.owner:
                text = f"request {issued.request.number} is sent on behalf of {principal!r}"
                self.history.violate("I16", text)

    def _check_sent(
        self, issued: IssuedTicket, attempts: AttemptCounts, frames: tuple[bytes, ...]
    ) -> None:
        request, limit = issued.request, self._knobs.attempts_max
        if frames != (request.body,):
            self.history.violate("I2", f"request {request.number} left as {frames!r:.60}")
        if issued.closed:
            self._excusable("I15", request, f"request {request.number} is closed, but is sent")
        # A killed process loses the current attempt, and one that it had not stored yet.
        if limit is not None and attempts.counted >= limit + 2 * self.deaths:
            self._excusable(
                "I7", request, f"request {request.number} is sent after {attempts.counted} attempts"
            )
        if issued.delivered and not issued.closed:
            self._excusable(
                "I3", request, f"request {request.number} was answered, but is sent again"
            )

    def counted(self, ticket: bytes) -> None:
        """Record an attempt that counts towards the limit."""
        self._attempts(ticket).counted += 1

    def answered(self, ticket: bytes) -> None:
        """Record a reply that Titanic received."""
        attempts = self._attempts(ticket)
        if attempts.answered_at is None:
            attempts.answered_at = self.history.world.now

    def _attempts(self, ticket: bytes) -> AttemptCounts:
        return self.attempts.setdefault(ticket, AttemptCounts())

    def asked_for(self, service: str) -> None:
        """Check how often Titanic asks whether a service is available."""
        now, least_s = self.history.world.now, 0.75 * self._knobs.check_every_s
        before = self._asked_at.get(service)
        if before is not None and now - before < least_s - _SLACK_S:
            self.history.violate("polite", f"{service} is queried again {now - before:.3f} s later")
        self._asked_at[service] = now

    def restarted(self) -> None:
        """Forget the queries of the former process."""
        self._asked_at.clear()

    def out(self, overall: int, of_service: int) -> None:
        """Check the number of requests in flight, in total and at one service."""
        if overall > self._knobs.window or of_service > self._knobs.service_window:
            self.history.violate("window", f"{overall} are in flight, {of_service} at one service")

    # --- the disk ---------------------------------------------------------------------------------
    def uses(self, disk_bytes: int) -> None:
        """Check the size of the store."""
        limit = self._knobs.store.disk_bytes_max
        if limit is not None and disk_bytes > limit:
            self.history.violate("disk", f"the store has {disk_bytes} bytes; the limit is {limit}")

    def _excusable(self, invariant: str, whom: object, text: str) -> None:
        """Report a violation, unless flipped bits may have caused it."""
        if whom not in self.excused and len(self.excused) >= self.flips:
            self.history.violate(invariant, text)
            return
        self.excused.add(whom)
        if not self.reported:
            self.history.violate("damage", f"Titanic has reported no damage, but {text}")
