"""Verdicts on journals of simulated runs agree with the simulator; no violation is invented."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession
from tests.sim import mdp_broker_mutants as brokers
from tests.sim import mdp_peer_mutants as peers
from tests.spark.events import Event, collect, instant, write_rows
from tests.spark.pipeline.simulated import GROUPS, Run
from tests.support.builds import IS_COMPILED

from requite.sim import Options, scenarios
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.run import knobs_of
from requite.spark import audit, schemas
from requite.spark.contradictions import contradictions
from requite.spark.lifecycle import lives
from requite.story.rules import GRACE_S
from requite.story.vocabulary import Contradiction as C

NOW = instant(100_000.0)
NEAR_S = 0.02  # calls that end this close to the limit of lateness are not compared
ENDS = ("answered", "expired", "cancelled")
SCENARIOS: Final = [scenario for group in GROUPS for scenario in scenarios.GROUPS[group]]
EVENTS_AT_ONCE = 50_000  # in memory
POOLS: Final = frozenset(scenarios.GROUPS["pool"])

# Broken engines whose faults a journal shows, with the contradiction that it shows. The faults of
# other broken engines are in the replies to users, or are not journalled.
BROKEN = (
    ("calm", 3, MajordomoParts(broker=brokers.HandsOutTwice), C.TWO_OWNERS),
    ("crash-workers", 1, MajordomoParts(broker=brokers.NeverPoisoned), C.FORMER_OWNER),
    (
        "crash-broker",
        10,
        MajordomoParts(client=peers.SendsAgainWhatMayHaveRun),
        C.RAN_AGAIN,
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, because engines log a warning for each of the many faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def runs_of(seeds: Iterable[int], numbers: Iterator[int], size: float = 1.0) -> Iterator[Run]:
    """Yield runs of all scenarios; `size` < 1 shortens the faulty phase and reduces the calls."""
    for seed in seeds:
        for scenario in SCENARIOS:
            options = Options()
            if size < 1.0:
                knobs = knobs_of(seed, scenario)
                calls, faulty_s = math.ceil(knobs.calls * size), knobs.faulty_s * size
                options = Options(knobs={"calls": calls, "faulty_s": faulty_s})
            yield Run(next(numbers), seed, scenario, options).play()


def expected_of(run: Run, events: list[Event]) -> Iterator[tuple[str, str]]:
    """Yield the expected verdict on each call that the journal of its client has as accepted."""
    by_client = [event for event in events if event["role"] == "client"]
    made = {event["request_id"] for event in by_client if event["kind"] == "accepted"}
    ended = {event["request_id"] for event in by_client if event["kind"] in ENDS}
    for request_id, call in run.calls.items():
        if request_id not in made:
            continue
        if call.ended_at is None or request_id not in ended:
            yield request_id, "MISSING"
            continue
        late_s = call.ended_at - call.due_at - GRACE_S
        if abs(late_s) > NEAR_S:
            yield request_id, "LATE" if late_s > 0 else "EXACTLY_ONE"


def check(
    spark: SparkSession, folder: Path, runs: Iterable[Run], broken: Mapping[int, C] | None = None
) -> Counter[str]:
    """Judge runs in one job; return the numbers of compared calls by their verdict.

    Of runs in `broken`, by number, only a contradiction that they must show is checked. In runs of
    pools only managers have journals, which give no verdicts.
    """
    broken = broken or {}
    events: list[Event] = []
    expected: dict[str, str] = {}
    pools: set[int] = set()
    for run in runs:
        new_events = list(run.events(Random(run.number)))
        if run.scenario in POOLS:
            pools.add(run.number)
        if run.number not in broken:
            # I9, since the rows of chronicles are never taken.
            assert run.violated <= {"I9"}, (run.scenario, run.seed)
            expected.update(expected_of(run, new_events))
        events += new_events
        if len(events) > EVENTS_AT_ONCE:
            write_rows(folder, events, schemas.BRONZE_EVENTS)
            events.clear()
    write_rows(folder, events, schemas.BRONZE_EVENTS)
    frame = spark.read.schema(schemas.BRONZE_EVENTS).parquet(str(folder))
    gathered = lives(frame).persist()
    found = {row["request_id"]: row["verdict"] for row in collect(audit.verdicts(gathered, NOW))}
    contradicted = collect(contradictions(gathered, frame))
    gathered.unpersist()
    wrong = {key: (found.get(key), due) for key, due in expected.items() if found.get(key) != due}
    assert wrong == {}
    assert pools.isdisjoint(map(number_of, found))
    accused = {(number_of(row["request_id"]), row["kind"]) for row in contradicted}
    assert {pair for pair in accused if pair[0] not in broken} == set()
    assert set(broken.items()) <= accused
    return Counter(expected.values())


def number_of(request_id: str) -> int:
    """Return the number of the run that a request belongs to."""
    first = int(request_id[:8], 16)
    if first & 0x8000_0000:  # generated by a broker
        return (first & 0x7FFF_FFFF) >> 8
    return first & 0xFF_FFFF


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_verdicts_on_simulated_runs_agree_with_the_simulator(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One run of each scenario, of a sixth of the usual length; `make long` has ten thousand.

    The seed is one whose runs have requests of every verdict.
    """
    numbers = count(1)
    rows = () if IS_COMPILED else BROKEN  # broken engines inherit from engines
    broken = [
        Run(next(numbers), seed, scenario, Options(parts=(parts,))).play()
        for scenario, seed, parts, _ in rows
    ]
    accused = {run.number: kind for run, (*_, kind) in zip(broken, rows, strict=True)}
    runs = chain(broken, runs_of([3], numbers, size=1 / 6))
    compared = check(spark, tmp_path / "events", runs, accused)
    assert compared.keys() == {"EXACTLY_ONE", "MISSING", "LATE"}
    assert compared.total() > 1_000
    assert next(numbers) - 1 == len(SCENARIOS) + len(broken)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_verdicts_on_ten_thousand_simulated_runs_agree_with_the_simulator(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, chunk = count(1), 10
    for first in range(2, 2 + -(-10_000 // len(SCENARIOS)), chunk):
        seeds = range(first, first + chunk)
        check(spark, tmp_path / f"events-{first}", runs_of(seeds, numbers))
