"""Capacity: what the load asked of the workers, and what queueing theory says about it.

Per minute and service, with λ the requests accepted per second, S the seconds a worker
is busy with one of them and W the seconds from acceptance to outcome:

    busy_servers     a = λS, the handlers that are busy on average (Little's law for the workers)
    in_system        L, the mean number of requests between acceptance and outcome, measured:
                     all time spent in the minute by requests, over its length
    littles_law_gap  |L - λW| / L; near 0 where what came in also went out. A large gap says that
                     the minute was not in balance (a queue grew or drained, the load had just
                     begun), so that the other figures describe a passing state.
    servers          c, the requests that the workers could handle at once
    utilisation      a / c
    predicted_wait_ms  the mean wait for a server in an M/M/c queue (Erlang C); null from a
                     utilisation of 1 on, where a queue grows without end. `measured_wait_ms` is
                     the mean `queue_ms`.

How many requests a worker can handle at once is taken from what it was seen to do: the most that
were in its hands at one instant of the period of ten minutes. Its own journal shows handlers; a
broker's alone shows what was dispatched to it, and part of that waits inside the worker.
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
"""Minutes at the ends of a journal count as at least so long, lest a handful be called a flood."""


def gold_capacity(
    requests: DataFrame,
    attempts: DataFrame,
    heartbeats: DataFrame,
    *,
    since: Instant,
    until: Instant,
    within: Periods | None = None,
) -> DataFrame:
    """Compute the table from silver rows; the journal tells of `since` to `until`.

    Minutes outside the periods `within` are left out, if these are given.
    """
    loads = _loads(requests.where(F.col("accepted_at").isNotNull()), until, within)
    joined = loads.join(servers(attempts, heartbeats, within), list(_KEY), "left")
    zeros = {name: F.coalesce(name, F.lit(0)) for name in ("workers", "servers")}
    rated = _rated(joined.withColumns(zeros), since, until)
    load = F.col("arrival_rate") * F.coalesce("service_s", F.lit(0.0))
    return _modelled(rated.withColumn("busy_servers", load))


def _loads(accepted: DataFrame, until: Instant, within: Periods | None) -> DataFrame:
    """Sum up, by minute, what was accepted in it, and the time that requests spent in it.

    What has not ended is in the system until its deadline: nobody waits for it any longer.
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
    """Count, by minute and service, the workers that were there, and what all could do at once.

    A worker is there from its first sign of life in the minute to its last. The most that were
    there at one instant count: one that took the place of another is not one more.
    """
    busy = _parallel(_edges(attempts, within).union(_signs(heartbeats, within)))
    # Not `distinct`: over Spark Connect it wants to know the columns of what may not be there yet.
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
    """Return when a worker had one request more, or one fewer: each period by itself.

    Of an attempt that has not ended nothing is known but when it began.
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
    # What goes on in the next period leaves this one at its last instant, not at the next's first.
    last = F.least(F.col("end"), F.col("period") + (PERIOD_US - 1))
    lasted = last > first
    enters = F.struct(first.alias("at"), F.when(lasted, 1).otherwise(0).alias("step"))
    leaves = F.struct(last.alias("at"), F.lit(-1).alias("step"))
    steps = F.when(lasted, F.array(enters, leaves)).otherwise(F.array(enters))
    edges = pieces.select("service", "worker", F.explode(steps).alias("edge"))
    return edges.select("service", "worker", F.timestamp_micros("edge.at").alias("at"), "edge.step")


def _signs(heartbeats: DataFrame, within: Periods | None) -> DataFrame:
    """Return when a worker was there, if it had nothing to do."""
    known = heartbeats.where(F.col("worker").isNotNull())
    if within is not None:
        known = known.where(is_within(micros(F.col("ts")), within))
    return known.select("service", "worker", F.col("ts").alias("at"), F.lit(0).alias("step"))


def _parallel(edges: DataFrame) -> DataFrame:
    """Add, to all signs of each worker, the most requests that it had at one instant of the
    period."""
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
    """Divide by the seconds of each minute of which the journal tells."""
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
    """Return the mean wait in an M/M/c queue (Erlang C), or null where it has no bound.

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
