"""`mmi.census`: a broker's numbers as JSON, and the reading that JSON has."""

from __future__ import annotations

import json
from math import inf

import pytest
from tests.support.broker import ORIGIN, BrokerBench

from requite.core.durations import BOUNDS_S
from requite.pair.standby_gate import as_facts
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.census import traffic_of
from requite.protocols.majordomo.reading import Reading, from_json, reading_of, to_json
from requite.request import Status


def read(bench: BrokerBench, number: int, subject: bytes = b"") -> bytes:
    """Return the answer of `mmi.census`."""
    bench.request("observer", number, subject, service=b"mmi.census")
    return bench.finals("observer")[-1].body[0]


@pytest.fixture
def busy() -> BrokerBench:
    """A broker: of four requests for one service, one is answered, one has failed, one is at a
    worker, and one has waited for 3 s; a request for another service has no worker."""
    bench = BrokerBench()
    bench.worker("w", b"echo")
    for number in range(1, 5):
        bench.request("c", number, b"x" * 100)
    bench.request("c", 5, service=b"nobody")
    bench.now += 2.0
    bench.final("w", b"reply")
    bench.final("w", b"", status=Status.FAILED)
    bench.now += 1.0
    return bench


def test_each_number_of_a_service_is_there(busy: BrokerBench) -> None:
    facts = json.loads(read(busy, 1, b"echo"))
    assert facts["bounds_s"] == list(BOUNDS_S)
    [row] = facts["services"]
    assert row == {
        "service": "echo",
        "number": row["number"],
        "accepted": 4,
        "redelivered": 0,
        "request_bytes": 400,
        "reply_bytes": 5,
        "ended": {"ok": 1, "failed": 1},
        "took": [int(bound == 2.5) for bound in BOUNDS_S] + [0],
        "took_ns": 2_000_000_000,
        "queued": 1,
        "unserved": 0,
        "in_progress": 1,
        "idle": 0,
        "busy": 1,
        "draining": 0,
        "blocked": 0,
        "oldest_s": 3.0,
        "paused": False,
    }


def test_a_reading_is_the_same_after_its_way_over_the_wire(busy: BrokerBench) -> None:
    broker = busy.broker
    pair = as_facts(PairView(PairRole.PRIMARY, State.ACTIVE, 3, State.PASSIVE, 0.5, False, True))
    broker.standing = lambda: pair
    answer = from_json(read(busy, 1))
    census = broker.census()
    seen = reading_of(census, map(traffic_of, census.services), busy.now, pair)
    assert answer == seen
    assert {each.name: each.unserved for each in seen.services} == {"echo": 0, "nobody": 1}
    assert answer.broker == ORIGIN.hex()
    assert (seen.services_count, seen.clients, seen.workers, seen.pending) == (2, 2, 1, 3)


def test_refusals_and_denials_are_by_name() -> None:
    empty = BrokerBench().broker.census()
    refused = tuple(2 * (status is Status.OVERLOADED) for status in Status)
    census = empty._replace(refused=refused, denied={"call": 3})
    reading = from_json(to_json(reading_of(census, (), 1.0, None)))
    assert (reading.refused, reading.denied) == ({"overloaded": 2}, {"call": 3})


def damaged(text: bytes, **changed: object) -> bytes:
    """Return JSON with other values of a service."""
    facts = json.loads(text)
    facts["services"][0] |= changed
    return json.dumps(facts).encode()


@pytest.mark.parametrize(
    "text",
    [b"", b"501", b"403", b"[]", b"{}", b"null", b'"text"', b"\xff", b'{"bounds_s": [1], "at": 0}'],
)
def test_what_is_no_reading_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of several modules)
        from_json(text)


@pytest.mark.parametrize(
    "changed",
    [{"took": [1, 2]}, {"took": None}, {"ended": 3}, {"queued": "many"}, {"oldest_s": []}],
)
def test_a_row_that_does_not_fit_is_an_error(busy: BrokerBench, changed: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of several modules)
        from_json(damaged(read(busy, 1), **changed))


def test_no_request_waits_in_an_empty_broker() -> None:
    bench = BrokerBench()
    bench.worker("w", b"echo")
    reading: Reading = from_json(read(bench, 1))
    [service] = reading.services
    assert (service.oldest_at, service.idle, reading.pair) == (inf, 1, None)
