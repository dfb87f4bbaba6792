"""Failed runs are repeated by the next one, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.pipeline.harness import Pipeline

from requite.errors import LakeError
from requite.spark.delta.catalog import Catalog
from requite.spark.refresh import Refresh

pytestmark = pytest.mark.timeout(300)

DAY_S = 86400


@pytest.fixture
def fails_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def arrange(owner: object, name: str, message: str = "the power failed") -> None:
        real = getattr(owner, name)
        calls = iter([True])

        def failing(*args: Any, **kwargs: Any) -> Any:
            if next(calls, False):
                raise RuntimeError(message)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, failing)

    return arrange


def test_a_run_that_failed_after_reading_is_repeated_by_the_next(
    audit_only: Pipeline, fails_once: Callable[..., None]
) -> None:
    """Days far from the new events are not recomputed."""
    broker = audit_only.builder.broker()
    audit_only.builder.call(1, 0.0, broker=broker)
    audit_only.write()
    audit_only.run()
    (old,) = Catalog(str(audit_only.root)).files("silver_requests")
    audit_only.builder.call(2, 3 * DAY_S, broker=broker)
    audit_only.write()
    fails_once(Refresh, "small_tables")
    with pytest.raises(RuntimeError, match="power"):
        audit_only.run()
    summary = audit_only.run()
    assert summary.new_events == 3
    assert summary.days == 1
    assert summary.tables["silver_requests"] == 1
    assert old in Catalog(str(audit_only.root)).files("silver_requests")
    assert summary.audit.exactly_one == 2
    assert len(audit_only.rows("bronze_events")) == 6


def test_a_run_that_fails_on_a_busy_machine_is_retried_at_once(
    audit_only: Pipeline, fails_once: Callable[..., None]
) -> None:
    audit_only.builder.call(1, 0.0, broker=audit_only.builder.broker())
    audit_only.write()
    fails_once(Refresh, "small_tables", "[CANNOT_OPEN_SOCKET] Can not open socket")
    summary = audit_only.run()
    assert [step.step for step in audit_only.steps].count("audit_verdicts") == 2 * 2
    assert (summary.new_events, summary.audit.exactly_one) == (3, 1)
    assert len(audit_only.rows("bronze_events")) == 3


def test_a_run_that_failed_while_reading_is_repeated_without_duplicates(
    audit_only: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_only.builder.call(1, 0.0, broker=audit_only.builder.broker())
    audit_only.write()
    committed = Catalog.commit

    def failing(*args: Any, **kwargs: Any) -> None:
        committed(*args, **kwargs)
        raise LakeError("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "commit", failing)
        with pytest.raises(LakeError, match=r"^no space is left$"):  # no text of Spark
            audit_only.run()
    assert audit_only.rows("bronze_events") == []  # visible once a run has ended
    assert audit_only.run().new_events == 3
    assert len(audit_only.rows("bronze_events")) == 3
