"""Access decisions as a table, and the principals of requests."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import (
    EventBuilder,
    Log,
    call_id,
    collect,
    instance,
    instant,
    rows_frame,
    schema_names,
)
from tests.spark.pipeline.harness import Pipeline

from requite.spark import runner, schemas
from requite.spark.decisions import owners, silver_access
from requite.spark.delta.catalog import Catalog
from requite.spark.lake import Lake
from requite.spark.lifecycle import lives
from requite.spark.new_rows import Span
from requite.spark.refresh import Refresh
from requite.spark.silver import CLOCK_WENT_BACK, silver_requests
from requite.spark.skew import Clocks, corrected

DAY_S = 86_400.0


def decide(
    log: Log,
    at: float,
    kind: str,
    principal: str,
    verb: str,
    name: str | None = None,
    reason: str | None = None,
) -> None:
    """Add a decision as the source has it: the principal in hexadecimal digits."""
    digits = principal.encode().hex() or None
    log.add(at, kind, worker=digits, error_class=verb, service=name, reason=reason)


def own(log: Log, at: float, principal: str, client: str = "c1") -> None:
    """Admit a principal to the call ids of a client."""
    decide(log, at, "admitted", principal, "call id", reason=f"call ids {instance(client)}")


def add_decisions(builder: EventBuilder) -> None:
    broker = builder.broker()
    plain, peer = "plain:shop from tcp://127.0.0.1:4711", "tcp://[::1]:4712"
    decide(broker, 0.0, "admitted", "shop", "connect", reason=plain)
    own(broker, 1.0, "shop")
    decide(broker, 2.0, "denied", "shop", "call", "pay", "shop has no right to call 'pay' from x")
    taken = f"the call ids {instance('c1')} belong to shop"
    decide(broker, 3.0, "denied", "thïef", "call id", reason=taken)
    nobody = f"{peer} has the credential plain:eve, which no user of access.toml has"
    decide(broker, 4.0, "denied", "plain:eve", "connect", reason=nobody)
    decide(broker, 5.0, "changed", "shop", "rights", reason="changed")
    decide(broker, 6.0, "admitted", "", "serve", "pay")
    lie = "shop has no right to call ' from tcp://192.0.2.1:1'; nothing from tcp://192.0.2.1:1"
    decide(broker, DAY_S, "denied", "shop", "call", "x", lie)
    for event in builder.events:
        if event["kind"] == "changed":
            event["kind"] = "rights"


def test_each_decision_is_a_row(spark: SparkSession) -> None:
    builder = EventBuilder()
    add_decisions(builder)
    builder.call(1, 0.5, broker=builder.broker())
    found = silver_access(builder.frame(spark))
    assert found.columns == schema_names(schemas.SILVER_ACCESS)
    rows = collect(found)
    columns = ("principal", "verb", "object", "verdict", "peer")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("shop", "connect", None, "admitted", "tcp://127.0.0.1:4711"),
        ("shop", "call id", instance("c1"), "admitted", None),
        ("shop", "call", "pay", "denied", None),
        ("thïef", "call id", instance("c1"), "denied", None),
        ("plain:eve", "connect", None, "denied", "tcp://[::1]:4712"),
        ("shop", "rights", None, "changed", None),
        ("", "serve", "pay", "admitted", None),
        ("shop", "call", "x", "denied", None),
    ]
    assert rows[0]["ts"] == instant(0)
    assert rows[0]["log"] == f"broker-{instance('b1')}"
    assert rows[-1]["date"] == instant(DAY_S).date()


def test_a_principal_that_is_no_text_is_shown_as_far_as_possible(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    for worker in (b"caf\xc3".hex(), "unknown:7", None):
        broker.add(0.0, "denied", worker=worker, error_class="call")
    rows = collect(silver_access(builder.frame(spark)))
    assert [row["principal"] for row in rows] == ["caf\ufffd", "unknown:7", ""]


def test_requests_have_the_owner_of_their_ids_by_their_brokers_log(spark: SparkSession) -> None:
    builder = EventBuilder()
    one, two = builder.broker("b1"), builder.broker("b2")
    own(one, 0.0, "shop", "c1")
    own(one, 0.5, "shop", "c1")  # after a reconnect
    own(two, 0.0, "thief", "c1")  # another broker, which did not know the owner
    own(two, 0.0, "ops", "c2")
    own(two, 0.0, "", "c3")
    own(two, 0.0, "b", "c4")
    own(two, 0.0, "a", "c4")
    builder.call(1, 1.0, broker=one, client=builder.client())
    builder.call(2, 1.0, client=builder.client())  # no broker keeps a journal
    for client in ("c1", "c2", "c3", "c4", "c5"):
        builder.call(call_id(9, client), 1.0, broker=two)
    events = builder.frame(spark)
    frame = silver_requests(lives(events), owners(silver_access(events)))
    assert frame.columns == [*schema_names(schemas.SILVER_REQUESTS), CLOCK_WENT_BACK]
    found = {row["request_id"]: row["principal"] for row in collect(frame)}
    assert found == {
        call_id(1): "shop",
        call_id(2): "",
        call_id(9, "c1"): "thief",
        call_id(9, "c2"): "ops",
        call_id(9, "c3"): "",
        call_id(9, "c4"): "a, b",
        call_id(9, "c5"): "",
    }


def test_a_join_with_the_owners_shuffles_no_requests(pipeline: Pipeline) -> None:
    """The small table of owners is sent to each task."""
    own(broker := pipeline.builder.broker(), 0.0, "shop")
    pipeline.builder.call(1, 1.0, broker=broker)
    pipeline.write()
    pipeline.run()
    lake = Lake.at(pipeline.spark, pipeline.root)
    covered = Span(instant(0), instant(2))
    owned = Refresh(lake, covered.end, covered, on_progress=pipeline.steps.append)._owners()
    requests = lake.table("silver_requests").select("client", "request_id")
    requests = requests.where("request_id IS NOT NULL")
    joined = requests.join(owned, "client", "left")
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan
    assert "SortMergeJoin" not in plan


def principals(pipeline: Pipeline) -> dict[str, str]:
    return {row["request_id"]: row["principal"] for row in pipeline.rows("silver_requests")}


def test_decisions_do_not_disturb_the_audit(pipeline: Pipeline) -> None:
    broker, client = pipeline.builder.broker(), pipeline.builder.client()
    worker = pipeline.builder.worker()
    add_decisions(pipeline.builder)
    pipeline.builder.call(1, 0.5, broker=broker, client=client, worker=worker)
    pipeline.builder.call(2, 2.5, broker=broker, client=client, worker=worker)
    pipeline.write()
    summary = pipeline.run()
    assert summary.audit.ok
    assert summary.audit.complete
    assert (summary.audit.accepted, summary.audit.exactly_one) == (2, 2)
    assert summary.tables["silver_access"] == 8
    assert summary.quarantined == 0
    assert set(pipeline.verdicts()) == {call_id(1), call_id(2)}
    assert pipeline.rows("silver_heartbeats") == []
    assert [row["worker"] for row in pipeline.rows("gold_worker_liveness")] == []
    assert pipeline.run().tables == {}


@pytest.mark.parametrize("known_max", [200_000, 0], ids=["merged", "by day"])
def test_an_owner_that_is_read_later_changes_earlier_requests(
    audit_only: Pipeline, monkeypatch: pytest.MonkeyPatch, known_max: int
) -> None:
    """Of two blocks that were written at once, the first may be read in an earlier run."""
    monkeypatch.setattr(runner, "KNOWN_MAX", known_max)
    broker = audit_only.builder.broker()
    audit_only.builder.call(1, 0.0, broker=broker)
    audit_only.builder.call(call_id(1, "c2"), 0.0, broker=broker)
    audit_only.write()
    audit_only.run()
    assert principals(audit_only) == {call_id(1): "", call_id(1, "c2"): ""}
    own(broker, 3 * DAY_S, "shop")
    audit_only.write()
    summary = audit_only.run()
    assert principals(audit_only) == {call_id(1): "shop", call_id(1, "c2"): ""}
    assert summary.audit.exactly_one == 2
    assert len(audit_only.verdicts()) == 2

    # A later connection of this owner changes no earlier request.
    own(broker, 3 * DAY_S + 1, "shop")
    audit_only.write()
    assert audit_only.run().tables["silver_requests"] == 0


def test_a_killed_run_adds_its_decisions_once(
    audit_only: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(broker := audit_only.builder.broker(), 0.0, "shop")
    audit_only.builder.call(1, 1.0, broker=broker)
    audit_only.write()
    audit_only.run()
    decide(broker, 2.0, "denied", "shop", "call", "pay", "no")
    audit_only.write()
    with monkeypatch.context() as killed:
        killed.setattr(Catalog, "end", fail)
        with pytest.raises(RuntimeError, match="power"):
            audit_only.run()
    summary = audit_only.run()
    assert summary.tables["silver_access"] == 1
    assert len(audit_only.rows("silver_access")) == 2


def fail(*_args: Any, **_kwargs: Any) -> None:
    raise RuntimeError("the power failed")


def test_decisions_have_the_times_of_the_common_clock(spark: SparkSession) -> None:
    builder = EventBuilder()
    decide(builder.broker(), 90.0, "denied", "shop", "call", "pay", "no")
    clocks = Clocks({f"broker-{instance('b1')}": 30_000_000})
    (row,) = collect(silver_access(corrected(builder.frame(spark), clocks)))
    assert row["ts"] == instant(60)


def test_a_table_without_decisions_has_no_owners(spark: SparkSession) -> None:
    frame = rows_frame(spark, [], schemas.SILVER_ACCESS)
    assert collect(owners(frame)) == []
