"""Record what happens to each request of a pool, and check it.

I14: a request that RabbitMQ confirmed is served, or answered with a reason, despite faults of
managers, workers, connections and queues; a group with steady traffic is neither unbound nor
stopped. I2: every answer has the correlation id of its request. I7: a poison request crashes a
limited number of workers, and is kept. I15: no request is answered with `expired` before it
expires.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import FIRST_DEATH_REASON, STATUS
from requite.sim.pool.knobs import Task

if TYPE_CHECKING:
    from requite.protocols.amqp.properties import Properties
    from requite.sim.kernel.history import History
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.rabbitmq.message import SimMessage

REPLIES: Final = "reply-"
"""The prefix of the callers' reply queues, which are not simulated."""

_ROUNDING_S: Final = 1e-3
_HEX: Final = re.compile("[0-9a-f]{32}")


@dataclass(slots=True, eq=False)
class Request:
    """A request, and what has happened to it.

    `deaths`: the reasons for which it was dead-lettered; `answers`: the statuses that its caller
    received. `queued` counts the copies that entered its request queue, `runs` the deliveries to
    workers.
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
    dead_lettered: int = 0
    deaths: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    answered_at: float | None = None

    def __str__(self) -> str:
        return f"request {self.number} for {self.key!r} ({self.task})"

    @property
    def correlation_id(self) -> str:
        """The correlation id of its answer."""
        return f"{self.number:016x}"

    @property
    def is_settled(self) -> bool:
        """Whether its caller was answered; without a reply-to, whether it was served or given
        up."""
        return bool(self.served or self.dead_lettered) if self.silent else bool(self.answers)

    @property
    def outcome(self) -> str:
        """The status that its caller received first; `no-reply-to` or `open` without an answer."""
        if self.answers:
            return self.answers[0]
        return "no-reply-to" if self.is_settled else "open"


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
        self._limit = knobs.delivery_limit

    # --- state ------------------------------------------------------------------------------------
    @property
    def open(self) -> list[Request]:
        """The requests that are not settled."""
        return [request for request in self.requests.values() if not request.is_settled]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of requests with each outcome."""
        return dict(sorted(Counter(r.outcome for r in self.requests.values()).items()))

    @property
    def lines(self) -> list[str]:
        """The lines of the digest: equal for equal runs."""
        return [
            f"{r.number} {r.runs} {r.queued} {r.deaths} {r.answers} {r.answered_at!r}"
            for r in self.requests.values()
        ]

    # --- events of callers, workers and managers --------------------------------------------------
    def confirmed(self, request: Request, routed: bool) -> None:
        """Record a confirmed request; report one that no queue accepted."""
        if not routed:
            self._violate(f"no queue takes {request}")
        elif request.confirmed_at is None:
            request.confirmed_at = self._now

    def runs(self, number: int) -> Request:
        """Record that a worker received a request; return it."""
        request = self.requests[number]
        request.runs += 1
        if request.runs > (self._limit + 1) * request.queued:
            self._history.violate("I7", f"{request} runs {request.runs} times")
        return request

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
    def number_of(self, properties: Properties | None) -> int:
        """Return the number of the request that a message carries; 0: none."""
        text = "" if properties is None else properties.message_id
        number = int(text, 16) if _HEX.fullmatch(text) else 0
        return number if number in self.requests else 0

    def take_reply(self, queue: str, message: SimMessage) -> None:
        """Record a message to a reply queue."""
        number = int(message.correlation_id or "0", 16)
        request = self.requests.get(number)
        status = str(message.headers.get(STATUS))
        if request is None or queue != REPLIES + request.caller:
            text = f"{queue} gets {status!r} for {message.correlation_id!r}"
            self._history.violate("I2", text)
        else:
            self._answered(request, status)

    def _answered(self, request: Request, status: str) -> None:
        request.answers.append(status)
        if request.answered_at is None:
            request.answered_at = self._now
        if status != "ok" and status not in request.deaths:
            self._violate(f"{request} is answered with {status!r}, and died of {request.deaths}")
        if status == "ok" and not request.runs:
            self._violate(f"{request} is answered, and nobody had it")

    def queued(self, queue: str, message: SimMessage) -> None:
        """Record a copy of a request that enters a queue."""
        if message.number and self._names.key_of(queue) is not None:
            self.requests[message.number].queued += 1

    def acknowledged(self, queue: str, message: SimMessage) -> None:
        """Record an acknowledged message."""
        request = self.requests.get(message.number)
        if request is not None and self._names.key_of(queue) is not None:
            request.served += 1
        elif request is not None and queue == self._names.dead_letter_queue:
            request.dead_lettered += 1

    def died(self, message: SimMessage, reason: str) -> None:
        """Record a dead-lettered message."""
        request = self.requests.get(message.number)
        if request is not None:
            request.deaths.append(reason)

    def gave_up(self, message: SimMessage) -> None:
        """Record a request that a manager dead-letters; check whether it has expired."""
        request = self.requests.get(message.number)
        if request is None:
            return
        reason = str(message.headers.get(FIRST_DEATH_REASON))
        request.deaths.append(reason)
        over_at = request.sent_at + (request.expires_s or 0.0)
        if reason == "expired" and self._now < over_at - _ROUNDING_S:
            self._history.violate("I15", f"{request} is said to have expired before its time")

    def lost(self, queue: str, messages: Sequence[SimMessage], how: str) -> None:
        """Report requests that are lost with their queue."""
        for message in messages:
            request = self.requests.get(message.number)
            if request is not None and FIRST_DEATH_REASON not in message.headers:
                self._violate(f"{request} is lost: it {how}, {queue}")

    @property
    def _now(self) -> float:
        return self._history.world.now

    def _violate(self, text: str) -> None:
        self._history.violate("I14", text)
