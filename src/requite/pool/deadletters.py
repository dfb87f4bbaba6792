"""Requests that no worker will answer any more: their callers are told, with the reason.

RabbitMQ writes the reason into `x-first-death-reason`: `expired`, `rejected`, `maxlen` or
`delivery_limit`. The answer has it as x-status and the correlation id of the request, so the caller
knows at once which call has failed, and why. A request that was given to as many workers as the
limit allows is taken for the cause of their deaths and kept in the poison queue. A dead letter is
acknowledged when the answer, and the copy, have been confirmed.
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
    """What is published of a dead letter."""

    KEEP = "keep"  # a copy in the poison queue
    ANSWER = "answer"


@dataclass(slots=True, eq=False)
class _DeadLetter:
    """A dead letter in hand; what has still to be done with it, in order."""

    event: DeadLetterArrived
    reason: str
    remaining: list[_Publication] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeadLettersStatus:
    """How many are in hand, and how many ended so far, by reason; `poison` are copies kept."""

    in_hand: int
    by_reason: dict[str, int]
    poison: int


class DeadLetters:
    """The dead letter responder. `ticket()` makes up names."""

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
        """Tell whether something was published under this ticket here."""
        return ticket in self._publishing

    def snapshot(self) -> DeadLettersStatus:
        """Return what there is."""
        return DeadLettersStatus(len(self), dict(self._by_reason), self._poison)

    def deadline(self) -> float | None:
        """Return when something is tried again."""
        return self._pauses.deadline()

    # --- inputs -----------------------------------------------------------------------------------
    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Take a dead letter, or what has become of one. Raises `LocalViolation` for others."""
        match event:
            case DeadLetterArrived():
                self._arrived(event)
            case Published(ticket):
                self._published(ticket)
            case PublishFailed(ticket, reason):
                self._failed(ticket, reason, now)
            case _:
                raise LocalViolation(f"{event!r} says nothing about dead letters")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Try again what has waited long enough."""
        for letter in self._pauses.due(now):
            self._continue(letter)
        return self._taken()

    def disconnected(self) -> None:
        """Forget everything: RabbitMQ will deliver it again."""
        self._publishing.clear()
        self._pauses = self._pauses.emptied()

    def drain(self) -> None:
        """Finish what is being published, and leave the rest to the next manager."""
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
        """Publish what comes next; acknowledge when nothing does."""
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
        """Go on. An answer that no queue takes is done with: its caller has gone."""
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
        """Return how often the request was given to a worker; 0: nobody knows.

        RabbitMQ 3.10 does not tell of a dead letter how often it came back, but its limit does.
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
    """Return why a request has died first; `rejected` where its headers do not tell."""
    reason = _text(headers.get(FIRST_DEATH_REASON))
    return reason if isinstance(reason, str) and reason in _REASONS else ReplyStatus.REJECTED


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _counted(headers: Mapping[str, Any]) -> int:
    """Return how often the request came back, as far as its queue tells."""
    count = headers.get(DELIVERY_COUNT)
    return count if isinstance(count, int) and count >= 0 else 0
