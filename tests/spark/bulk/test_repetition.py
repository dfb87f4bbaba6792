"""Tasks that Spark repeats on a cluster: each row has one reply, and no request a new id.

A second action and a replayed micro-batch are in `test_bulk_calls` and `test_sink`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.spark.bulk.services import Recorded
from tests.spark.deploy.application import CRASHING, PARTITIONS, ROWS, SLEEPING
from tests.spark.deploy.submit import Submitted

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]

PER_TASK = ROWS // PARTITIONS


@dataclass
class Run:
    """The driver's report, the keys that the service counted, and the folder of marker files."""

    report: dict[str, Any]
    keys: Counter[UUID]
    folder: Path
    recorded: Recorded

    def times(self, partition: int) -> set[int]:
        """Return how often the service got the requests of a partition (the distinct counts)."""
        rows = range(partition * PER_TASK, (partition + 1) * PER_TASK)
        key_of = dict(zip(self.report["rows"], self.report["keys"], strict=True))
        return {self.keys[UUID(key_of[row])] for row in rows}


@pytest.fixture(scope="module")
def run(submitted: Submitted) -> Run:
    """The results of the application's bulk calls."""
    recorded = submitted.recorded
    return Run(submitted.report("calls"), recorded.keys, submitted.folder, recorded)


def test_each_row_has_one_reply_and_one_id(run: Run) -> None:
    assert sorted(run.report["rows"]) == list(range(ROWS))
    assert run.report["statuses"] == ["OK"]
    assert set(map(UUID, run.report["keys"])) == run.keys.keys()
    assert len(run.keys) == ROWS


def test_a_crash_after_the_replies_sends_the_same_ids(run: Run) -> None:
    assert (run.folder / "crashed").exists()
    assert min(run.times(CRASHING)) >= 2


def test_a_speculative_copy_sends_the_same_ids(run: Run) -> None:
    assert (run.folder / "slept").exists()
    assert min(run.times(SLEEPING)) >= 2


def test_a_service_that_runs_requests_once_has_one_effect_per_row(run: Run) -> None:
    """I4: requests that a retried or speculative task sends again get the stored replies."""
    report = {UUID(key): number for key, number in run.report["effects"].items()}
    assert run.recorded.effects == dict.fromkeys(report, 1)
    assert sorted(report.values()) == list(range(1, ROWS + 1))
    assert run.recorded.dedup.stats.replayed >= 2 * PER_TASK
