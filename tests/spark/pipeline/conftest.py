"""Pipelines with an empty journal and an empty lake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline.harness import Pipeline

from requite.spark.refresh import Refresh


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


@pytest.fixture
def audit_only(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline that skips gold, half of a run, for tests of reading, days and verdicts."""
    monkeypatch.setattr(Refresh, "gold", lambda refresh, days, within: None)
    monkeypatch.setattr(Refresh, "small_tables", lambda refresh: None)
    return pipeline
