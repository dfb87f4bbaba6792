"""Requests in handlers' hands: what runs, what its reply has come to, and what was given up.

An engine does not run handlers: it delivers each request under a token, a `Job`, and whoever runs
the handler answers with `Produced` and `Finished`. The engine owns one `Jobs`, the table of these
tokens, and tells it what happens; `Jobs` tells the observer. Effects go to the
`out` of the engine, which is handed in.
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
    """A request in a handler's hands; the token under which the handler answers.

    `abandoned` tells why nobody waits for it any more ("": somebody does). `joined` are the frames
    of partial replies (None: there were none), `joined_size` their bytes. The other attributes are
    for the journal, and set if there is one. Protocols add who asked, and what the reply needs.

    There is no `__init__`: on the hot path of SP it would cost more than the attributes do.
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
    due_at: float = inf  # the caller's deadline, where it is known

    def facts(self) -> dict[str, Any]:
        """Return what is in every remark about this request."""
        return {"job": self}


class ClientJob(Job):
    """A request that came by the connection `peer`; its reply begins with the frames `envelope`."""

    __slots__ = ("envelope", "peer")

    def __init__(self, peer: Peer, envelope: Sequence[bytes] = ()) -> None:
        self.peer = peer
        self.envelope = envelope
        self.call_id = b""
        self.abandoned = ""
        self.joined = None

    def reply(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return the one reply, with at least one frame behind the envelope."""
        return [*self.envelope, *((*(self.joined or ()), *frames) or (b"",))]


JobT = TypeVar("JobT", bound=Job)


class Jobs(dict[JobT, Any], Generic[JobT]):
    """The jobs of one engine, in the order of their beginnings; what is held of each is up to it.

    For each `Deliver` of a `Request` there is to be one `Finished`, also after a `CancelHandler`;
    it frees the slot. A reply may grow to `reply_size_max` bytes out of partial ones. `dropped`
    counts messages that nothing became of, by reason. `kind` is what the engine is, for those who
    misuse it. A hot path may do itself what `deliver` and `finish` do.
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
        """How many handlers run for nobody."""
        return sum(job.abandoned != "" for job in self)

    # --- beginnings -------------------------------------------------------------------------------
    def deliver(
        self, job: JobT, holds: Any, request: Request, out: list[Effect], now: float, **facts: Any
    ) -> None:
        """Have a handler run; `holds` is what the table is to say of this job."""
        self[job] = holds
        out.append(Deliver(job, request))
        observer = self.observer
        if observer.keeps_journal:  # hot
            observer.delivered(job, sum(map(len, request.frames)), now)
        if observer.makes_notes:
            self.remark("delivered", job, out, **facts)

    def drop(self, why: str, out: list[Effect], now: float, count: int = 1) -> None:
        """Count messages that nothing becomes of."""
        if not count:
            return
        self.dropped[why] += count
        self.observer.dropped(why, now, count)
        self.observer.remark("dropped", {"why": why, "count": count}, out)

    # --- from handlers ----------------------------------------------------------------------------
    def started(self, event: Started, now: float) -> None:
        """Observe that a handler runs."""
        if event.token in self:
            self.observer.started(event.token, now)

    def join(self, event: Produced, out: list[Effect], now: float) -> str:
        """Join a partial reply to those before it. Return why the reply cannot be had, where it has
        become too large ("": it has not)."""
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
        text = f"its partial replies came to more than {self._reply_size_max} bytes"
        out.append(Warn("reply too large", f"no reply: {text}"))
        return text

    def finish(self, event: Finished, out: list[Effect], now: float) -> tuple[Any, Status] | None:
        """Remove a job; return what was held of it, and its final status. None if it is unknown.

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
        """Return the error of a handler that ended with a status that no handler may have."""
        return LocalViolation(f"{self._kind} cannot end a request with {status!r}")

    def abandon(self, job: JobT, reason: str, out: list[Effect], now: float) -> None:
        """Have a handler given up: nobody waits for its reply."""
        job.abandoned = reason
        job.joined = None
        out.append(CancelHandler(job, reason))
        self.observer.abandoned(job, reason, now)
        self.remark("abandoned", job, out, reason=reason)

    # --- time -------------------------------------------------------------------------------------
    def woken(self, _event: Wake, now: float) -> None:
        """Journal the beginnings of what is under way, if it is time to."""
        if now >= self.observer.flush_at:
            self.observer.flush_open_spans(self, now)

    def flush_open_spans(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        self.observer.flush_open_spans(self, now)

    def remark(self, kind: str, job: JobT, out: list[Effect], **facts: Any) -> None:
        """Tell that something has happened to a job."""
        if self.observer.makes_notes:
            self.observer.remark(kind, {"service": self.service} | job.facts() | facts, out)


def reason_of(frames: Sequence[bytes]) -> str:
    """Return what a handler said when it failed, as text."""
    return b" ".join(frames).decode("utf-8", "replace")
