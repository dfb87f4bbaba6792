"""What was promised to whom, and what must hold.

I1, I10: every errand comes to its end. I2: a reply is that to the request whose ticket was shown.
I3: what was acknowledged is there until it is closed, and so is a reply that was given once. I7: a
request is poisoned after as many attempts as allowed, and not run more often. I9: nothing is left.
I13: nothing that is asked makes Titanic fail. I15: what is closed is not sent any more. `keys`: one
key, one ticket. `window`, `polite`, `disk`: bounds hold; services are not asked for all the time.
`damage`: what is lost to bits that turned round is reported, and no more is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from requite.protocols.titanic.wire import TitanicStatus
from requite.sim.history import History

if TYPE_CHECKING:
    from requite.sim.titanic.knobs import TitanicKnobs

_SLACK_S = 0.01


@dataclass(slots=True, eq=False)
class Wish:
    """What a user wants: one request, under one ticket, if all goes well. `unlucky`: it fails each
    time, as long as things go wrong."""

    number: int
    service: str
    body: bytes
    key: bytes
    unlucky: bool
    ended: str = ""

    @property
    def reply(self) -> bytes:
        """What its service answers."""
        return b"re:" + self.body


@dataclass(slots=True, eq=False)
class Promise:
    """A ticket that a user has got. `delivered`: the reply was given to somebody."""

    ticket: bytes
    wish: Wish
    delivered: bool = False
    poisoned: bool = False
    close_sent: bool = False
    closed: bool = False


@dataclass(slots=True, eq=False)
class Runs:
    """What became of a request at its service. `started`: how often it was sent there; `counted`:
    the attempts that count; `answered_at`: when it was first answered."""

    started: int = 0
    counted: int = 0
    answered_at: float | None = None


class Ledger:
    """All wishes, promises and runs; it tells the history of violations."""

    def __init__(self, history: History, knobs: TitanicKnobs) -> None:
        self.history = history
        self.wishes: dict[int, Wish] = {}
        self.promises: dict[bytes, Promise] = {}
        self.runs: dict[bytes, Runs] = {}
        self.deaths = 0
        self.flips = 0
        self.excused: set[object] = set()
        self.reported = 0
        self.lines: list[str] = []  # what was answered to users, for the digest
        self._knobs = knobs
        self._keys: dict[bytes, bytes] = {}
        self._asked_at: dict[str, float] = {}

    # --- users ------------------------------------------------------------------------------------
    def acknowledged(self, wish: Wish, ticket: bytes) -> None:
        """A submission was answered with 200, whether its user still listens or not."""
        if wish.key:
            known = self._keys.setdefault(wish.key, ticket)
            if known != ticket:
                self._excusable(
                    "keys", wish, f"key {wish.key!r} has tickets {known!r} and {ticket!r}"
                )

    def promised(self, wish: Wish, ticket: bytes) -> Promise:
        """A user has got a ticket."""
        return self.promises.setdefault(ticket, Promise(ticket, wish))

    def collected(self, promise: Promise, status: TitanicStatus, body: bytes) -> None:
        """A user was told about a ticket."""
        self.lines.append(f"{promise.wish.number} {status.code} {len(body)}")
        if status.code == 200:
            self._delivered(promise, body)
        elif status.is_poisoned:
            self._poisoned(promise, status)
        elif status.code == 400:
            self._unknown(promise)
        elif status.code == 300 and promise.delivered:
            self._excusable(
                "I3", promise.wish, f"the reply for {promise.wish.number} was there, and is not"
            )

    def _delivered(self, promise: Promise, body: bytes) -> None:
        wish = promise.wish
        if body != wish.reply:
            self.history.violate("I2", f"wish {wish.number} got {body[:40]!r}")
        if promise.closed:
            self._excusable("I3", wish, f"wish {wish.number} was closed, and is there again")
        promise.delivered = True

    def _poisoned(self, promise: Promise, status: TitanicStatus) -> None:
        limit, runs = self._knobs.attempts_max, self._runs(promise.ticket)
        if limit is None or runs.counted < limit:
            text = f"wish {promise.wish.number} poisoned after {runs.counted} attempts: "
            self._excusable("I7", promise.wish, text + status.text)
        promise.poisoned = True

    def _unknown(self, promise: Promise) -> None:
        if promise.close_sent or self._may_be_expired(promise):
            return
        self._excusable(
            "I3", promise.wish, f"wish {promise.wish.number} was acknowledged, and is not known"
        )

    def _may_be_expired(self, promise: Promise) -> bool:
        expire_s, runs = self._knobs.expire_s, self._runs(promise.ticket)
        if expire_s is None:
            return False
        answered_at = runs.answered_at
        if answered_at is None:
            return promise.poisoned or runs.counted > 0
        return self.history.world.now >= answered_at + expire_s

    # --- services ---------------------------------------------------------------------------------
    def sent(self, ticket: bytes, frames: tuple[bytes, ...]) -> None:
        """Titanic sends a request to its service."""
        runs = self._runs(ticket)
        runs.started += 1
        promise = self.promises.get(ticket)
        if promise is not None:
            self._check_sent(promise, runs, frames)

    def _check_sent(self, promise: Promise, runs: Runs, frames: tuple[bytes, ...]) -> None:
        wish, limit = promise.wish, self._knobs.attempts_max
        if frames != (wish.body,):
            self.history.violate("I2", f"wish {wish.number} left as {frames!r:.60}")
        if promise.closed:
            self._excusable("I15", wish, f"wish {wish.number} is closed, and is sent")
        # A process that dies takes an attempt along, and one that it had not stored yet.
        if limit is not None and runs.counted >= limit + 2 * self.deaths:
            self._excusable("I7", wish, f"wish {wish.number} is sent after {runs.counted} attempts")
        if promise.delivered and not promise.closed:
            self._excusable("I3", wish, f"wish {wish.number} was answered, and is sent again")

    def counted(self, ticket: bytes) -> None:
        """An attempt came to an end that counts."""
        self._runs(ticket).counted += 1

    def answered(self, ticket: bytes) -> None:
        """A service has answered, and Titanic hears of it."""
        runs = self._runs(ticket)
        if runs.answered_at is None:
            runs.answered_at = self.history.world.now

    def _runs(self, ticket: bytes) -> Runs:
        return self.runs.setdefault(ticket, Runs())

    def asked_for(self, service: str) -> None:
        """Titanic asks whether a service is there."""
        now, least_s = self.history.world.now, 0.75 * self._knobs.check_every_s
        before = self._asked_at.get(service)
        if before is not None and now - before < least_s - _SLACK_S:
            self.history.violate("polite", f"{service} is asked for {now - before:.3f} s later")
        self._asked_at[service] = now

    def restarted(self) -> None:
        """A new process has yet to ask."""
        self._asked_at.clear()

    def out(self, overall: int, of_service: int) -> None:
        """So many requests are with services."""
        if overall > self._knobs.window or of_service > self._knobs.service_window:
            self.history.violate("window", f"{overall} requests are out, {of_service} of a service")

    # --- the disk ---------------------------------------------------------------------------------
    def uses(self, disk_bytes: int) -> None:
        """The store takes so much."""
        limit = self._knobs.store.disk_bytes_max
        if limit is not None and disk_bytes > limit:
            self.history.violate("disk", f"the store has {disk_bytes} bytes, and may have {limit}")

    def _excusable(self, invariant: str, whom: object, text: str) -> None:
        """What bits that turned round may cause: to so many requests at most."""
        if whom not in self.excused and len(self.excused) >= self.flips:
            self.history.violate(invariant, text)
        else:
            self.excused.add(whom)

    def finish(self) -> None:
        """Look at the whole."""
        if self.excused and not self.reported:
            self.history.violate(
                "damage", f"{len(self.excused)} requests are hurt, and nobody says so"
            )
