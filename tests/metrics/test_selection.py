"""Which services have metrics of their own: no counter goes down, and nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builds import pure_only

from requite.metrics.selection import OTHER, Selection
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.census import NO_TALLY, Census, Traffic, added, tally_of
from requite.protocols.majordomo.parties import REQUEST_SIZE, Client, Service, size_of
from requite.request import Status


class Engine:
    """Services that count, come and go, as those of a broker do."""

    def __init__(self) -> None:
        self.services: dict[str, Service] = {}
        self.forgotten = NO_TALLY
        self.count = 0
        self.accepted = 0  # ever

    def request(self, name: str, times: int = 1, took_s: float = 0.1) -> None:
        """Count requests of a service, which is added if it is new."""
        if name not in self.services:
            self.count += 1
            self.services[name] = Service(name.encode(), None, self.count)
        counters = self.services[name].counters
        for _ in range(times):
            counters.accepted += 1
            counters.received += REQUEST_SIZE + size_of([b"123"])
            counters.took.add(took_s)
        self.accepted += times

    def remove(self, name: str) -> None:
        """Remove a service."""
        service = self.services.pop(name, None)
        if service is not None:
            self.forgotten = added(self.forgotten, tally_of(service.counters))

    def census(self) -> Census:
        services = tuple(self.services.values())
        refused = (0,) * len(Status)
        return Census(services, self.forgotten, refused, {}, 0, 0, 0, 0, 0, 0, 1, 1, False)

    async def read(self, selection: Selection) -> dict[str, Traffic]:
        rows = await selection.read(self.census())
        by_name = {each.name: each for each in rows}
        assert len(by_name) == len(rows)
        return by_name


def accepted(rows: dict[str, Traffic]) -> dict[str, int]:
    return {name: row.tally[at.ACCEPTED] for name, row in rows.items()}


async def test_few_services_are_all_named() -> None:
    engine, selection = Engine(), Selection(3)
    for number, name in enumerate("abc", 1):
        engine.request(name, number)
    assert accepted(await engine.read(selection)) == {"a": 1, "b": 2, "c": 3}


async def test_the_busiest_are_named_and_the_others_are_one() -> None:
    engine, selection = Engine(), Selection(2)
    for number, name in enumerate("abcd", 1):
        engine.request(name, number)
    assert accepted(await engine.read(selection)) == {"d": 4, "c": 3, OTHER: 3}


async def test_a_service_that_becomes_named_leaves_behind_what_was_counted() -> None:
    engine, selection = Engine(), Selection(1)
    engine.request("a", 5)
    engine.request("b", 3)
    assert accepted(await engine.read(selection)) == {"a": 5, OTHER: 3}
    engine.request("b", 4)
    assert accepted(await engine.read(selection)) == {"b": 0, OTHER: 7}
    engine.request("b", 2)
    engine.request("a", 1)
    assert accepted(await engine.read(selection)) == {"b": 2, OTHER: 8}


async def test_what_a_removed_service_counted_unseen_is_in_other() -> None:
    engine, selection = Engine(), Selection(5)
    engine.request("a", 5)
    assert accepted(await engine.read(selection)) == {"a": 5}
    engine.request("a", 2)
    engine.remove("a")
    assert accepted(await engine.read(selection)) == {OTHER: 2}
    engine.request("a", 1)
    assert accepted(await engine.read(selection)) == {"a": 1, OTHER: 2}


async def test_a_service_named_other_is_counted_with_the_others() -> None:
    engine, selection = Engine(), Selection(5)
    engine.request("a", 1)
    engine.request(OTHER, 7)
    assert accepted(await engine.read(selection)) == {"a": 1, OTHER: 7}


@pure_only("the test uses an object in place of a client")
async def test_names_that_clients_invent_get_no_metrics_of_their_own() -> None:
    engine, selection = Engine(), Selection(5)
    engine.request("served", 1)
    for name in ("invented", "again"):
        engine.request(name, 5)
        engine.services[name].namer = cast(Client, object())
    assert accepted(await engine.read(selection)) == {"served": 1, OTHER: 10}
    engine.services["invented"].namer = None  # a worker has joined
    engine.request("invented", 2)
    assert accepted(await engine.read(selection)) == {"served": 1, "invented": 0, OTHER: 12}
    engine.request("invented", 2)
    assert accepted(await engine.read(selection)) == {"served": 1, "invented": 2, OTHER: 12}


async def test_gauges_of_the_others_are_summed_and_the_oldest_wait_is_the_longest() -> None:
    engine, selection = Engine(), Selection(1)
    for name in "abc":
        engine.request(name)
    engine.request("a")
    for name in "bc":
        engine.services[name].is_paused = True
    rows = await engine.read(selection)
    assert (rows["a"].paused, rows[OTHER].paused) == (0, 2)


async def test_the_choice_lets_the_loop_turn() -> None:
    engine, selection = Engine(), Selection(2)
    turned: list[int] = []

    class Services(tuple[Service, ...]):
        """Notes which turn of the loop each pass, and each thousand of services, is in."""

        def __iter__(self) -> Iterator[Service]:
            for number, each in enumerate(super().__iter__()):
                if number % 1000 == 0:
                    passes.append(len(turned))
                    asyncio.get_running_loop().call_soon(turned.append, number)
                yield each

    passes: list[int] = []
    for number in range(2500):
        engine.request(f"service-{number}", 1 + number // 2499)
    census = engine.census()
    rows = await selection.read(census._replace(services=Services(census.services)))
    assert passes[:4] == [0, 1, 2, 3]
    assert len(rows) == 3
    assert "service-2499" in {each.name for each in rows}


@pytest.mark.slow
async def test_ten_thousand_services_let_the_loop_turn() -> None:
    engine, selection = Engine(), Selection(100)
    for number in range(10_000):
        engine.request(f"service-{number}")
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.ensure_future(turn())
    rows = await engine.read(selection)
    turning.cancel()
    assert len(rows) == 101
    assert rows[OTHER].tally[at.ACCEPTED] == 9_900
    assert turns >= 50


NAMES = st.sampled_from(["a", "b", "c", "d", OTHER])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), NAMES, st.integers(1, 5), st.floats(0, 60)),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("read")),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(acts=ACTS, named_max=st.integers(1, 4))
async def test_rates_stay_true(acts: list[tuple], named_max: int) -> None:
    """As Prometheus sees it: a series only grows while it is there, or begins again near 0."""
    engine, selection = Engine(), Selection(named_max)
    last: dict[str, Traffic] = {}
    increase: dict[str, int] = defaultdict(int)  # of accepted requests
    numbers: dict[str, int] = {}
    for act in [*acts, ("read",)]:
        if act[0] == "request":
            engine.request(*act[1:])
        elif act[0] == "remove":
            engine.remove(act[1])
        else:
            seen = await engine.read(selection)
            assert len(seen) <= named_max + 1
            for name, row in seen.items():
                before = last.get(name)
                is_same = before is not None and numbers.get(name) == row.number
                if is_same and before is not None:
                    pairs = zip(before.tally, row.tally, strict=True)
                    assert all(new >= old for old, new in pairs), name
                    increase[name] += row.tally[at.ACCEPTED] - before.tally[at.ACCEPTED]
                else:
                    increase[name] += row.tally[at.ACCEPTED]
                numbers[name] = row.number
            last = seen
    assert sum(increase.values()) == engine.accepted
