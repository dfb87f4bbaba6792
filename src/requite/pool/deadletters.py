"""Answers dead letters: requests that no worker will answer.

RabbitMQ writes the reason into `x-first-death-reason`: `expired`, `rejected`, `maxlen` or
`delivery_limit`. The answer carries it as x-status, with the request's correlation id, so the
caller learns at once which call failed, and why. A request that reached the delivery limit is taken
for the cause of its workers' deaths and copied to the poison queue. A dead letter is acknowledged
after RabbitMQ has confirmed the answer and the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import Ack, Answer, Destination, Forward, PoolEffect
from requite.pool.inputs import DeadLetterArrived, Published, PublishFailed
from requite.protocols.amqp.wire import (
    DELIVERY_COUNT,
    FIRST_DEATH_REASON,
    ReplyStatus,
    traceparent_of,
)

_REASONS: Final = frozenset(
    {
        ReplyStatus.EXPIRED,
        ReplyStatus.REJECTED,
        ReplyStatus.MAXLEN,
        ReplyStatus.DELIVERY_LIMIT,
    }
)


class _Publication(Enum):
    """A message to publish for a dead letter."""

    KEEP = "keep"  # a copy in the poison queue
    ANSWER = "answer"


@dataclass(slots=True, eq=False)
class _DeadLetter:
    """An unacknowledged dead letter, and the publications that remain, in order."""

    event: DeadLetterArrived
    reason: str
    remaining: list[_Publication] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeadLettersStatus:
    """Counts: unacknowledged dead letters, all so far by reason, and copies in the poison queue."""

    in_hand: int
    by_reason: dict[str, int]
    poison: int


class DeadLetters:
    """The dead letter responder. `ticket()` returns a new ticket."""

    def __init__(self, config: PoolConfig, ticket: Callable[[], int]) -> None:
        self._ticket = ticket
        self._delivery_limit = config.limits.delivery_limit
        self._publishing: dict[int, _DeadLetter] = {}
        self._pauses: Pauses[_DeadLetter] = Pauses(
            config.loops.backoff_s, config.loops.backoff_max_s
        )
        self._by_reason: dict[str, int] = {}
        self._poison = 0
        self._is_leaving = False
        self._out: list[PoolEffect] = []

    # --- what is known ----------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._publishing) + len(self._pauses)

    def owns(self, ticket: int) -> bool:
        """Whether `ticket` is a pending publication of this engine."""
        return ticket in self._publishing

    def snapshot(self) -> DeadLettersStatus:
        """Return the current counts."""
        return DeadLettersStatus(len(self), dict(self._by_reason), self._poison)

    def deadline(self) -> float | None:
        """Return when the next retry is due, or None."""
        return self._pauses.deadline()

    # --- inputs -----------------------------------------------------------------------------------
    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Handle a dead letter, or the result of a publication; else raise `LocalViolation`."""
        match event:
            case DeadLetterArrived():
                self._arrived(event)
            case Published(ticket):
                self._published(ticket)
            case PublishFailed(ticket, reason):
                self._failed(ticket, reason, now)
            case _:
                raise LocalViolation(f"{event!r} is not an event about dead letters")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Retry publications whose back-off has ended."""
        for letter in self._pauses.due(now):
            self._continue(letter)
        return self._taken()

    def disconnected(self) -> None:
        """Forget all dead letters: RabbitMQ will redeliver them."""
        self._publishing.clear()
        self._pauses = self._pauses.emptied()

    def drain(self) -> None:
        """Finish pending publications; leave the rest to the next manager."""
        self._is_leaving = True
        self._pauses = self._pauses.emptied()

    # --- one dead letter --------------------------------------------------------------------------
    def _arrived(self, event: DeadLetterArrived) -> None:
        reason = reason_of(event.headers)
        self._by_reason[reason] = self._by_reason.get(reason, 0) + 1
        letter = _DeadLetter(event, reason)
        if reason == ReplyStatus.DELIVERY_LIMIT:
            letter.remaining.append(_Publication.KEEP)
        if event.reply_to:
            letter.remaining.append(_Publication.ANSWER)
        self._continue(letter)

    def _continue(self, letter: _DeadLetter) -> None:
        """Publish the next message, or acknowledge the dead letter if none remains."""
        if not letter.remaining:
            self._out.append(Ack(letter.event.tag))
            return
        ticket = self._ticket()
        self._publishing[ticket] = letter
        if letter.remaining[0] is _Publication.KEEP:
            attempts = self._attempts(letter)
            forward = Forward(ticket, letter.event.tag, Destination.POISON, attempts=attempts)
            self._out.append(forward)
        else:
            self._out.append(self._answer(ticket, letter))

    def _published(self, ticket: int) -> None:
        """Continue after a confirm. An unroutable answer counts as sent: its caller is gone."""
        letter = self._publishing.pop(ticket)
        self._pauses.succeeded(letter)
        self._poison += letter.remaining.pop(0) is _Publication.KEEP
        self._continue(letter)

    def _answer(self, ticket: int, letter: _DeadLetter) -> Answer:
        event = letter.event
        attempts = self._attempts(letter)
        return Answer(
            ticket,
            event.reply_to or "",
            event.correlation_id,
            letter.reason,
            attempts,
            traceparent_of(event.headers),
        )

    def _attempts(self, letter: _DeadLetter) -> int:
        """Return how often the request was delivered to a worker; 0 if unknown.

        RabbitMQ 3.10 does not count the redeliveries of a dead letter, but the limit implies them.
        """
        is_poison = letter.reason == ReplyStatus.DELIVERY_LIMIT
        known = self._delivery_limit + 1 if is_poison else 0
        return _counted(letter.event.headers) or known

    def _failed(self, ticket: int, reason: str, now: float) -> None:
        letter = self._publishing.pop(ticket)
        if not self._is_leaving:
            self._pauses.failed(letter, now)
        text = f"could not answer a dead letter of {letter.event.key!r}: {reason}"
        self._out.append(Warn("dead-letter", text))

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken


def reason_of(headers: Mapping[str, Any]) -> str:
    """Return the first death reason of a request; `rejected` if its headers have none."""
    reason = _text(headers.get(FIRST_DEATH_REASON))
    return reason if isinstance(reason, str) and reason in _REASONS else ReplyStatus.REJECTED


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _counted(headers: Mapping[str, Any]) -> int:
    """Return how often the request was redelivered, if its queue counts it; else 0."""
    count = headers.get(DELIVERY_COUNT)
    return count if isinstance(count, int) and count >= 0 else 0
