"""What Spark runs again on a cluster: each row has one reply, and the service sees no new ids.

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
    """What the driver told, what the service saw, and the folder in which tasks left traces."""

    told: dict[str, Any]
    keys: Counter[UUID]
    folder: Path
    recorded: Recorded

    def times(self, partition: int) -> set[int]:
        """Return how often the requests of a partition's rows were seen."""
        rows = range(partition * PER_TASK, (partition + 1) * PER_TASK)
        key_of = dict(zip(self.told["rows"], self.told["keys"], strict=True))
        return {self.keys[UUID(key_of[row])] for row in rows}


@pytest.fixture(scope="module")
def run(submitted: Submitted) -> Run:
    """What the application's calls came to."""
    recorded = submitted.recorded
    return Run(submitted.told("calls"), recorded.keys, submitted.folder, recorded)


def test_each_row_has_one_reply_and_one_id(run: Run) -> None:
    assert sorted(run.told["rows"]) == list(range(ROWS))
    assert run.told["statuses"] == ["OK"]
    assert set(map(UUID, run.told["keys"])) == run.keys.keys()
    assert len(run.keys) == ROWS


def test_a_crash_after_the_replies_sends_the_same_ids(run: Run) -> None:
    assert (run.folder / "crashed").exists()
    assert min(run.times(CRASHING)) >= 2


def test_a_speculative_copy_sends_the_same_ids(run: Run) -> None:
    assert (run.folder / "slept").exists()
    assert min(run.times(SLEEPING)) >= 2


def test_a_service_that_runs_requests_once_has_one_effect_per_row(run: Run) -> None:
    """I4: a crashed task and a speculative copy ask again, and get the replies that there are."""
    told = {UUID(key): number for key, number in run.told["effects"].items()}
    assert run.recorded.effects == dict.fromkeys(told, 1)
    assert sorted(told.values()) == list(range(1, ROWS + 1))
    assert run.recorded.dedup.stats.replayed >= 2 * PER_TASK
