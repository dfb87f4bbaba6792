"""spark-submit to a standalone cluster on loopback, with requite as an archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.cli.command import requite
from tests.spark.cluster import Cluster
from tests.spark.deploy.submit import Submitted, submit
from tests.support.s3 import SECRET, bucket, s3, settings_of

from requite.journal.shipping import Shipper
from requite.storage.stores import open_store

__all__ = ["bucket", "s3"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]


def test_driver_and_executors_have_requite_from_the_archive(submitted: Submitted) -> None:
    report = submitted.report("places")
    places = [report["driver"], *report["executors"]]
    assert len(places) >= 2
    assert all("/requite.zip/" in place for place in places), places


def test_a_sweep_runs_on_the_cluster(submitted: Submitted) -> None:
    ended = submitted.ended
    assert ended.code == 0, ended.err
    assert ended.report | {"seconds": 0} == {
        "seeds": 6, "ok": 6, "violated": 0, "hung": 0, "crashed": 0, "violations": 0,
        "seconds": 0,
    }  # fmt: skip
    runs = pq.read_table(submitted.folder / "sweeps" / "sim_runs")
    assert sorted(runs.column("seed").to_pylist()) == list(range(6))


@pytest.mark.long
def test_a_cluster_without_a_shared_folder_audits_the_demo(
    cluster: Cluster, packed: tuple[Path, Path], bucket: str, s3: str, tmp_path: Path
) -> None:
    """Short form: `test_an_audit_needs_no_folder`."""
    few = ("--requests=400", "--workers=2", "--worker-kills=1", "--broker-kills=1", "--stops=0")
    demo = requite("demo", *few, "--keep", str(tmp_path / "demo"), "--json", within_s=240)
    assert demo.code == 0, demo.err + demo.out
    journal, lake = f"{bucket}/journal", f"{bucket}/lake"
    Shipper(tmp_path / "demo" / "journal", open_store(journal)).ship()
    shutil.rmtree(tmp_path / "demo")  # the cluster cannot read that folder
    settings = tmp_path / "cluster.conf"
    inherited = settings_of(s3).items()
    settings.write_text("".join(f"spark.executorEnv.{key} {value}\n" for key, value in inherited))
    places = ["--journal", journal, "--lake", lake, "--partitions", "2"]
    ended = submit(cluster, *packed, "run", *places, file=settings)
    assert ended.code == 0, ended.err + ended.out
    assert SECRET not in ended.err + ended.out
    report = ended.report["audit"]
    assert {name: report[name] for name in demo.record["audit"]} == demo.record["audit"]
    assert DeltaTable(f"{lake}/silver_requests").count() == demo.record["audit"]["accepted"] == 400
