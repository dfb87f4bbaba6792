"""What has become of each request, and what must hold of it.

I14: what RabbitMQ has confirmed is served or answered with a reason, whatever becomes of managers,
workers, connections and queues; a group with steady traffic is neither unbound nor stopped. I2:
every answer has the correlation id of its request. I7: a poison request kills a limited number of
workers, and is kept. I15: nobody is told `expired` before the time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requite.pool.effects import Destination
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import FIRST_DEATH_REASON, STATUS
from requite.sim.pool.knobs import Task

if TYPE_CHECKING:
    from requite.sim.history import History
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.rabbitmq.message import Entry, SimMessage

REPLIES: Final = "reply-"
"""What the names of callers' reply queues begin with; they are not modelled."""

_ROUNDING_S: Final = 1e-3


@dataclass(slots=True, eq=False)
class Request:
    """A request: what it asks for, and what has become of it so far.

    `deaths` are the reasons for which it died in a queue, `answers` what its caller was told.
    `queued` counts the copies that came into its request queue, `runs` the workers that got it.
    """

    number: int
    key: str
    task: Task
    caller: str
    silent: bool
    expires_s: float | None
    sent_at: float
    confirmed_at: float | None = None
    queued: int = 0
    runs: int = 0
    served: int = 0
    buried: int = 0
    deaths: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    answered_at: float | None = None

    def __str__(self) -> str:
        return f"request {self.number} for {self.key!r} ({self.task})"

    @property
    def correlation_id(self) -> str:
        """By which its answer is known."""
        return f"{self.number:016x}"

    @property
    def is_settled(self) -> bool:
        """Whether its caller knows, or, if nobody waits, whether it was served or given up."""
        return bool(self.served or self.buried) if self.silent else bool(self.answers)

    @property
    def fate(self) -> str:
        """What has become of it, in a word."""
        if self.answers:
            return self.answers[0]
        return "no-reply-to" if self.is_settled else "open"


class Ledger:
    """All requests. While a key is `guarded`, its group must not be unbound, or be stopped; of
    groups that are `replaced`, only a few may be `away` at a time."""

    def __init__(self, history: History, knobs: PoolKnobs) -> None:
        self.requests: dict[int, Request] = {}
        self.guarded: set[str] = set()
        self.guarded_from_stops: set[str] = set()
        self.replaced: set[str] = set()
        self.away: set[str] = set()
        self._history = history
        self._knobs = knobs
        self._names = Pool("core")
        self._limit = knobs.delivery_limit

    # --- what is known ----------------------------------------------------------------------------
    @property
    def open(self) -> list[Request]:
        """The requests that are neither served nor answered."""
        return [request for request in self.requests.values() if not request.is_settled]

    @property
    def outcomes(self) -> dict[str, int]:
        """How many requests came to what end."""
        return dict(sorted(Counter(r.fate for r in self.requests.values()).items()))

    @property
    def lines(self) -> list[str]:
        """What makes two runs alike."""
        return [
            f"{r.number} {r.runs} {r.queued} {r.deaths} {r.answers} {r.answered_at!r}"
            for r in self.requests.values()
        ]

    # --- what callers and workers do --------------------------------------------------------------
    def confirmed(self, request: Request, routed: bool) -> None:
        """Note that RabbitMQ has taken a request, or has no queue for it."""
        if not routed:
            self._violate(f"no queue takes {request}")
        elif request.confirmed_at is None:
            request.confirmed_at = self._now

    def runs(self, number: int) -> Request:
        """Note that a worker gets a request."""
        request = self.requests[number]
        request.runs += 1
        if request.runs > (self._limit + 1) * request.queued:
            self._history.violate("I7", f"{request} runs {request.runs} times")
        return request

    def unbound(self, key: str) -> None:
        """Note that a manager unbinds a queue."""
        if key in self.guarded:
            self._violate(f"{key!r} is unbound in spite of steady traffic")

    def group_stopped(self, key: str) -> None:
        """Note that a manager stops a group."""
        if key in self.guarded_from_stops:
            self._violate(f"the group of {key!r} is stopped in spite of steady traffic")
        if key in self.replaced:
            self.away.add(key)
            if len(self.away) > self._knobs.config.loops.replace_max:
                self._violate(f"{sorted(self.away)} are replaced at the same time")

    def stopped_twice(self, key: str) -> None:
        """Note that a manager that leaves stops a group again that somebody else has started."""
        self._violate(f"the group of {key!r} is stopped again by a manager that leaves")

    def group_started(self, key: str) -> None:
        """Note that a driver starts a worker."""
        self.away.discard(key)

    def deleted(self, key: str, bound: bool) -> None:
        """Note that a manager deletes a queue: nothing may be able to come into it."""
        if bound:
            self._violate(f"the queue of {key!r} is deleted while it is bound")

    # --- what RabbitMQ does -----------------------------------------------------------------------
    def takes(self, names: Sequence[str], message: SimMessage) -> bool:
        """Take what goes to a reply queue; tell whether it does."""
        if not names or not names[0].startswith(REPLIES):
            return False
        number = int(message.correlation_id or "0", 16)
        request = self.requests.get(number)
        status = str(message.headers.get(STATUS))
        if request is None or names[0] != REPLIES + request.caller:
            self._history.violate(
                "I2", f"{names[0]} gets {status!r} for {message.correlation_id!r}"
            )
        else:
            self._answered(request, status)
        return True

    def _answered(self, request: Request, status: str) -> None:
        request.answers.append(status)
        if request.answered_at is None:
            request.answered_at = self._now
        if status != "ok" and status not in request.deaths:
            self._violate(f"{request} is answered with {status!r}, and died of {request.deaths}")
        if status == "ok" and not request.runs:
            self._violate(f"{request} is answered, and nobody had it")

    def queued(self, queue: str, message: SimMessage) -> None:
        """Note that a copy of a request came into a queue."""
        if message.number and self._names.key_of(queue) is not None:
            self.requests[message.number].queued += 1

    def acknowledged(self, queue: str, message: SimMessage) -> None:
        """Note that a message is done with."""
        request = self.requests.get(message.number)
        if request is not None and self._names.key_of(queue) is not None:
            request.served += 1
        elif request is not None and queue == self._names.dead_letter_queue:
            request.buried += 1

    def died(self, message: SimMessage, reason: str, _entry: Entry) -> None:
        """Note that a message dies in its queue."""
        request = self.requests.get(message.number)
        if request is not None:
            request.deaths.append(reason)

    def forwarded(self, to: Destination, message: SimMessage, reason: str) -> None:
        """Note that a manager hands a request on; one that it gives up died of that reason."""
        request = self.requests.get(message.number)
        if request is None or to is not Destination.DEAD_LETTERS:
            return
        request.deaths.append(reason)
        over_at = request.sent_at + (request.expires_s or 0.0)
        if reason == "expired" and self._now < over_at - _ROUNDING_S:
            self._history.violate("I15", f"{request} is said to have expired before its time")

    def destroyed(self, queue: str, messages: Sequence[SimMessage], how: str) -> None:
        """Note what is gone for good."""
        for message in messages:
            request = self.requests.get(message.number)
            if request is not None and FIRST_DEATH_REASON not in message.headers:
                self._violate(f"{request} is lost: it {how}, {queue}")

    @property
    def _now(self) -> float:
        return self._history.world.now

    def _violate(self, text: str) -> None:
        self._history.violate("I14", text)
