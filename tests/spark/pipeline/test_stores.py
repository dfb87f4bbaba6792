"""The pipeline where nothing is in a folder: journals and lakes in an S3 on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.events import collect
from tests.support.s3 import make_bucket, s3, settings_of

import requite.spark
from requite.journal.shipping import Shipper
from requite.spark import runner
from requite.spark.lake import Lake
from requite.storage.stores import open_store

__all__ = ["s3"]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def bucket(spark: SparkSession, s3: str) -> Iterator[str]:
    """The URL of a bucket. Spark's processes inherit the settings, as those of a cluster would."""
    settings = settings_of(s3)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
            patch.setitem(spark.sparkContext.environment, name, value)
        yield make_bucket(s3)


def test_a_journal_in_a_store_is_audited_like_the_folder_it_came_from(
    spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    journal, place = tmp_path / "journal", bucket.replace("s3:", "s3a:") + "/journal"
    write_journal(journal)
    Shipper(journal, open_store(place)).ship()
    summary = runner.run(spark, place, tmp_path / "lake")
    assert (summary.audit.accepted, summary.audit.exactly_one) == (ACCEPTED, ENDED)
    assert (summary.audit.missing, summary.audit.complete) == (1, True)
    requite.spark.register(spark)
    told = spark.read.format("requite").load(place)
    assert told.count() == Lake.at(spark, tmp_path / "lake").table("bronze_events").count()
    assert collect(told.where("kind = 'accepted'").groupBy("kind").count()) == [
        {"kind": "accepted", "count": ACCEPTED}
    ]
