"""Capacity: the load of the workers, and the predictions of queueing theory for it.

Per minute and service, with λ the requests accepted per second, S the seconds for which a worker
is busy with one of them and W the seconds from acceptance to outcome:

    busy_servers     a = λS, the mean number of busy handlers (Little's law for the workers)
    in_system        L, the mean number of requests between acceptance and outcome, measured:
                     the total time that requests spent in the minute, divided by its length
    littles_law_gap  |L - λW| / L; near 0 if arrivals and departures were in balance. A large gap
                     means that a queue grew or drained, or that the load had just begun, so the
                     other figures describe a transient state.
    servers          c, the requests that the workers could handle at once
    utilisation      a / c
    predicted_wait_ms  the mean wait for a server in an M/M/c queue (Erlang C); null if the
                     utilisation is at least 1, since the queue then grows without bound.
                     `measured_wait_ms` is the mean `queue_ms`.

The concurrency of a worker is its observed maximum: the most requests that it had at one instant of
the period of ten minutes. A worker's own journal shows its running handlers; without it, a broker's
journal shows the requests dispatched to it, some of which wait inside the worker.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import (
    MINUTE_US,
    PERIOD_US,
    Instant,
    Periods,
    date_of,
    is_within,
    micros,
    minute_of,
    minutes_of,
    period_us,
    periods_of,
    still_waiting_us,
    until_next_day,
)

_KEY: Final = ("service", "minute")
_SHORTEST_S: Final = 1.0
"""Minimum length of the partial minutes at a journal's ends, so that rates are not exaggerated."""


def gold_capacity(
    requests: DataFrame,
    attempts: DataFrame,
    heartbeats: DataFrame,
    *,
    since: Instant,
    until: Instant,
    within: Periods | None = None,
) -> DataFrame:
    """Compute the table from silver rows; the journal covers `since` to `until`.

    `within` limits the table to the minutes of some periods.
    """
    loads = _loads(requests.where(F.col("accepted_at").isNotNull()), until, within)
    joined = loads.join(servers(attempts, heartbeats, within), list(_KEY), "left")
    zeros = {name: F.coalesce(name, F.lit(0)) for name in ("workers", "servers")}
    rated = _rated(joined.withColumns(zeros), since, until)
    load = F.col("arrival_rate") * F.coalesce("service_s", F.lit(0.0))
    return _modelled(rated.withColumn("busy_servers", load))


def _loads(accepted: DataFrame, until: Instant, within: Periods | None) -> DataFrame:
    """Sum up, by minute, the accepted requests and the time that requests spent in the system.

    An open request counts as in the system until its deadline.
    """
    begin = micros(F.col("accepted_at"))
    open_until = still_waiting_us(until, begin, F.col("deadline"))
    ended = F.greatest(begin, F.coalesce(micros(F.col("finished_at")), open_until))
    end = until_next_day(begin, ended)
    spans = accepted.withColumns({"begin": begin, "end": end})
    first = F.col("begin") - F.pmod("begin", F.lit(MINUTE_US))
    minutes = F.explode(minutes_of(F.col("begin"), F.col("end"), within)).alias("at")
    times = "service_ms", "total_ms", "queue_ms"
    pieces = spans.select("service", "begin", "end", first.alias("first"), minutes, *times)
    is_first = F.col("at") == F.col("first")
    spent = F.least(F.col("end"), F.col("at") + MINUTE_US) - F.greatest("begin", "at")
    return pieces.groupBy("service", F.timestamp_micros("at").alias("minute")).agg(
        F.count_if(is_first).alias("accepted"),
        (F.avg(F.when(is_first, F.col("service_ms"))) / 1000).alias("service_s"),
        (F.avg(F.when(is_first, F.col("total_ms"))) / 1000).alias("total_s"),
        F.avg(F.when(is_first, F.col("queue_ms"))).alias("measured_wait_ms"),
        (F.sum(spent) / 1e6).alias("spent_s"),
    )


def servers(attempts: DataFrame, heartbeats: DataFrame, within: Periods | None = None) -> DataFrame:
    """Count, by minute and service, the workers and their total concurrency.

    A worker is present from its first event in the minute to its last. The maximum at one instant
    counts, so a worker that replaces another one is not counted in addition.
    """
    busy = _parallel(_edges(attempts, within).union(_signs(heartbeats, within)))
    # Not `distinct`: over Spark Connect it resolves the columns, of tables that may not exist yet.
    there = busy.groupBy(*_KEY, "worker").agg(
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.greatest(F.max("parallel"), F.lit(1)).alias("parallel"),
    )
    so_far = Window.partitionBy(*_KEY).orderBy("at", F.desc("step"))
    so_far = so_far.rowsBetween(Window.unboundedPreceding, 0)
    present = there.select(*_KEY, F.explode(_comes_and_goes()).alias("edge")).select(
        *_KEY, "edge.at", "edge.step", "edge.more"
    )
    running = present.withColumns(
        {"workers": F.sum("step").over(so_far), "servers": F.sum("more").over(so_far)}
    )
    return running.groupBy(*_KEY).agg(
        F.max("workers").cast("int").alias("workers"), F.max("servers").cast("int").alias("servers")
    )


def _comes_and_goes() -> Column:
    def edge(at: str, sign: int) -> Column:
        step, more = F.lit(sign).alias("step"), (F.col("parallel") * sign).alias("more")
        return F.struct(F.col(at).alias("at"), step, more)

    return F.array(edge("first", 1), edge("last", -1))


def _edges(attempts: DataFrame, within: Periods | None) -> DataFrame:
    """Return the instants at which a worker's number of requests changes, per period.

    An open attempt counts at the instant of its beginning only.
    """
    begin = micros(F.coalesce("started_at", "delivered_at"))
    ended = F.greatest(begin, F.coalesce(micros(F.col("ended_at")), begin))
    known = attempts.where(begin.isNotNull() & F.col("worker").isNotNull())
    spans = known.select(
        "service", "worker", begin.alias("begin"), until_next_day(begin, ended).alias("end")
    )
    periods = F.explode(periods_of(F.col("begin"), F.col("end"), within)).alias("period")
    pieces = spans.select("service", "worker", "begin", "end", periods)
    first = F.greatest("begin", "period")
    # An attempt that continues in the next period leaves this one at its last instant.
    last = F.least(F.col("end"), F.col("period") + (PERIOD_US - 1))
    lasted = last > first
    enters = F.struct(first.alias("at"), F.when(lasted, 1).otherwise(0).alias("step"))
    leaves = F.struct(last.alias("at"), F.lit(-1).alias("step"))
    steps = F.when(lasted, F.array(enters, leaves)).otherwise(F.array(enters))
    edges = pieces.select("service", "worker", F.explode(steps).alias("edge"))
    return edges.select("service", "worker", F.timestamp_micros("edge.at").alias("at"), "edge.step")


def _signs(heartbeats: DataFrame, within: Periods | None) -> DataFrame:
    """Return the instants of heartbeats, at which even an idle worker is present."""
    known = heartbeats.where(F.col("worker").isNotNull())
    if within is not None:
        known = known.where(is_within(micros(F.col("ts")), within))
    return known.select("service", "worker", F.col("ts").alias("at"), F.lit(0).alias("step"))


def _parallel(edges: DataFrame) -> DataFrame:
    """Add the maximum concurrency of each worker in the period to its events."""
    worker = Window.partitionBy("service", "worker", period_us(micros(F.col("at"))))
    so_far = worker.orderBy("at", "step").rowsBetween(Window.unboundedPreceding, 0)
    running = edges.withColumn("running", F.sum("step").over(so_far))
    return running.select(
        "service",
        minute_of(F.col("at")).alias("minute"),
        "worker",
        "at",
        F.max("running").over(worker).alias("parallel"),
    )


def _rated(joined: DataFrame, since: Instant, until: Instant) -> DataFrame:
    """Divide by the seconds of each minute that the journal covers."""
    begin = micros(F.col("minute"))
    end = F.least(begin + MINUTE_US, micros(F.lit(until)))
    seconds = (end - F.greatest(begin, micros(F.lit(since)))) / 1e6
    covered = F.greatest(seconds, F.lit(_SHORTEST_S))
    return joined.withColumns(
        {
            "arrival_rate": F.col("accepted") / covered,
            "in_system": F.col("spent_s") / covered,
        }
    )


def _modelled(loaded: DataFrame) -> DataFrame:
    load, count, in_system = F.col("busy_servers"), F.col("servers"), F.col("in_system")
    expected = F.col("arrival_rate") * F.coalesce("total_s", F.lit(0.0))
    gap = F.when(in_system > 0, F.abs(in_system - expected) / in_system).otherwise(F.lit(0.0))
    return loaded.select(
        "minute",
        "service",
        "arrival_rate",
        "service_s",
        "busy_servers",
        "in_system",
        "workers",
        F.when(count > 0, load / count).alias("utilisation"),
        (erlang_c_wait_s(count, load, F.col("service_s")) * 1000).alias("predicted_wait_ms"),
        gap.alias("littles_law_gap"),
        "servers",
        "measured_wait_ms",
        date_of(F.col("minute")).alias("date"),
    )


def erlang_c_wait_s(servers: Column, load: Column, service_s: Column) -> Column:
    """Return the mean wait in an M/M/c queue (Erlang C), or null if it is unbounded.

    The probability of waiting comes from Erlang's B formula by its recurrence,
    B(k) = aB(k-1) / (k + aB(k-1)), which neither overflows nor cancels.
    """
    blocked = F.aggregate(
        F.sequence(F.lit(1), F.greatest(servers, F.lit(1))),
        F.lit(1.0),
        lambda b, k: load * b / (k + load * b),
    )
    waits = blocked / (1 - load / F.greatest(servers, F.lit(1)) * (1 - blocked))
    return F.when((servers > 0) & (load < servers), waits * service_s / (servers - load))
