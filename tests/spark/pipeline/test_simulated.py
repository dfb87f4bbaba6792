"""Journals of simulated runs are judged as the simulator judges them: no false accusation."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession
from tests.sim import mutants
from tests.spark.events import Event, collect, instant, write_rows
from tests.spark.pipeline.simulated import GROUPS, Run

from requite.sim import Options, scenarios
from requite.sim.majordomo.roles import MajordomoParts
from requite.sim.run import knobs_of
from requite.spark import audit, schemas
from requite.spark.contradictions import contradictions
from requite.spark.lifecycle import lives
from requite.spark.vocabulary import Contradiction as C

NOW = instant(100_000.0)
NEAR_S = 0.02  # how near to the border between in time and late nothing is compared
ENDS = ("answered", "expired", "cancelled")
SCENARIOS: Final = [scenario for group in GROUPS for scenario in scenarios.GROUPS[group]]
EVENTS_AT_ONCE = 50_000  # in memory
POOLS: Final = frozenset(scenarios.GROUPS["pool"])

# Broken engines whose fault a journal can show: what accuses them. The others' faults are in what
# users get, or in what is not written down.
BROKEN = (
    ("calm", 3, MajordomoParts(broker=mutants.HandsOutTwice), C.TWO_OWNERS),
    ("crash-workers", 1, MajordomoParts(broker=mutants.NeverPoisoned), C.FORMER_OWNER),
    ("crash-broker", 10, MajordomoParts(client=mutants.SendsAgainWhatMayHaveRun), C.RAN_AGAIN),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Engines warn operators of each fault; here are plenty."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def runs_of(seeds: Iterable[int], numbers: Iterator[int], size: float = 1.0) -> Iterator[Run]:
    """Yield runs of all scenarios; of smaller ones, the first phase and its calls are cut."""
    for seed in seeds:
        for scenario in SCENARIOS:
            options = Options()
            if size < 1.0:
                knobs = knobs_of(seed, scenario)
                calls, faulty_s = math.ceil(knobs.calls * size), knobs.faulty_s * size
                options = Options(knobs={"calls": calls, "faulty_s": faulty_s})
            yield Run(next(numbers), seed, scenario, options).play()


def expected_of(run: Run, told: list[Event]) -> Iterator[tuple[str, str]]:
    """Yield the verdict that is due for each call whose client has written down that it made it."""
    by_client = [event for event in told if event["role"] == "client"]
    made = {event["request_id"] for event in by_client if event["kind"] == "accepted"}
    ended = {event["request_id"] for event in by_client if event["kind"] in ENDS}
    for request_id, call in run.calls.items():
        if request_id not in made:
            continue
        if call.ended_at is None or request_id not in ended:
            yield request_id, "MISSING"
            continue
        late_s = call.ended_at - call.due_at - audit.GRACE_S
        if abs(late_s) > NEAR_S:
            yield request_id, "LATE" if late_s > 0 else "EXACTLY_ONE"


def check(
    spark: SparkSession, folder: Path, runs: Iterable[Run], broken: Mapping[int, C] | None = None
) -> int:
    """Judge runs in one job; return how many calls were compared.

    Of those that are `broken`, by number, nothing is known but a contradiction that they show. Of
    pools only managers tell, who answer for no request.
    """
    broken = broken or {}
    events: list[Event] = []
    expected: dict[str, str] = {}
    pools: set[int] = set()
    for run in runs:
        told = list(run.events(Random(run.number)))
        if run.scenario in POOLS:
            pools.add(run.number)
        if run.number not in broken:
            assert run.violated <= {"I9"}, (run.scenario, run.seed)  # nobody takes the rows
            expected.update(expected_of(run, told))
        events += told
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
    return len(expected)


def number_of(request_id: str) -> int:
    """Return the number of the run that a request is of."""
    first = int(request_id[:8], 16)
    if first & 0x8000_0000:  # made up by a broker
        return (first & 0x7FFF_FFFF) >> 8
    return first & 0xFF_FFFF


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_simulated_runs_are_judged_as_the_simulator_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Some 350 runs, each of a sixth of the usual length; `make long` has ten thousand."""
    numbers = count(1)
    broken = [
        Run(next(numbers), seed, scenario, Options(parts=(parts,))).play()
        for scenario, seed, parts, _ in BROKEN
    ]
    accused = {run.number: kind for run, (*_, kind) in zip(broken, BROKEN, strict=True)}
    runs = chain(broken, runs_of(range(1, 5), numbers, size=1 / 6))
    assert check(spark, tmp_path / "events", runs, accused) > 4_000
    assert next(numbers) > 340 + len(broken)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_simulated_runs_are_judged_as_the_simulator_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, chunk = count(1), 10
    for first in range(2, 2 + -(-10_000 // len(SCENARIOS)), chunk):
        seeds = range(first, first + chunk)
        check(spark, tmp_path / f"events-{first}", runs_of(seeds, numbers))
