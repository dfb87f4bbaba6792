"""Access decisions in the journals of brokers, and the owners of call ids.

A broker records each decision (docs/protocols/log-format.md, "Access decisions"): a connection, a
request or a worker that was admitted or denied, and changes of rights. It also records which
principal a client's call ids belong to. By these rows each request is attributed to a principal.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.bronze import CLIENT_DIGITS
from requite.spark.clock import date_of
from requite.story.vocabulary import ADMITTED, CALL_ID, CONNECT, DECISIONS

LOG_OF_BROKER: Final = "log_of_broker"
"""Column of requests for `with_principals`: the broker's log that has their first event."""

_CALL_IDS: Final = rf"call ids ([0-9a-f]{{{CLIENT_DIGITS}}})"
# Where brokers have the address in their sentences about connections. A name that a peer chose may
# look like an address, but not in these positions.
_PEER: Final = (r"^([a-z0-9+]+://\S+) has ", r" from ([a-z0-9+]+://\S+)$")


def silver_access(events: DataFrame) -> DataFrame:
    """Return each access decision: the table `silver_access`."""
    decided = events.where(F.col("kind").isin(*DECISIONS))
    verb = F.col("error_class")
    verdict = F.element_at(F.create_map(*_literals(DECISIONS)), F.col("kind"))
    client = F.when(verb == CALL_ID, _found(_CALL_IDS))
    peer = F.when(verb == CONNECT, F.coalesce(*map(_found, _PEER)))
    return decided.select(
        "ts",
        "log",
        _principal().alias("principal"),
        verb.alias("verb"),
        F.coalesce(client, "service").alias("object"),
        verdict.alias("verdict"),
        "reason",
        peer.alias("peer"),
        date_of(F.col("ts")).alias("date"),
    )


def _literals(pairs: dict[str, str]) -> list[Column]:
    return [F.lit(text) for pair in pairs.items() for text in pair]


def _principal() -> Column:
    """Return the name in the column `worker` of an event, which has it as hexadecimal digits."""
    # A string of the journal that was never defined is text, and truncation may cut a character.
    name = F.make_valid_utf8(F.unhex("worker").cast("string"))
    return F.coalesce(name, "worker", F.lit(""))


def _found(pattern: str) -> Column:
    """Return the group of a pattern in the reason; null without a match."""
    return F.nullif(F.regexp_extract("reason", pattern, 1), F.lit(""))


def owners(access: DataFrame) -> DataFrame:
    """Return the principals of call ids, by client and broker's log, from `silver_access`.

    Columns: `client`, `log`, `principal`. A broker admits one principal to a client's ids. If its
    log nevertheless has several, all are named, separated by commas.
    """
    names = F.array_sort(F.collect_set("principal"))
    admitted = access.where(
        (F.col("verb") == CALL_ID) & (F.col("verdict") == DECISIONS[ADMITTED])
    ).where(F.col("principal") != "")
    return admitted.groupBy(F.col("object").alias("client"), "log").agg(
        F.array_join(names, ", ").alias("principal")
    )


def with_principals(requests: DataFrame, owned: DataFrame | None) -> DataFrame:
    """Add `principal` to requests with the columns `client` and `log_of_broker`.

    `owned` are the owners; None: unknown. The principal of a request is the owner of its id, by the
    log of the broker that has the request's first event; "" if this log names none.
    """
    if owned is None:
        return requests.withColumn("principal", F.lit(""))
    by_log = owned.withColumnRenamed("log", LOG_OF_BROKER)
    joined = requests.join(by_log, ["client", LOG_OF_BROKER], "left")
    return joined.withColumn("principal", F.coalesce("principal", F.lit("")))
