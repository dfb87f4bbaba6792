"""Runs that die are repeated by the next one, and count nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.pipeline.following import Pipeline

from requite.errors import LakeError
from requite.spark.delta.catalog import Catalog
from requite.spark.refresh import Refresh

pytestmark = pytest.mark.timeout(300)

DAY_S = 86400


@pytest.fixture
def dies_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def arrange(owner: object, name: str, told: str = "the power failed") -> None:
        real = getattr(owner, name)
        calls = iter([True])

        def dying(*args: Any, **kwargs: Any) -> Any:
            if next(calls, False):
                raise RuntimeError(told)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, dying)

    return arrange


def test_a_run_that_died_after_reading_is_repeated_by_the_next(
    judging: Pipeline, dies_once: Callable[..., None]
) -> None:
    """And days far from what is new are not touched."""
    broker = judging.story.broker()
    judging.story.call(1, 0.0, broker=broker)
    judging.write()
    judging.run()
    (old,) = Catalog(str(judging.root)).files("silver_requests")
    judging.story.call(2, 3 * DAY_S, broker=broker)
    judging.write()
    dies_once(Refresh, "small_tables")
    with pytest.raises(RuntimeError, match="power"):
        judging.run()
    summary = judging.run()
    assert summary.new_events == 3
    assert summary.days == 1
    assert summary.tables["silver_requests"] == 1
    assert old in Catalog(str(judging.root)).files("silver_requests")
    assert summary.audit.exactly_one == 2
    assert len(judging.rows("bronze_events")) == 6


def test_a_run_that_a_busy_machine_fails_is_tried_again(
    judging: Pipeline, dies_once: Callable[..., None]
) -> None:
    judging.story.call(1, 0.0, broker=judging.story.broker())
    judging.write()
    dies_once(Refresh, "small_tables", "[CANNOT_OPEN_SOCKET] Can not open socket")
    summary = judging.run()
    assert [step.step for step in judging.steps].count("audit_verdicts") == 2 * 2
    assert (summary.new_events, summary.audit.exactly_one) == (3, 1)
    assert len(judging.rows("bronze_events")) == 3


def test_a_run_that_died_while_reading_reads_the_batch_again_but_not_twice(
    judging: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging.story.call(1, 0.0, broker=judging.story.broker())
    judging.write()
    committed = Catalog.commit

    def dying(*args: Any, **kwargs: Any) -> None:
        committed(*args, **kwargs)
        raise LakeError("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "commit", dying)
        with pytest.raises(LakeError, match=r"^no space is left$"):  # and nothing of Spark's
            judging.run()
    assert judging.rows("bronze_events") == []  # it counts when a run has come to its end
    assert judging.run().new_events == 3
    assert len(judging.rows("bronze_events")) == 3
