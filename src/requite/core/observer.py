"""Observers of engines: each engine has one, which by default ignores all events.

A recorder (`requite.core.recording`) is an observer that writes the journal; any observer may make
`Note` effects for checkers. Engines call their observer without knowing which it is. Only hot paths
first check `keeps_journal`, since an empty call costs 0.05 us (CPython 3.11), a tenth of a call of
SP in bulk; and `makes_notes`, since the facts of a remark cost more than the rest of a journal row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from requite.engine import Effect, Note
from requite.errors import CallError
from requite.request import Status


class Call(Protocol):
    """A call as observers see it. A recorder sets `is_expanded`, `sent_at`, and a missing
    `call_id`.

    `sent_at` is the instant of the first attempt, `tries` the number of attempts. `size` is in
    bytes.
    """

    call_id: bytes
    is_expanded: bool
    sent_at: float
    submitted_at: float
    deadline: float
    idempotent: bool
    tries: int

    @property
    def name(self) -> bytes: ...
    @property
    def size(self) -> int: ...


class Job(Protocol):
    """A delivered request as observers see it. A recorder sets everything except `due_at`, and
    `call_id` only if it is missing."""

    call_id: bytes
    is_expanded: bool
    delivered_at: float
    started_at: float
    due_at: float
    size: int


CallT = TypeVar("CallT", bound=Call)
JobT = TypeVar("JobT", bound=Job)


class Observer:
    """Events of every engine. This class and those below ignore all of them, except for notes.

    `flush_at`: when the engine must call `flush_open_spans`. `keeps_journal`: this is a recorder.
    `makes_notes`: remarks have an effect; gathering their facts costs some 0.5 us.
    """

    keeps_journal: bool = False

    def __init__(self, *, notes: bool = False) -> None:
        self.flush_at = inf
        self.makes_notes = notes

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Messages were dropped."""

    def remark(self, kind: str, facts: Mapping[str, Any], out: list[Effect]) -> None:
        """Make a note, for checkers, at this place among the effects."""
        if self.makes_notes:
            out.append(Note(kind, facts))


class CallObserver(Observer, Generic[CallT]):
    """Events of a client's engine."""

    def refused(self, name: bytes, error: CallError, now: float) -> None:
        """A call to the service `name` was refused."""

    def accepted(self, call: CallT) -> None:
        """A call was accepted."""

    def sent(self, call: CallT, now: float) -> None:
        """An attempt was sent."""

    def partial(self, call: CallT, frames: Sequence[bytes], now: float) -> None:
        """A partial reply arrived."""

    def answered(self, call: CallT, body: Sequence[bytes], now: float) -> None:
        """The reply arrived."""

    def expand(self, call: CallT) -> None:
        """A call is not a plain span any more: its events are written one by one from now on."""

    def taken_back(self, call: CallT, reason: str, now: float) -> None:
        """An attempt was abandoned for a retry."""

    def failed(self, call: CallT, error: CallError, now: float) -> None:
        """A call failed."""

    def flush_open_spans(self, calls: dict[Any, CallT], now: float) -> None:
        """The instant `flush_at` has come; these calls are outstanding."""


class JobObserver(Observer, Generic[JobT]):
    """Events of a worker's or server's engine."""

    def delivered(self, job: JobT, size: int, now: float) -> None:
        """A request of `size` bytes was delivered to a handler."""

    def started(self, job: JobT, now: float) -> None:
        """A handler has started."""

    def partial(self, job: JobT, frames: Iterable[bytes], now: float) -> None:
        """A handler has produced a partial reply."""

    def finished(self, job: JobT, status: Status, frames: Sequence[bytes], now: float) -> None:
        """A handler has finished."""

    def abandoned(self, job: JobT, reason: str, now: float) -> None:
        """No caller waits for a request any more."""

    def flush_open_spans(self, jobs: dict[JobT, Any] | list[JobT], now: float) -> None:
        """The instant `flush_at` has come; these requests have handlers."""
