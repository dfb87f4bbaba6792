"""How many denials a broker journals."""

from __future__ import annotations

from tests.support.broker import BrokerBench

from requite.chronicle import Chronicle, Kind
from requite.core.denials import Denials
from requite.principal import Principal, Rights


def test_ten_rows_per_second_and_the_next_one_has_the_number_of_the_others() -> None:
    denials = Denials()
    told = [denials.admit("ann", "call", 5.0) for _ in range(100)]
    assert told == [0] * 10 + [None] * 90
    assert denials.admit("ann", "call", 5.9) is None
    assert denials.admit("ann", "call", 6.0) == 91
    assert denials.admit("ann", "call", 6.0) == 0


def test_each_user_and_verb_has_rows_of_its_own() -> None:
    denials = Denials()
    for _ in range(20):
        denials.admit("ann", "call", 5.0)
    assert denials.admit("bob", "call", 5.0) == 0
    assert denials.admit("ann", "serve", 5.0) == 0


def test_names_of_strangers_share_their_rows() -> None:
    denials = Denials()
    told = [denials.admit(f"plain:{number}", "connect", 5.0) for number in range(50_000)]
    assert sum(each is not None for each in told) == 10
    assert len(denials._seen) == 1


def test_the_number_of_users_is_limited() -> None:
    denials = Denials()
    for number in range(20_000):
        denials.admit(f"user{number}", "call", number / 1000)
    assert len(denials._seen) <= 4096


def test_denials_that_no_later_row_counts_are_told_once() -> None:
    denials = Denials()
    for _ in range(15):
        denials.admit("ann", "call", 5.0)
    denials.admit("bob", "call", 5.0)
    assert denials.take_left_out(5.5) == []
    assert denials.take_left_out(6.0) == [(("ann", "call"), 5)]
    assert denials.take_left_out(7.0) == []


def test_a_flood_of_denied_requests_is_a_few_rows() -> None:
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.client("c", principal=Principal("ann", Rights()))
    for number in range(1, 300):
        bench.request("c", number)
        bench.advance(0.001)
    assert len(bench.finals("c")) == 299
    bench.advance(10.0)
    bench.broker.flush_open_spans(bench.now)
    rows = [row for row in chronicle.event_rows if row.kind is Kind.DENIED]
    assert len(rows) == 11
    assert rows[-1].reason == "289 more"
