"""What engines tell of what they do, while they do it: one observer each, which by default listens
to nothing.

A recorder (`requite.core.recording`) is an observer that writes the journal. `Notes` makes `Note`
effects of what happens, for checkers. An engine calls its observer without asking which one it is.
On hot paths alone it first looks at `keeps_journal`: a call that does nothing costs 0.05 us
(CPython 3.11), a tenth of what a call of SP takes in bulk; and at `makes_notes`, since a remark's
facts cost more than the rest of a journal row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from requite.engine import Effect, Note
from requite.errors import CallError
from requite.request import Status


class Call(Protocol):
    """What the observer of a client needs of a call; a recorder sets `is_expanded`, `sent_at`,
    and the `call_id` of one that has none.

    `sent_at` is when the first try left, `tries` how many there were. `size` is in bytes.
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
    """What an observer needs of a request in a handler's hands; a recorder sets all but `due_at`,
    and the `call_id` of one that has none."""

    call_id: bytes
    is_expanded: bool
    delivered_at: float
    started_at: float
    due_at: float
    size: int


CallT = TypeVar("CallT", bound=Call)
JobT = TypeVar("JobT", bound=Job)


class Observer:
    """What every engine tells. This one, like those below, listens to nothing.

    `look_at`: when the engine is to call `look`. `keeps_journal`: whether it is a recorder.
    `makes_notes`: whether remarks are for anything; to gather their facts costs some 0.5 us.
    """

    flush_at: float = inf
    keeps_journal: bool = False
    makes_notes: bool = False

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Messages were thrown away."""

    def remark(self, kind: str, facts: Mapping[str, Any], out: list[Effect]) -> None:
        """Something happened that a checker may want to know, at this place among effects."""


class CallObserver(Observer, Generic[CallT]):
    """What the engine of a client tells."""

    def refused(self, name: bytes, error: CallError, now: float) -> None:
        """A call to the service `name` was not taken on."""

    def accepted(self, call: CallT) -> None:
        """A call was taken on."""

    def sent(self, call: CallT, now: float) -> None:
        """A try has left."""

    def partial(self, call: CallT, frames: Sequence[bytes], now: float) -> None:
        """A partial reply came."""

    def answered(self, call: CallT, body: Sequence[bytes], now: float) -> None:
        """The reply came."""

    def expand(self, call: CallT) -> None:
        """Something special happened to a call."""

    def taken_back(self, call: CallT, reason: str, now: float) -> None:
        """A try is given up for another one."""

    def failed(self, call: CallT, error: CallError, now: float) -> None:
        """A call ended with an error."""

    def flush_open_spans(self, calls: dict[Any, CallT], now: float) -> None:
        """These calls are under way."""


class JobObserver(Observer, Generic[JobT]):
    """What the engine of a worker or server tells."""

    def delivered(self, job: JobT, size: int, now: float) -> None:
        """A handler is to run, for a request of so many bytes."""

    def started(self, job: JobT, now: float) -> None:
        """A handler runs."""

    def partial(self, job: JobT, frames: Iterable[bytes], now: float) -> None:
        """A handler gave a partial reply."""

    def finished(self, job: JobT, status: Status, frames: Sequence[bytes], now: float) -> None:
        """A handler has ended."""

    def abandoned(self, job: JobT, reason: str, now: float) -> None:
        """Nobody waits for a request any more."""

    def flush_open_spans(self, jobs: dict[JobT, Any] | list[JobT], now: float) -> None:
        """These requests are under way."""


NO_CALL_OBSERVER: Final[CallObserver[Any]] = CallObserver()
NO_JOB_OBSERVER: Final[JobObserver[Any]] = JobObserver()


class Notes:
    """An observer that makes notes of what is remarked, and hands everything else on."""

    makes_notes = True

    def __init__(self, within: Observer) -> None:
        self._within = within

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)

    def remark(self, kind: str, facts: Mapping[str, Any], out: list[Effect]) -> None:
        """Make a note, behind the effects that there are."""
        out.append(Note(kind, facts))


ObserverT = TypeVar("ObserverT", bound=Observer)


def observer_of(observer: ObserverT, *, notes: bool) -> ObserverT:
    """Return the observer of an engine, one that makes notes as well where they are wanted."""
    return cast(ObserverT, Notes(observer)) if notes else observer
