"""What those have in common who run handlers for requests without names: servers and workers in
protocols without a broker.

The engine does not run handlers: it delivers each request under a token, a job, and whoever runs
the handler answers with `Produced` and `Finished`. There are neither partial nor negative replies
on such wires: partial replies are joined to one, and what becomes of a request that failed is the
protocol's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from requite.core import recording
from requite.core.machine import Handlers, Machine, take_no_notice
from requite.engine import (
    Abandon,
    Deliver,
    Drain,
    Finished,
    Note,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Progressed,
    Received,
    Started,
    Wake,
    Warn,
)
from requite.errors import LocalViolation
from requite.request import Request, Status

_ENDS: Final = frozenset({Status.OK, Status.FAILED, Status.CANCELLED})
_NOT_THERE: Final = object()


class Held(recording.Job, Protocol):
    """A request in a handler's hands; the token under which the handler answers.

    `abandoned` tells why nobody waits for it any more ("": somebody does). `joined` are the frames
    of partial replies (None: there were none), `joined_size` their bytes.
    """

    abandoned: str
    joined: list[bytes] | None
    joined_size: int


JobT = TypeVar("JobT", bound=Held)


class Job:
    """A request that came over the connection `peer`; its reply begins with the frames `envelope`.

    The rest is as in `Held`, and for the journal.
    """

    __slots__ = (
        "abandoned",
        "call_id",
        "delivered_at",
        "envelope",
        "is_told",
        "joined",
        "joined_size",
        "peer",
        "size",
        "started_at",
    )

    def __init__(self, peer: Peer, envelope: Sequence[bytes] = ()) -> None:
        self.peer = peer
        self.envelope = envelope
        self.abandoned = ""
        self.joined: list[bytes] | None = None
        self.joined_size = 0
        self.call_id = b""
        self.delivered_at = self.started_at = 0.0
        self.size = 0
        self.is_told = False

    def reply(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return the one reply, with at least one frame behind the envelope."""
        return [*self.envelope, *((*(self.joined or ()), *frames) or (b"",))]


class ServingEngine(Machine, Generic[JobT]):
    """A server but for its wire, and for how requests wait. `service` is what they are called.

    For each `Deliver` of a `Request` there is to be one `Finished`, also after an `Abandon`: it
    gives the place back. A `Finished` has the status OK, FAILED (with the reason) or CANCELLED;
    only OK brings about a reply.

    A reply may grow to `reply_size_max` bytes out of partial ones. `notes`: make `Note` effects.
    """

    _kind: ClassVar = "a server"

    def __init__(
        self,
        service: str,
        *,
        recorder: recording.JobRecorder[JobT] | None,
        reply_size_max: int,
        notes: bool,
    ) -> None:
        super().__init__()
        self._service = service
        self._recorder = recorder
        self._reply_size_max = reply_size_max
        self._notes = notes
        self._jobs: dict[JobT, Any] = {}  # in the order of their beginnings
        self._dropped: Counter[str] = Counter()

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: take_no_notice,  # nobody keeps a lease
            Started: self._began,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    @property
    def is_answered(self) -> bool:
        """Whether the far end has taken this server on; most need not be."""
        return True

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return None if self._recorder is None else self._recorder.next_at()

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        if self._recorder is not None:
            self._recorder.look(self._jobs, now)

    # --- what differs -----------------------------------------------------------------------------
    @abstractmethod
    def _received(self, event: Received, now: float) -> None: ...

    @abstractmethod
    def _finished(self, event: Finished, now: float) -> None: ...

    @abstractmethod
    def _joined(self, event: PeerJoined, now: float) -> None: ...

    @abstractmethod
    def _lost(self, event: PeerLost, now: float) -> None: ...

    @abstractmethod
    def _drained(self, event: Drain, now: float) -> None: ...

    def _blocked(self, event: PeerBlocked, now: float) -> None:
        """Note that a peer does not read; as far as it matters."""
        return

    def _writable(self, event: PeerWritable, now: float) -> None:
        """Note that it reads again."""
        return

    # --- requests ---------------------------------------------------------------------------------
    def _hand_over(self, job: JobT, holds: Any, body: Sequence[bytes], now: float) -> None:
        """Have a handler run; `holds` is what the table of jobs is to say of this one."""
        self._jobs[job] = holds
        self._out.append(Deliver(job, Request(self._service, body)))
        if self._recorder is not None:
            self._recorder.delivered(job, sum(map(len, body)), now)
        if self._notes:
            self._note("delivered", job)

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count messages that nothing becomes of."""
        if not count:
            return
        self._dropped[why] += count
        if self._recorder is not None:
            self._recorder.dropped(why, now, count)
        if self._notes:
            self._out.append(Note("dropped", {"why": why, "count": count}))

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, now: float) -> None:
        if self._recorder is not None and event.token in self._jobs:
            self._recorder.started(event.token, now)

    def _produced(self, event: Produced, now: float) -> None:
        job: JobT = event.token
        if job not in self._jobs or job.abandoned:
            return
        if job.joined is None:
            job.joined = []
            job.joined_size = 0
        job.joined += event.frames
        job.joined_size += sum(map(len, event.frames))
        if self._recorder is not None:
            self._recorder.partial(job, event.frames, now)
        if job.joined_size > self._reply_size_max:
            text = f"its partial replies came to more than {self._reply_size_max} bytes"
            self._out.append(Warn("reply too large", f"no reply: {text}"))
            self._outgrown(job, text, now)

    def _outgrown(self, job: JobT, reason: str, now: float) -> None:
        """Give up a request whose reply is too large."""
        self._abandon(job, reason, now)

    def _end(self, event: Finished, now: float) -> tuple[Any, Status] | None:
        """Take a job off the table, and tell of its end: what the table said of it, and what is to
        become of it. None if it was not there."""
        job, frames, status = event
        if status not in _ENDS:
            raise LocalViolation(f"{self._kind} cannot end a request with {status!r}")
        holds = self._jobs.pop(job, _NOT_THERE)
        if holds is _NOT_THERE:
            return None
        status = Status.CANCELLED if job.abandoned else Status(status)
        if self._recorder is not None:
            self._recorder.finished(job, status, frames, now)
        if self._notes:
            self._note("finished", job, status=status.name)
        return holds, status

    def _abandon(self, job: JobT, reason: str, now: float) -> None:
        """Have a handler given up: nobody waits for its reply."""
        job.abandoned = reason
        job.joined = None
        self._out.append(Abandon(job, reason))
        if self._recorder is not None:
            self._recorder.abandoned(job, reason, now)
        if self._notes:
            self._note("abandoned", job, reason=reason)

    @property
    def _abandoned(self) -> int:
        """How many handlers run for nobody."""
        return sum(job.abandoned != "" for job in self._jobs)

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._jobs, now)

    def _note(self, kind: str, job: JobT, **facts: Any) -> None:
        self._out.append(Note(kind, {"service": self._service, "job": job} | facts))


def reason_of(frames: Sequence[bytes]) -> str:
    """Return what a handler said when it failed, as text."""
    return b" ".join(frames).decode("utf-8", "replace")
