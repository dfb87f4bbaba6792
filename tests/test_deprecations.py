"""Deprecated public names work, with a warning that has the new name (docs/topics/stability.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

import requite.pair
from requite.pair.operator import Operator
from requite.spark.bulk.progress import Progress


def test_pair_role() -> None:
    with pytest.warns(DeprecationWarning, match="PairRole"):
        assert requite.pair.Role is requite.pair.PairRole
    with pytest.raises(AttributeError, match="Rolle"):
        requite.pair.Rolle  # noqa: B018 - it is the access that raises


async def test_operator_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def view(_operator: Operator) -> str:
        return "a view"

    monkeypatch.setattr(Operator, "view", view)
    operator = Operator(f"ipc://{tmp_path}/nobody")
    with pytest.warns(DeprecationWarning, match=r"Operator\.view"):
        assert await operator.look() == "a view"


def test_progress_look(tmp_path: Path) -> None:
    with (
        Progress(str(tmp_path / "reports"), every=60) as progress,
        pytest.warns(DeprecationWarning, match=r"Progress\.count"),
    ):
        assert progress.look() == progress.count()
