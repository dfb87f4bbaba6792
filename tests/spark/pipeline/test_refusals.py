"""Invalid paths of a run are refused, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from requite.errors import ConfigurationError
from requite.spark import runner

pytestmark = pytest.mark.timeout(300)


def test_invalid_paths_are_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="no journal at"):
        runner.run(spark, tmp_path / "absent", tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not a journal: it contains file, and no log"):
        runner.run(spark, tmp_path / "mine", tmp_path / "lake")
    (tmp_path / "journal").mkdir()
    with pytest.raises(ConfigurationError, match="not a lake"):
        runner.run(spark, tmp_path / "journal", tmp_path / "mine")
    for report, message in (
        ("mine", "is a folder; pass the name of a file"),
        ("mine/file/x", "file is a file"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            runner.run(spark, tmp_path / "journal", tmp_path / "lake", report=tmp_path / report)
    assert not (tmp_path / "lake").exists()


def test_an_unsupported_url_is_refused_and_creates_no_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "journal").mkdir()
    with pytest.raises(ConfigurationError, match="a lake is stored in a folder"):
        runner.run(spark, tmp_path / "journal", "hdfs:/it")
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
