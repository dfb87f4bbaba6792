"""spark-submit to a standalone cluster on loopback: requite travels as an archive."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.spark.cluster import Cluster
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.deploy.submit import Submitted, submit

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]


def test_driver_and_executors_have_requite_from_the_archive(submitted: Submitted) -> None:
    told = submitted.told("places")
    places = [told["driver"], *told["executors"]]
    assert len(places) >= 2
    assert all("/requite.zip/" in place for place in places), places


def test_a_sweep_runs_on_the_cluster(submitted: Submitted) -> None:
    ended = submitted.ended
    assert ended.code == 0, ended.err
    assert ended.told | {"seconds": 0} == {
        "seeds": 6, "ok": 6, "violated": 0, "hung": 0, "crashed": 0, "violations": 0,
        "seconds": 0,
    }  # fmt: skip
    runs = pq.read_table(submitted.folder / "sweeps" / "sim_runs")
    assert sorted(runs.column("seed").to_pylist()) == list(range(6))


@pytest.mark.long
def test_the_pipeline_runs_on_the_cluster(
    cluster: Cluster, packed: tuple[Path, Path], tmp_path: Path
) -> None:
    write_journal(tmp_path / "journal")
    places = ["--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake")]
    ended = submit(cluster, *packed, "run", *places)
    assert ended.code == 1, ended.err + ended.out  # one request is missing
    audit = ended.told["audit"]
    assert audit["accepted"] == ACCEPTED
    assert audit["exactly_one"] == ENDED
    assert audit["missing"] == 1
    requests = DeltaTable(tmp_path / "lake" / "silver_requests")
    assert requests.count() == ACCEPTED
