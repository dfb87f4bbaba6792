"""The life of each request: all its events in one row, with counts and faults.

All tables on single requests are computed from these rows, so events are shuffled once. Columns:

    request_id, service
    events      every event but partials, by time: array of structs
    own         acceptances and outcomes in the logs of the request's authority: the client if it
                journalled its acceptance of the call, otherwise the brokers
    last        the authority's last acceptance; null: the request was never accepted
    tally       counts of events by kind and role, for a cheap check of every life
    course      summary of `own`: `fault`, a number of the table below; `outcomes`, how often the
                request ended; `late_us`, how long after its deadline (null: it had none)
    is_half     whether it may be half of a request that also has another id (`aliases.one_sided`)

    fault           a client                                    brokers
    ENDED      0    an outcome follows the last acceptance      each acceptance has its outcome
    OPEN       1    no outcome follows it                       the last one may have none
    TWICE      2    an outcome follows an outcome               more outcomes than acceptances
    ACCEPTED   3    an acceptance follows an acceptance

A log has two orders: by clock, and as written. A clock may be set back, and a process that writes
two kinds of rows may write later ones first. The fault is the milder of both orders.

Brokers are judged by counting, log by log. A broker may accept a request that it still has: a
client that lost its connection sends again, possibly before the broker detects that the old
connection is closed. Each acceptance has its outcome, but their assignment is unknown. So a request
is late only if the last outcome in the log of its last acceptance came after all deadlines in this
log: then one of them was missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.chronicle import NOT_IDEMPOTENT
from requite.spark.clock import micros
from requite.story.rules import FAULT_ACCEPTED, FAULT_ENDED, FAULT_OPEN, FAULT_TWICE
from requite.story.vocabulary import (
    ACCEPTED,
    BROKER,
    CLIENT,
    DISPATCHED,
    OK,
    OUTCOMES,
    PARTIAL,
    REDELIVERED,
    SENT,
    STARTED,
)

FIELDS: Final = (
    "ts", "log", "seq", "kind", "role", "attempt", "outcome", "worker", "error_class", "reason",
    "deadline", "bytes",
)  # fmt: skip

Predicate = Callable[[Column], Column]


def lives(events: DataFrame) -> DataFrame:
    """Group `bronze_events` into one row per request."""
    named = events.where(F.col("request_id").isNotNull() & (F.col("kind") != PARTIAL))
    accepted_for = F.when(F.col("kind") == ACCEPTED, F.col("service"))
    gathered = named.groupBy("request_id").agg(
        F.coalesce(F.max("service"), F.lit("")).alias("service"),
        F.sort_array(F.collect_list(F.struct(*FIELDS))).alias("events"),
        F.min(accepted_for).alias("first_service"),
        F.max(accepted_for).alias("last_service"),
    )
    tally = _tally(F.col("events")).alias("tally")
    tallied = gathered.select("request_id", "service", "events", tally)
    owned = tallied.withColumn("own", _own(F.col("events")))
    dated = owned.withColumn("last", last_of(F.col("own"), is_acceptance))
    # A separate column: inlined at each use, the walks exceed Java's limit on code size.
    walked = dated.withColumn("walks", _walks(F.col("own"), F.col("last")))
    return walked.select(
        *("request_id", "service", "events", "tally", "own", "last"),
        _course(F.col("own"), F.col("last"), F.col("walks")).alias("course"),
        F.lit(False).alias("is_half"),
    )


def _tally(events: Column) -> Column:
    """Return the counts of a life.

    `is_once`: the request is not idempotent, and must not run twice; `is_shared`: it was accepted
    for two services. Counted in the array of events: as aggregates, the same counts would double
    the cost of grouping.
    """

    def by(role: str, condition: Predicate) -> Predicate:
        return lambda event: condition(event) & (event["role"] == role)

    def of(kind: str) -> Predicate:
        return lambda event: event["kind"] == kind

    def ended_well(event: Column) -> Column:
        return is_outcome(event) & F.coalesce(event["outcome"] == OK, F.lit(False))

    counts: dict[str, Predicate] = {
        "made": by(CLIENT, is_acceptance),
        "sent": of(SENT),
        "kept": by(CLIENT, ended_well),
        "taken": by(BROKER, is_acceptance),
        "ended": by(BROKER, is_outcome),
        "replied": by(BROKER, ended_well),
        "given": of(DISPATCHED),
        "taken_back": by(BROKER, of(REDELIVERED)),
        "begun": of(STARTED),
    }
    begun = F.filter(events, lambda event: event["kind"].isin(SENT, DISPATCHED, STARTED))
    return F.struct(
        *(F.size(F.filter(events, each)).alias(name) for name, each in counts.items()),
        F.exists(events, lambda e: is_acceptance(e) & (e["reason"] == NOT_IDEMPOTENT)).alias(
            "is_once"
        ),
        F.array_max(begun["ts"]).alias("last_begun_at"),
        F.array_min(events["deadline"]).alias("first_deadline"),
        (F.col("first_service") != F.col("last_service")).alias("is_shared"),
    )


def is_acceptance(event: Column) -> Column:
    """Return whether an event is an acceptance, by a client or a broker."""
    return event["kind"] == ACCEPTED


def is_outcome(event: Column) -> Column:
    """Return whether an event ends a request."""
    return event["kind"].isin(*OUTCOMES)


def first_of(events: Column, condition: Predicate) -> Column:
    """Return the first event of an array for which the condition holds, or null."""
    return F.get(F.filter(events, condition), 0)


def last_of(events: Column, condition: Predicate) -> Column:
    """Return the last event of an array for which the condition holds, or null."""
    return F.try_element_at(F.filter(events, condition), F.lit(-1))


def _own(events: Column) -> Column:
    """Return the acceptances and outcomes in the logs of the request's authority."""
    by_client = F.exists(events, lambda event: is_acceptance(event) & (event["role"] == CLIENT))
    authority = F.when(by_client, CLIENT).otherwise(BROKER)
    counts = ACCEPTED, *OUTCOMES
    return F.filter(
        events, lambda event: event["kind"].isin(*counts) & (event["role"] == authority)
    )


def _is_plain(own: Column) -> Column:
    """Return whether one log accepted and then ended it once, as for nearly all requests."""
    first, second = F.get(own, 0), F.get(own, 1)
    return (
        (F.size(own) == 2)
        & is_acceptance(first)
        & is_outcome(second)
        & (first["log"] == second["log"])
    )


def _walks(own: Column, last: Column) -> Column:
    """Return the walks of the authority's events in both orders; null for plain requests."""
    walks = F.struct(
        _walk(own, last, "ts", "seq").alias("by_clock"),
        _walk(own, last, "seq").alias("as_written"),
    )
    return F.when(last.isNotNull() & ~_is_plain(own), walks)


def _course(own: Column, last: Column, walks: Column) -> Column:
    """Return fault, outcomes and lateness by the authority's events; null: never accepted."""
    by_clock, as_written = walks["by_clock"], walks["as_written"]
    clock_fault, written_fault = _fault_in_order(by_clock), _fault_in_order(as_written)
    is_broker = last["role"] == BROKER
    fault = (
        F.when(walks.isNull(), FAULT_ENDED)
        .when(is_broker, _fault_by_count(own, last))
        .otherwise(F.least(clock_fault, written_fault))
    )
    outcomes = (
        F.when(walks.isNull(), 1)
        .when(~is_broker & (written_fault < clock_fault), as_written["outcomes"])
        .otherwise(by_clock["outcomes"])
    )
    first, second = F.get(own, 0), F.get(own, 1)
    late_us = F.when(walks.isNull(), micros(second["ts"]) - micros(first["deadline"]))
    course = _struct(fault, outcomes, late_us.otherwise(_late_us(own, last)))
    return F.when(last.isNotNull(), course)


def _struct(fault: Column, outcomes: Column, late_us: Column) -> Column:
    columns = {"fault": fault.cast("int"), "outcomes": outcomes.cast("int"), "late_us": late_us}
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def _walk(own: Column, last: Column, *order: str) -> Column:
    """Walk each log in an order, and record the sequences of acceptances and outcomes.

    `outcomes` leaves out an outcome of an earlier acceptance: a request that one broker refused and
    the next one answered has one outcome.
    """
    keyed = F.transform(
        own,
        lambda event: F.struct(
            event["log"],
            *(event[name].alias(f"by_{name}") for name in order),
            is_acceptance(event).alias("accepts"),
            ((event["log"] == last["log"]) & (event["seq"] == last["seq"])).alias("is_last"),
        ),
    )
    no, nothing = F.lit(False), F.lit("")
    start = _seen(nothing, no, no, twice=no, again=no, stray=no, ended=no, outcomes=F.lit(0))

    def step(seen: Column, event: Column) -> Column:
        follows = seen["log"] == event["log"]
        after_acceptance, after_outcome = follows & seen["accepts"], follows & ~seen["accepts"]
        accepts, ends = event["accepts"], ~event["accepts"]
        ends_earlier = ends & after_acceptance & ~seen["is_last"]
        return _seen(
            event["log"],
            accepts,
            event["is_last"],
            twice=seen["twice"] | (ends & after_outcome),
            again=seen["again"] | (accepts & after_acceptance),
            stray=seen["stray"] | (ends & ~follows),
            ended=seen["ended"] | (ends & after_acceptance & seen["is_last"]),
            outcomes=seen["outcomes"] + F.when(ends & ~ends_earlier, 1).otherwise(0),
        )

    return F.aggregate(F.sort_array(keyed), start, step)


def _seen(log: Column, accepts: Column, is_last: Column, **notes: Column) -> Column:
    """Return the state of a walk: its current event, and its findings so far."""
    at = {"log": log, "accepts": accepts, "is_last": is_last}
    return F.struct(*(column.alias(name) for name, column in (at | notes).items()))


def _fault_in_order(walk: Column) -> Column:
    return (
        F.when(walk["again"], FAULT_ACCEPTED)
        .when(walk["twice"] | (walk["stray"] & walk["ended"]), FAULT_TWICE)
        .when(walk["ended"], FAULT_ENDED)
        .otherwise(FAULT_OPEN)
    )


def _fault_by_count(own: Column, last: Column) -> Column:
    """Return the fault by the counts of acceptances and outcomes in each broker's log."""

    def surplus(log: Column) -> Column:
        def among(condition: Predicate) -> Column:
            return F.size(F.filter(own, lambda event: (event["log"] == log) & condition(event)))

        return among(is_outcome) - among(is_acceptance)

    most = F.array_max(F.transform(F.array_distinct(own["log"]), surplus))
    return (
        F.when(surplus(last["log"]) < 0, FAULT_OPEN)
        .when(most > 0, FAULT_TWICE)
        .otherwise(FAULT_ENDED)
    )


def _late_us(own: Column, last: Column) -> Column:
    """Return by how much the last outcome missed all deadlines, in the last acceptance's log."""
    in_log = F.filter(own, lambda event: event["log"] == last["log"])
    given, ends = F.filter(in_log, is_acceptance)["deadline"], F.filter(in_log, is_outcome)["ts"]
    late_us = micros(F.array_max(ends)) - micros(F.array_max(given))
    return F.when(~F.exists(given, F.isnull), late_us)
