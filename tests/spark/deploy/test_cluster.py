"""spark-submit to a standalone cluster on loopback: requite travels as an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.cluster import Cluster
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.deploy.submit import Ended, submit

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the application leaves its results."""
    return tmp_path_factory.mktemp("submitted")


@pytest.fixture(scope="module")
def ended(cluster: Cluster, packed: tuple[Path, Path], folder: Path) -> Ended:
    """How the application ended. There is one for all verbs: its start is what takes time."""
    archive, program = packed
    write_journal(folder / "journal")
    sweep = ["sweep", "--seeds", "6", "--scenario", "calm", "drain", "--to", str(folder / "sweeps")]
    run = ["run", "--journal", str(folder / "journal"), "--lake", str(folder / "lake")]
    verbs = Path(__file__).with_name("verbs.py")
    return submit(cluster, archive, verbs, str(folder), str(program), *sweep, "--", *run)


def test_driver_and_executors_have_requite_from_the_archive(ended: Ended, folder: Path) -> None:
    file = folder / "places"
    assert file.exists(), ended.err
    told = json.loads(file.read_text())
    places = [told["driver"], *told["executors"]]
    assert len(places) >= 2
    assert all("/requite.zip/" in place for place in places), places


def test_a_sweep_runs_on_the_cluster(ended: Ended, folder: Path) -> None:
    *_, told, code = (folder / "verb-0").read_text().splitlines()
    assert code == "0", ended.err
    figures: dict[str, Any] = json.loads(told)
    assert figures | {"seconds": 0} == {
        "seeds": 6, "ok": 6, "violated": 0, "hung": 0, "crashed": 0, "violations": 0,
        "seconds": 0,
    }  # fmt: skip
    seeds = pq.read_table(folder / "sweeps" / "sim_runs").column("seed").to_pylist()
    assert sorted(seeds) == list(range(6))


def test_the_pipeline_runs_on_the_cluster(ended: Ended, folder: Path) -> None:
    assert ended.code == 1, ended.err + ended.out  # one request is missing
    audit = ended.told["audit"]
    assert audit["accepted"] == ACCEPTED
    assert audit["exactly_one"] == ENDED
    assert audit["missing"] == 1
    requests = pq.read_table(folder / "lake" / "silver_requests")
    assert requests.num_rows == ACCEPTED
