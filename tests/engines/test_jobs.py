"""The table of running requests, independent of the protocol."""

from __future__ import annotations

import pytest

from requite.chronicle import Chronicle, Kind
from requite.core.jobs import ClientJob, Jobs
from requite.core.recording import JobRecorder
from requite.engine import CancelHandler, Deliver, Effect, Finished, Note, Produced, Warn
from requite.errors import LocalViolation
from requite.request import Request, Status


class Bench:
    """A table that emits notes and writes a journal, and its effects."""

    def __init__(self) -> None:
        self.chronicle = Chronicle()
        recorder: JobRecorder[ClientJob] = JobRecorder(self.chronicle, b"i" * 8, "echo", notes=True)
        self.jobs: Jobs[ClientJob] = Jobs("echo", recorder, kind="a server", reply_size_max=4)
        self.out: list[Effect] = []
        self.job = ClientJob("peer", [b"id"])
        self.jobs.deliver(self.job, "held", Request("echo", [b"body"]), self.out, 1.0)

    def finish(self, status: Status = Status.OK) -> tuple[object, Status] | None:
        return self.jobs.finish(Finished(self.job, [b"y"], status), self.out, 3.0)

    def notes(self) -> list[str]:
        return [effect.kind for effect in self.out if isinstance(effect, Note)]

    def journalled(self) -> list[Kind]:
        return [row.kind for row in self.chronicle.event_rows]


def test_a_job_is_delivered_and_finished_once() -> None:
    bench = Bench()
    [deliver] = [effect for effect in bench.out if isinstance(effect, Deliver)]
    assert deliver.token is bench.job
    assert isinstance(deliver.what, Request)
    assert (deliver.what.service, deliver.what.frames) == ("echo", [b"body"])
    assert bench.finish() == ("held", Status.OK)
    assert bench.finish() is None
    assert not bench.jobs
    assert bench.notes() == ["delivered", "finished"]


def test_an_abandoned_job_keeps_its_slot_and_ends_cancelled() -> None:
    bench = Bench()
    bench.jobs.abandon(bench.job, "gone", bench.out, 2.0)
    assert CancelHandler(bench.job, "gone") in bench.out
    assert (len(bench.jobs), bench.jobs.abandoned) == (1, 1)
    assert bench.jobs.join(Produced(bench.job, [b"late"]), bench.out, 2.0) == ""
    assert bench.job.joined is None
    assert bench.finish() == ("held", Status.CANCELLED)
    assert bench.journalled() == [Kind.DELIVERED, Kind.ABANDONED, Kind.FINISHED]


def test_partial_replies_are_joined_up_to_the_limit() -> None:
    bench = Bench()
    assert bench.jobs.join(Produced(bench.job, [b"ab", b"cd"]), bench.out, 2.0) == ""
    assert bench.job.reply([b"e"]) == [b"id", b"ab", b"cd", b"e"]
    assert "more than 4 bytes" in bench.jobs.join(Produced(bench.job, [b"e"]), bench.out, 2.0)
    assert isinstance(bench.out[-1], Warn)


def test_an_invalid_status_of_a_handler_is_refused() -> None:
    bench = Bench()
    with pytest.raises(LocalViolation, match="a server cannot end a request with"):
        bench.finish(Status.EXPIRED)
    assert bench.job in bench.jobs


def test_dropped_messages_are_counted_noted_and_journalled() -> None:
    bench = Bench()
    bench.jobs.drop("lost", bench.out, 1.0, 0)
    assert not bench.jobs.dropped
    bench.jobs.drop("lost", bench.out, 1.0, 2)
    bench.jobs.flush_open_spans(1.1)
    assert bench.jobs.dropped == {"lost": 2}
    assert bench.notes() == ["delivered", "dropped"]
    assert bench.journalled() == [Kind.DELIVERED, Kind.REFUSED]
