"""What Spark runs again on a cluster: each row has one reply, and the service sees no new ids.

A second action and a replayed micro-batch are in `test_bulk_calls` and `test_sink`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.spark.bulk.program import CRASHING, PARTITIONS, ROWS, SLEEPING
from tests.spark.bulk.services import Recorded
from tests.spark.cluster import Cluster
from tests.support.live import Process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]

WITHIN_S = 60
PER_TASK = ROWS // PARTITIONS


@dataclass
class Run:
    """What the driver printed, what the service saw, and the folder in which tasks left traces."""

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
def run(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run the driver once: a start of Spark is what takes time here."""
    folder, recorded = tmp_path_factory.mktemp("run"), Recorded()
    arguments = ("-m", "tests.spark.bulk.program", cluster.url, recorded.url(), str(folder))
    driver = Process(*arguments)
    try:
        told = json.loads(driver.line())
        code, errors = driver.ended(WITHIN_S)
        assert code == 0, errors
        yield Run(told, recorded.keys, folder, recorded)
    finally:
        driver.dispose()
        recorded.close()


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
