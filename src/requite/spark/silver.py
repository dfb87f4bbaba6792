"""Silver: one row per request, per attempt at a worker, per wait in a queue, per heartbeat."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.clock import date_of, dated, elapsed_ms, not_negative
from requite.spark.decisions import LOG_OF_BROKER, with_principals
from requite.spark.lifecycle import (
    Predicate,
    first_of,
    is_acceptance,
    is_outcome,
    last_of,
)
from requite.spark.schemas import SILVER_REQUESTS, columns_of
from requite.story.vocabulary import (
    ABANDONED,
    ACCEPTED,
    BROKER,
    DELIVERED,
    DISPATCHED,
    FINISHED,
    OUTCOMES,
    PRESENCE,
    QUEUED,
    REDELIVERED,
    SENT,
    STARTED,
    WORKER,
)

CLOCK_WENT_BACK: Final = "clock_went_back"
"""A column in addition to the table's: a duration of the request was negative, and counts as 0."""

_DURATIONS: Final = ("queue_ms", "service_ms", "total_ms")
_AT_WORKERS: Final = (
    DISPATCHED, REDELIVERED, DELIVERED, STARTED, FINISHED, ABANDONED, *OUTCOMES,
)  # fmt: skip


def silver_requests(lives: DataFrame, owned: DataFrame | None = None) -> DataFrame:
    """Summarise each life: the table `silver_requests`, and `clock_went_back`.

    `owned` are the owners of call ids (`decisions.owners`), None if they are unknown.

    `accepted_at` to `finished_at` are from the log of the request's authority (its client, if that
    keeps a journal); `queue_ms` from the broker that accepted it last; `service_ms` from its
    worker, or else from the broker, from dispatch to answer. `attempts` counts dispatches or,
    without a broker's journal, the client's attempts.
    """
    events, own = F.col("events"), F.col("own")
    marked = _with_partners(lives.withColumns(_landmarks()))
    requests = marked.select(
        "request_id",
        "service",
        F.substring("request_id", 1, 16).alias("client"),
        first_of(own, is_acceptance)["ts"].alias("accepted_at"),
        F.coalesce(F.col("started")["ts"], F.col("dispatched")["ts"]).alias("started_at"),
        F.col("ended")["ts"].alias("finished_at"),
        _outcome(F.col("ended")).alias("outcome"),
        _ends(F.col("course"), own).alias("ends"),
        _attempts(events).alias("attempts"),
        _count(events, REDELIVERED).alias("redeliveries"),
        elapsed_ms(F.col("queued")["ts"], F.col("handed_out")["ts"]).alias("queue_ms"),
        _service_ms().alias("service_ms"),
        elapsed_ms(first_of(own, is_acceptance)["ts"], F.col("ended")["ts"]).alias("total_ms"),
        _worker().alias("worker"),
        dated(own, events).alias("date"),
        F.array_max(own["deadline"]).alias("deadline"),
        F.col("ended")["error_class"].alias("error_class"),
        F.col("ended")["reason"].alias("reason"),
        first_of(events, lambda event: event["role"] == BROKER)["log"].alias(LOG_OF_BROKER),
    )
    columns = columns_of(SILVER_REQUESTS)
    return _without_negative(with_principals(requests, owned).select(*columns))


def _landmarks() -> dict[str, Column]:
    """Return the events that are found independently of others."""
    events, own, last = F.col("events"), F.col("own"), F.col("last")
    return {
        "ended": _end(own, last),
        "queued": last_of(events, lambda event: is_acceptance(event) & (event["role"] == BROKER)),
        "replied": last_of(events, lambda event: is_outcome(event) & (event["role"] == BROKER)),
        "dispatched": first_of(events, _is(DISPATCHED)),
        "started": first_of(events, _is(STARTED)),
        "finished": last_of(events, _is(FINISHED)),
    }


def _with_partners(marked: DataFrame) -> DataFrame:
    """Add the other ends of durations.

    Both ends are in one log, whose order of writing shows which events belong together.
    """
    events = F.col("events")
    finished, replied, queued = F.col("finished"), F.col("replied"), F.col("queued")
    return marked.withColumns(
        {
            "handed_out": first_of(events, _is(DISPATCHED, after=queued)),
            "begun": last_of(events, _is(STARTED, before=finished)),
            "given": last_of(events, _is(DISPATCHED, REDELIVERED, before=replied)),
        }
    )


def _is(*kinds: str, after: Column | None = None, before: Column | None = None) -> Predicate:
    """Return a predicate: one of these kinds, after or before an event of the same log."""

    def holds(event: Column) -> Column:
        fits = event["kind"].isin(*kinds)
        if after is not None:
            fits &= (event["log"] == after["log"]) & (event["seq"] > after["seq"])
        if before is not None:
            fits &= (event["log"] == before["log"]) & (event["seq"] < before["seq"])
        return fits

    return holds


def _end(own: Column, last: Column) -> Column:
    """Return the outcome of the last acceptance; without an acceptance, the first outcome."""

    def written_later(event: Column) -> Column:
        return is_outcome(event) & (event["log"] == last["log"]) & (event["seq"] > last["seq"])

    def later(event: Column) -> Column:
        return is_outcome(event) & (event["log"] == last["log"]) & (event["ts"] >= last["ts"])

    accepted = F.coalesce(first_of(own, written_later), first_of(own, later))
    return F.when(last.isNotNull(), accepted).otherwise(first_of(own, is_outcome))


def _outcome(ended: Column) -> Column:
    """Return the status; without one (a broken connection), the class of the error."""
    return F.coalesce(ended["outcome"], ended["error_class"], F.upper(ended["kind"]))


def _ends(course: Column, own: Column) -> Column:
    """Return how often a request ended; without an acceptance, `own` has only outcomes."""
    return F.coalesce(course["outcomes"], F.size(own))


def _count(events: Column, kind: str) -> Column:
    return F.size(F.filter(events, _is(kind)))


def _attempts(events: Column) -> Column:
    by_broker = F.exists(events, lambda event: event["role"] == BROKER)
    tries = F.greatest(_count(events, SENT), _count(events, DELIVERED))
    return F.when(by_broker, _count(events, DISPATCHED)).otherwise(tries)


def _service_ms() -> Column:
    """Return the time from start to end of the handler, or from dispatch to reply."""
    given, replied = F.col("given"), F.col("replied")
    at_worker = elapsed_ms(F.col("begun")["ts"], F.col("finished")["ts"])
    at_broker = F.when(given["kind"] == DISPATCHED, elapsed_ms(given["ts"], replied["ts"]))
    return F.coalesce(at_worker, at_broker)


def _worker() -> Column:
    """Return the last worker: by the outcome, the dispatch or the worker's own events."""
    return F.coalesce(
        *(F.col(event)["worker"] for event in ("ended", "replied", "given", "finished", "started"))
    )


def _without_negative(requests: DataFrame) -> DataFrame:
    went_back = F.coalesce(F.least(*_DURATIONS) < 0, F.lit(False))
    marked = requests.withColumn(CLOCK_WENT_BACK, went_back)
    return marked.withColumns({name: not_negative(F.col(name)) for name in _DURATIONS})


def silver_waits(lives: DataFrame) -> DataFrame:
    """Return each request's waits in a broker's queue: the table `silver_waits`.

    A wait begins when a broker queues a request, for the first time or again, and ends when the
    request is dispatched or ends, at the latest when its caller has an outcome. Each acceptance is
    a wait of length 0, so that its minute has a row.
    """
    events = F.col("events")

    def at_broker(*kinds: str) -> Column:
        return F.filter(
            events, lambda event: event["kind"].isin(*kinds) & (event["role"] == BROKER)
        )

    over_at = F.array_max(F.filter(F.col("own"), is_outcome)["ts"])

    def wait(event: Column) -> Column:
        given_up = F.when(over_at.isNotNull(), F.greatest(event["ts"], over_at))
        return span(event["ts"], F.coalesce(_wait_end(events, event), given_up))

    def span(begin: Column, end: Column) -> Column:
        return F.struct(begin.alias("begin_at"), end.alias("end_at"))

    arrivals = F.transform(at_broker(ACCEPTED), lambda event: span(event["ts"], event["ts"]))
    waits = F.transform(at_broker(QUEUED, REDELIVERED), wait)
    found = F.explode(F.concat(arrivals, waits)).alias("wait")
    deadline = F.array_max(events["deadline"]).alias("deadline")
    exploded = lives.select("request_id", "service", found, deadline)
    begin_at = F.col("wait")["begin_at"]
    return exploded.select(
        "request_id", "service", "wait.*", "deadline", date_of(begin_at).alias("date")
    )


def _wait_end(events: Column, begin: Column) -> Column:
    """Return when a wait that began with an event ended, or null."""
    ends = F.filter(
        events,
        lambda event: (
            event["kind"].isin(DISPATCHED, *OUTCOMES)
            & (event["log"] == begin["log"])
            & (event["seq"] > begin["seq"])
        ),
    )
    return F.array_min(ends["ts"])


def silver_attempts(events: DataFrame) -> DataFrame:
    """Return each attempt at a worker, by the journals of worker and broker: `silver_attempts`.

    `delivered_at` is from the worker, or else the broker's dispatch. `busy_ms` is from the start of
    the handler to its end or, without the worker's journal, from delivery to reply. `result` is the
    broker's (`REDELIVERED`, or an outcome), or else the worker's.
    """
    at_workers = events.where(
        F.col("request_id").isNotNull()
        & F.col("role").isin(BROKER, WORKER)
        & F.col("kind").isin(*_AT_WORKERS)
    ).withColumn("worker", worker_of())
    key = "request_id", F.coalesce("attempt", F.lit(1)).alias("attempt"), "worker"
    grouped = at_workers.where(F.col("worker").isNotNull()).groupBy(*key).agg(*_instants())
    return _attempt_rows(grouped)


def worker_of() -> Column:
    """Return the worker of an event; in a worker's log, the owner of the log."""
    own_name = F.when(F.col("role") == WORKER, F.substring_index("log", "-", -1))
    return F.coalesce("worker", own_name)


def _instants() -> list[Column]:
    role, kind, ts = F.col("role"), F.col("kind"), F.col("ts")

    def first(*kinds: str) -> Column:
        return F.min(F.when(kind.isin(*kinds), ts))

    by_broker = (role == BROKER) & kind.isin(*OUTCOMES)
    return [
        F.coalesce(first(DELIVERED), first(DISPATCHED)).alias("delivered_at"),
        first(STARTED).alias("started_at"),
        F.coalesce(
            first(FINISHED, ABANDONED), first(REDELIVERED), F.min(F.when(by_broker, ts))
        ).alias("ended_at"),
        F.coalesce(
            F.max(F.when(kind == REDELIVERED, F.lit("REDELIVERED"))),
            F.max(F.when(by_broker, F.coalesce("outcome", F.upper("kind")))),
            F.max(F.when(kind == FINISHED, F.col("outcome"))),
            F.max(F.when(kind == ABANDONED, F.lit("ABANDONED"))),
        ).alias("result"),
        F.coalesce(F.max("service"), F.lit("")).alias("service"),
        F.min("ts").alias("first_at"),
    ]


def _attempt_rows(grouped: DataFrame) -> DataFrame:
    begun = F.coalesce("started_at", "delivered_at")
    return grouped.where(
        F.col("delivered_at").isNotNull() | F.col("started_at").isNotNull()
    ).select(
        "request_id",
        "attempt",
        "worker",
        "delivered_at",
        "started_at",
        "ended_at",
        "result",
        not_negative(elapsed_ms(begun, F.col("ended_at"))).alias("busy_ms"),
        "service",
        date_of(F.col("first_at")).alias("date"),
    )


def silver_heartbeats(events: DataFrame) -> DataFrame:
    """Return the heartbeats, arrivals and departures of workers: the table `silver_heartbeats`.

    `gap_s` is the silence before the event.
    """
    presence = events.where(F.col("kind").isin(*PRESENCE) & (F.col("role") == BROKER))
    service = F.coalesce("service", F.lit("")).alias("service")
    columns = "worker", service, "ts", "gap_s", "busy", "capacity"
    return presence.select(*columns, date_of(F.col("ts")).alias("date"), "kind")
