"""Pipelines of a journal and a lake that are empty yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline.following import Pipeline

from requite.spark.refresh import Refresh


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


@pytest.fixture
def judging(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline without gold, half of a run: for what is about reading, days and verdicts."""
    monkeypatch.setattr(Refresh, "gold", lambda refresh, days, within: None)
    monkeypatch.setattr(Refresh, "small_tables", lambda refresh: None)
    return pipeline
