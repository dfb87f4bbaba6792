"""The newest failed requests, from real journals."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.source.journals import LogWriter, call_id, failure, span

from requite.chronicle import EventRow, Kind, WriterRole
from requite.errors import ConfigurationError
from requite.request import Status
from requite.story.failures import Failures, failures

CLIENT = b"client-1"


def ids(found: Failures) -> list[str | None]:
    return [each.request_id for each in found.failures]


def accepted(number: int, at: float) -> EventRow:
    return EventRow(at, Kind.ACCEPTED, call_id(number), b"echo", size=5, value=at + 5)


def ended(number: int, at: float, status: Status, error: str = "", reason: str = "") -> EventRow:
    kind = Kind.EXPIRED if status is Status.EXPIRED else Kind.ANSWERED
    return EventRow(at, kind, call_id(number), b"echo", b"", 1, status, error, reason)


def hexed(*numbers: int) -> list[str | None]:
    return [call_id(number).hex() for number in numbers]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with LogWriter(tmp_path) as broker:
        broker.spans([span(number, number / 10) for number in range(100)])
        broker.event_rows(
            [
                accepted(200, 20.0),
                failure(200, at=20.5),
                accepted(201, 500.0),
                ended(201, 500.1, Status.FAILED, "RemoteFailure", "out of stock"),
                # 202: refused by the broker, and then answered; the client has no journal.
                EventRow(501.0, Kind.REFUSED, call_id(202), b"echo", outcome=Status.OVERLOADED),
                accepted(202, 501.1),
                ended(202, 501.2, Status.OK),
                EventRow(
                    502.0,
                    Kind.REFUSED,
                    call_id(203),
                    b"echo",
                    outcome=Status.DENIED,
                    error="Denied",
                    reason="shop may not call echo",
                ),
                EventRow(503.0, Kind.REFUSED, reason="7 dropped: stray replies"),
            ]
        )
    return tmp_path


def test_failed_requests_are_listed_newest_first(journal):
    found = failures([journal], 3600, 10)
    assert ids(found) == hexed(203, 201, 200)
    denied, failed, _ = found.failures
    assert (denied.error, denied.reason) == ("Denied", "shop may not call echo")
    assert (failed.error, failed.reason) == ("RemoteFailure", "out of stock")
    assert (failed.service, failed.verdict) == ("echo", "EXACTLY_ONE")
    assert not found.has_more
    assert found.since is not None
    assert found.until is not None
    assert (found.until - found.since).total_seconds() == 3600


def test_older_failures_are_left_out(journal):
    assert ids(failures([journal], 60, 10)) == hexed(203, 201)
    assert ids(failures([journal], 0.5, 10)) == []


def test_the_list_is_bounded(journal):
    found = failures([journal], 3600, 2)
    assert ids(found) == hexed(203, 201)
    assert found.has_more


def test_the_client_decides_what_has_failed(journal):
    """Its broker failed 201, and the client retried with success; the client refused a call."""
    with LogWriter(journal, WriterRole.CLIENT, CLIENT) as client:
        client.event_rows(
            [
                accepted(201, 500.0),
                ended(201, 500.4, Status.OK),
                accepted(204, 503.0),
                ended(204, 508.0, Status.EXPIRED, "CallTimeout", "the deadline passed"),
                EventRow(
                    509.0, Kind.REFUSED, service=b"echo", error="Overloaded", reason="all slots"
                ),
            ]
        )
    found = failures([journal], 3600, 10)
    assert ids(found) == [None, *hexed(204, 203, 200)]
    assert (found.failures[0].error, found.failures[0].verdict) == ("Overloaded", None)
    assert found.failures[1].error == "CallTimeout"


def test_many_failures_in_many_segments(tmp_path):
    with LogWriter(tmp_path) as writer:
        for number in range(1, 12_001):
            rows = [accepted(number, number / 10), ended(number, number / 10, Status.FAILED)]
            writer.event_rows(rows)
        assert len(writer.segments()) > 2
    assert ids(failures([tmp_path], 1e6, 3)) == hexed(12_000, 11_999, 11_998)
    found = failures([tmp_path], 0.25, 500)
    assert ids(found) == hexed(12_000, 11_999, 11_998)
    assert not found.has_more


def test_an_empty_journal_has_no_failures(tmp_path):
    assert failures([tmp_path], 600, 5).until is None
    with pytest.raises(ConfigurationError, match="no such folder"):
        failures([tmp_path / "x"], 600, 5)
