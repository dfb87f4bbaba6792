"""Record what happens to each request of a pool, and check it.

I14: a request that RabbitMQ confirmed is served, or answered with a reason, despite faults of
managers, workers, connections and queues; a group with steady traffic is neither unbound nor
stopped. I2: every answer has the correlation id of its request. I7: a poison request crashes a
limited number of workers, and is kept. I15: no request is answered with `expired` before it
expires.

The body of a request names its number and its task, and that of its reply names the number, so
that copies are recognised wherever they are published.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requite.errors import CallError
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import FIRST_DEATH_REASON, STATUS
from requite.request import Reply
from requite.sim.pool.knobs import Task

if TYPE_CHECKING:
    from requite.sim.kernel.history import History
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.rabbitmq.published import PublishedMessage

_ROUNDING_S: Final = 1e-3
_REQUEST: Final = re.compile(rb"request ([0-9]+) [a-z]+")


@dataclass(slots=True, eq=False)
class Request:
    """A request, and what has happened to it.

    `deaths`: the reasons for which it was dead-lettered; `answers`: the statuses that were sent to
    its caller; `outcome`: how its call ended. `queued` counts the copies that entered its request
    queue, `runs` the starts of its handler.
    """

    number: int
    key: str
    task: Task
    caller: str
    silent: bool
    expires_s: float | None
    sent_at: float
    queued: int = 0
    runs: int = 0
    served: int = 0
    dead_lettered: int = 0
    deaths: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    outcome: str = ""
    ended_at: float | None = None

    def __str__(self) -> str:
        return f"request {self.number} for {self.key!r} ({self.task})"

    @property
    def body(self) -> bytes:
        """The body of its messages."""
        return b"request %d %s" % (self.number, self.task.encode())

    @property
    def is_settled(self) -> bool:
        """Whether its call has ended, and it was answered if it was dead-lettered; without a
        reply-to, whether it was served or given up."""
        if self.silent:
            return bool(self.served or self.dead_lettered)
        return bool(self.outcome) and bool(self.answers or not self.deaths)


def number_in(body: bytes) -> int:
    """Return the number of the request with this body; 0: it is none."""
    found = _REQUEST.fullmatch(body)
    return int(found[1]) if found else 0


def reply_to(request: Request) -> bytes:
    """Return the body of the reply to a request."""
    return b"reply %d" % request.number


class Ledger:
    """The records of all requests. The groups of `guarded` keys must not be unbound, those of
    `guarded_from_stops` not stopped. Of the groups in `replaced`, only a few may be in `away`
    (stopped, not yet restarted) at a time."""

    def __init__(self, history: History, knobs: PoolKnobs) -> None:
        self.requests: dict[int, Request] = {}
        self.guarded: set[str] = set()
        self.guarded_from_stops: set[str] = set()
        self.replaced: set[str] = set()
        self.away: set[str] = set()
        self._history = history
        self._knobs = knobs
        self._names = Pool("core")
        # The numbers of requests, by the reply-to and the correlation id of their messages.
        self._asked: dict[tuple[str, str], int] = {}
        self._limit = knobs.delivery_limit

    # --- state ------------------------------------------------------------------------------------
    @property
    def open(self) -> list[Request]:
        """The requests that are not settled."""
        return [request for request in self.requests.values() if not request.is_settled]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of requests with each outcome."""
        outcomes = Counter(
            r.outcome or ("no-reply-to" if r.is_settled else "open") for r in self.requests.values()
        )
        return dict(sorted(outcomes.items()))

    @property
    def lines(self) -> list[str]:
        """The lines of the digest: equal for equal runs."""
        return [
            f"{r.number} {r.runs} {r.queued} {r.deaths} {r.answers} {r.outcome} {r.ended_at!r}"
            for r in self.requests.values()
        ]

    # --- events of callers, workers and managers --------------------------------------------------
    def request_in(self, body: bytes) -> Request | None:
        """Return the request with this body."""
        return self.requests.get(number_in(body))

    def runs(self, request: Request) -> None:
        """Record that a worker begins with a request."""
        request.runs += 1
        if request.runs > (self._limit + 1) * request.queued:
            self._history.violate("I7", f"{request} runs {request.runs} times")

    def ended(self, request: Request, outcome: Reply | CallError) -> None:
        """Record the end of a call."""
        request.ended_at = self._now
        if isinstance(outcome, CallError):
            request.outcome = type(outcome).__name__
            return
        request.outcome = "ok"
        if outcome.frames != (reply_to(request),):
            self._history.violate("I2", f"{request} ends with {outcome.frames!r}")

    def unbound(self, key: str) -> None:
        """Check a queue that a manager unbinds."""
        if key in self.guarded:
            self._violate(f"{key!r} is unbound in spite of steady traffic")

    def group_stopped(self, key: str) -> None:
        """Check a group that a manager stops."""
        if key in self.guarded_from_stops:
            self._violate(f"the group of {key!r} is stopped in spite of steady traffic")
        if key in self.replaced:
            self.away.add(key)
            if len(self.away) > self._knobs.config.loops.replace_max:
                self._violate(f"{sorted(self.away)} are replaced at the same time")

    def stopped_twice(self, key: str) -> None:
        """Report that a draining manager stops a group again, which another manager has started
        meanwhile."""
        self._violate(f"the group of {key!r} is stopped again by a manager that leaves")

    def group_started(self, key: str) -> None:
        """Record that the driver starts a worker of a group."""
        self.away.discard(key)

    def deleted_while_bound(self, key: str) -> None:
        """Report a queue that is deleted while it is bound."""
        self._violate(f"the queue of {key!r} is deleted while it is bound")

    # --- events of RabbitMQ -----------------------------------------------------------------------
    def published(self, message: PublishedMessage) -> None:
        """Record a message that a client publishes."""
        asked = message.properties
        if message.exchange == self._names.requests_exchange and asked.reply_to:
            self._asked[asked.reply_to, asked.correlation_id] = message.number
        elif message.exchange == self._names.dead_letter_exchange:
            self._gave_up(message)
        elif not message.exchange and STATUS in asked.headers:
            self._replied(message)

    def _replied(self, reply: PublishedMessage) -> None:
        status = str(reply.properties.headers[STATUS])
        name = reply.properties.correlation_id
        request = self.requests.get(self._asked.get((reply.key, name), 0))
        if request is None:
            text = f"{reply.key} gets {status!r} for {name!r}"
            self._history.violate("I2", text)
            return
        request.answers.append(status)
        if status == "ok" and not request.runs:
            self._violate(f"{request} is answered, and nobody had it")
        is_due = status == "error" and request.task is Task.FAIL
        if status != "ok" and status not in request.deaths and not is_due:
            self._violate(f"{request} is answered with {status!r}, and died of {request.deaths}")

    def unroutable(self, message: PublishedMessage) -> None:
        """Report a request that no queue takes."""
        if message.number:
            self._violate(f"no queue takes {self.requests[message.number]}")

    def queued(self, queue: str, message: PublishedMessage) -> None:
        """Record a copy of a request that enters a queue."""
        if message.number and self._names.key_of(queue) is not None:
            self.requests[message.number].queued += 1

    def acknowledged(self, queue: str, message: PublishedMessage) -> None:
        """Record an acknowledged message."""
        request = self.requests.get(message.number)
        if request is not None and self._names.key_of(queue) is not None:
            request.served += 1
        elif request is not None and queue == self._names.dead_letter_queue:
            request.dead_lettered += 1

    def died(self, message: PublishedMessage, reason: str) -> None:
        """Record a dead-lettered message."""
        request = self.requests.get(message.number)
        if request is not None:
            request.deaths.append(reason)

    def _gave_up(self, message: PublishedMessage) -> None:
        """Record a request that a manager dead-letters; check whether it has expired."""
        request = self.requests.get(message.number)
        if request is None:
            return
        reason = str(message.properties.headers.get(FIRST_DEATH_REASON))
        request.deaths.append(reason)
        over_at = request.sent_at + (request.expires_s or 0.0)
        if reason == "expired" and self._now < over_at - _ROUNDING_S:
            self._history.violate("I15", f"{request} is said to have expired before its time")

    def lost(self, queue: str, messages: Sequence[PublishedMessage], how: str) -> None:
        """Report requests that are lost with their queue."""
        for message in messages:
            request = self.requests.get(message.number)
            if request is not None and FIRST_DEATH_REASON not in message.properties.headers:
                self._violate(f"{request} is lost: it {how}, {queue}")

    @property
    def _now(self) -> float:
        return self._history.world.now

    def _violate(self, text: str) -> None:
        self._history.violate("I14", text)
