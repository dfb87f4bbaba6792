"""Requite packed for a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from requite.spark.packing import pack


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive, and the program for spark-submit."""
    return pack(tmp_path_factory.mktemp("packed"))
