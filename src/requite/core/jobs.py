"""Jobs: requests that handlers run, their partial replies, and abandoned ones.

An engine does not run handlers: it delivers each request under a token, a `Job`, and the shell,
which runs the handler, answers with `Produced` and `Finished`. The engine owns one `Jobs`, the
table of these tokens; `Jobs` informs the observer. Effects are appended to the engine's `out`,
which is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any, Final, Generic, TypeVar

from requite.core.observer import JobObserver
from requite.engine import (
    CancelHandler,
    Deliver,
    Effect,
    Finished,
    Peer,
    Produced,
    Started,
    Wake,
    Warn,
)
from requite.errors import LocalViolation
from requite.request import Request, Status

ENDS: Final = frozenset({Status.OK, Status.FAILED, Status.CANCELLED})
_NOT_THERE: Final = object()


class Job:
    """A delivered request; the token under which its handler answers.

    `abandoned` is the reason why no caller waits for it any more ("": one does). `joined` are the
    frames of partial replies (None: there were none), `joined_size` their bytes. The other
    attributes are set only with a journal. Protocols add what the reply needs.

    There is no `__init__`: on the hot path of SP it would cost more than the attributes.
    """

    __slots__ = (
        "abandoned",
        "call_id",
        "delivered_at",
        "is_expanded",
        "joined",
        "joined_size",
        "size",
        "started_at",
    )

    abandoned: str
    joined: list[bytes] | None
    joined_size: int
    call_id: bytes
    delivered_at: float
    started_at: float
    size: int
    is_expanded: bool
    due_at: float = inf  # the caller's deadline, if known

    def facts(self) -> dict[str, Any]:
        """Return the facts for every remark about this request."""
        return {"job": self}


class ClientJob(Job):
    """A request from the connection `peer`; its reply begins with the frames `envelope`."""

    __slots__ = ("envelope", "peer")

    def __init__(self, peer: Peer, envelope: Sequence[bytes] = ()) -> None:
        self.peer = peer
        self.envelope = envelope
        self.call_id = b""
        self.abandoned = ""
        self.joined = None

    def reply(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return the reply: the envelope and at least one more frame."""
        return [*self.envelope, *((*(self.joined or ()), *frames) or (b"",))]


JobT = TypeVar("JobT", bound=Job)


class Jobs(dict[JobT, Any], Generic[JobT]):
    """The jobs of one engine, in order of delivery; the values are the engine's.

    Each `Deliver` of a `Request` must be answered by one `Finished`, even after a `CancelHandler`;
    it frees the slot. A reply joined from partial ones has at most `reply_size_max` bytes.
    `dropped` counts dropped messages by reason. `kind` names the engine in errors. A hot path may
    inline `deliver` and `finish`.
    """

    __slots__ = (
        "_kind",
        "_reply_size_max",
        "dropped",
        "observer",
        "service",
    )

    def __init__(
        self,
        service: str,
        observer: JobObserver[JobT],
        *,
        kind: str,
        reply_size_max: float = inf,
    ) -> None:
        super().__init__()
        self.observer = observer
        self.dropped: Counter[str] = Counter()
        self.service = service
        self._kind = kind
        self._reply_size_max = reply_size_max

    @property
    def abandoned(self) -> int:
        """The number of abandoned jobs, whose handlers still run."""
        return sum(job.abandoned != "" for job in self)

    # --- new jobs ---------------------------------------------------------------------------------
    def deliver(
        self, job: JobT, holds: Any, request: Request, out: list[Effect], now: float, **facts: Any
    ) -> None:
        """Deliver a request to a handler; `holds` is the value of the job in the table."""
        self[job] = holds
        out.append(Deliver(job, request))
        observer = self.observer
        if observer.keeps_journal:  # hot
            observer.delivered(job, sum(map(len, request.frames)), now)
        if observer.makes_notes:
            self.remark("delivered", job, out, **facts)

    def drop(self, why: str, out: list[Effect], now: float, count: int = 1) -> None:
        """Count dropped messages."""
        if not count:
            return
        self.dropped[why] += count
        self.observer.dropped(why, now, count)
        self.observer.remark("dropped", {"why": why, "count": count}, out)

    # --- from handlers ----------------------------------------------------------------------------
    def started(self, event: Started, now: float) -> None:
        """Report to the observer that a handler runs."""
        if event.token in self:
            self.observer.started(event.token, now)

    def join(self, event: Produced, out: list[Effect], now: float) -> str:
        """Append a partial reply to the earlier ones. Return an error if the reply becomes too
        large, else ""."""
        job: JobT = event.token
        if job not in self or job.abandoned:
            return ""
        if job.joined is None:
            job.joined = []
            job.joined_size = 0
        job.joined += event.frames
        job.joined_size += sum(map(len, event.frames))
        self.observer.partial(job, event.frames, now)
        if job.joined_size <= self._reply_size_max:
            return ""
        text = f"its partial replies have more than {self._reply_size_max:.0f} bytes"
        out.append(Warn("reply too large", f"no reply: {text}"))
        return text

    def finish(self, event: Finished, out: list[Effect], now: float) -> tuple[Any, Status] | None:
        """Remove a job; return its value and final status, or None if it is unknown.

        Raises `LocalViolation` for a status that is not OK, FAILED or CANCELLED.
        """
        job, frames, status = event.token, event.frames, event.status
        if status not in ENDS:
            raise self.wrong_end(status)
        holds = self.pop(job, _NOT_THERE)
        if holds is _NOT_THERE:
            return None
        status = Status.CANCELLED if job.abandoned else Status(status)
        observer = self.observer
        if observer.keeps_journal:  # hot
            observer.finished(job, status, frames, now)
        if observer.makes_notes:
            self.remark("finished", job, out, status=status.name)
        return holds, status

    def wrong_end(self, status: int) -> LocalViolation:
        """Return the error for a handler that ended with an invalid status."""
        return LocalViolation(f"{self._kind} cannot end a request with {status!r}")

    def abandon(self, job: JobT, reason: str, out: list[Effect], now: float) -> None:
        """Cancel a handler: no caller waits for its reply any more."""
        job.abandoned = reason
        job.joined = None
        out.append(CancelHandler(job, reason))
        self.observer.abandoned(job, reason, now)
        self.remark("abandoned", job, out, reason=reason)

    # --- time -------------------------------------------------------------------------------------
    def woken(self, _event: Wake, now: float) -> None:
        """Journal the start of running requests if a flush is due."""
        if now >= self.observer.flush_at:
            self.observer.flush_open_spans(self, now)

    def flush_open_spans(self, now: float) -> None:
        """Journal the start of running requests."""
        self.observer.flush_open_spans(self, now)

    def remark(self, kind: str, job: JobT, out: list[Effect], **facts: Any) -> None:
        """Make a note about a job."""
        if self.observer.makes_notes:
            self.observer.remark(kind, {"service": self.service} | job.facts() | facts, out)


def reason_of(frames: Sequence[bytes]) -> str:
    """Return the error of a failed handler, as text: the first frame, without `request.FINAL`."""
    return frames[0].decode("utf-8", "replace") if frames else ""
