"""What cannot all be true: the table `audit_contradictions`, one row per request and kind.

A verdict is made of what one side tells, whoever answers for the request. Here the sides are held
against each other: clients, brokers and workers. Most rules count events. Each thing that a log
tells of has to be preceded by another one, so there cannot be more of the former; no clock matters,
and neither does the order in which rows were written.

    OUTCOMES_DIFFER     the client has an OK; all that it sent was ended by brokers, never with OK
    BROKER_ENDED_TWICE  a broker ended a request more often than it had accepted it
    TWO_OWNERS          a broker gave a request to a worker while another one had it (I6)
    FORMER_OWNER        a broker passed a reply on, and no worker had the request any more; or the
                        worker it names had not replied (I6)
    RAN_UNDISPATCHED    a worker ran what no broker had given it
    RAN_UNASKED         a worker ran what nobody had asked for
    RAN_AGAIN           a request that is not idempotent was given or run more than once (I11)
    BEGUN_LATE          sent, given, or begun by a handler, after the deadline in the same log (I15)
    SHARED_CALL_ID      two requests have one call id

Two kinds are told by what is *not* in the journal, and so need a witness: somebody who would have
written it down. For a start that no broker has dispatched that is a broker with which the worker
was, before and after (`requite.spark.witnesses`).

Some rules compare times: two of one log, or of two. They hold nothing against anybody by a clock
that was set meanwhile (`requite.spark.skew`).

Hardly any request contradicts itself, so each life first gets a quick look at its tally.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.audit import SHOWN_MAX, USUAL, Terms, shown
from requite.spark.clock import dated, later
from requite.spark.lifecycle import Predicate, is_acceptance, is_outcome
from requite.spark.vocabulary import (
    BROKER,
    CLIENT,
    DELIVERED,
    DISPATCHED,
    FINISHED,
    OK,
    REDELIVERED,
    SENT,
    STARTED,
    Contradiction,
)
from requite.spark.witnesses import ORDER_SLACK_S, is_asked, unasked, undispatched

_TIMER_SLACK_S: Final = 0.005
"""How late an engine's own timers fire (those of the simulator's checkers)."""


def contradictions(
    lives: DataFrame,
    events: DataFrame | None,
    terms: Terms = USUAL,
    *,
    unsettled: Collection[str] = frozenset(),
) -> DataFrame:
    """Hold the sides of each life against each other: the table `audit_contradictions`.

    `events` are those that the lives are made of: they tell which worker was with which broker;
    None where no life needs a witness (`requite.spark.witnesses.needs_witness`). The
    times of `unsettled` logs are not compared with any others.
    """
    is_torn = _is_of(unsettled)
    suspects = lives.where(is_suspect()).withColumns(
        {
            "is_asked": is_asked(),
            "date": dated(F.col("own"), F.col("events")),
            "evidence": shown(F.slice("events", 1, SHOWN_MAX)),
        }
    )
    columns = "request_id", "service", "kind", "evidence", "date"
    told = suspects.withColumn("kind", F.explode(_kinds(terms, is_torn))).select(*columns)
    if events is None:
        return told
    if unsettled:
        rests_on_it = F.exists("events", lambda e: e["kind"].isin(DISPATCHED, STARTED) & is_torn(e))
        suspects = suspects.where(~rests_on_it)
        events = events.where(~F.col("log").isin(*unsettled))
    by_brokers = undispatched(suspects, events).select(*columns)
    by_clients = unasked(suspects, events).select(*columns)
    unseen = by_brokers.union(by_clients).dropDuplicates(["request_id", "kind"])
    return told.union(unseen)


def is_suspect() -> Column:
    """Whether a life is worth a closer look: all but those in which everything happened once."""
    tally = F.col("tally")
    more_than_once = [tally[name] > 1 for name in ("made", "taken", "ended", "given", "begun")]
    return (
        reduce(Column.__or__, more_than_once)
        | (tally["begun"] > tally["given"])
        | (tally["kept"] > tally["replied"])
        | (tally["taken_back"] > 0)
        | (tally["last_begun_at"] > tally["first_deadline"])
        | tally["is_shared"]
        | ((tally["begun"] > 0) & (tally["replied"] > 0) & _ended_otherwise())
    )


def _ended_otherwise() -> Column:
    """Whether a worker did not end well before the first reply that a broker passed on."""

    def otherwise(end: Column) -> Column:
        replied_at = F.array_min(F.filter("events", _is_reply)["ts"])
        return (end["outcome"] != OK) | (end["ts"] > later(replied_at, ORDER_SLACK_S))

    return F.exists("events", lambda event: (event["kind"] == FINISHED) & otherwise(event))


def _is_of(logs: Collection[str]) -> Predicate:
    return lambda event: event["log"].isin(*logs) if logs else F.lit(False)


def _kinds(terms: Terms, is_torn: Predicate) -> Column:
    conditions = {
        Contradiction.OUTCOMES_DIFFER: _outcomes_differ(),
        Contradiction.BROKER_ENDED_TWICE: _ended_twice(),
        Contradiction.TWO_OWNERS: _has_two_owners(),
        Contradiction.FORMER_OWNER: _by_former_owner(is_torn),
        Contradiction.RAN_AGAIN: F.col("tally")["is_once"] & _went_again(),
        Contradiction.BEGUN_LATE: _begun_late(terms, is_torn),
        Contradiction.SHARED_CALL_ID: _is_shared(),
    }
    named = (F.when(is_so, kind.value) for kind, is_so in conditions.items())
    return F.array_compact(F.array(*named))


def _outcomes_differ() -> Column:
    """Each try of the client has come to a broker, and each has ended there."""
    tally = F.col("tally")
    all_arrived = (tally["taken"] > 0) & (tally["sent"] <= tally["taken"])
    all_ended = tally["ended"] >= tally["taken"]
    return (tally["kept"] > 0) & (tally["replied"] == 0) & all_arrived & all_ended


def _per_broker(holds: Predicate) -> Column:
    """Whether something holds of the events in the log of any broker."""
    events = F.filter("events", lambda event: event["role"] == BROKER)
    logs = F.array_distinct(events["log"])
    return F.exists(logs, lambda log: holds(F.filter(events, lambda e: e["log"] == log)))


def _ended_twice() -> Column:
    return _per_broker(lambda told: _count(told, is_outcome) > _count(told, is_acceptance))


def _went_again() -> Column:
    tally = F.col("tally")
    return (tally["begun"] > 1) | (tally["given"] > 1) | (tally["taken_back"] > 0)


def _has_two_owners() -> Column:
    """Each dispatch follows an acceptance, or was taken back from the worker before."""

    def dispatches_exceed(told: Column) -> Column:
        given, taken_back = F.filter(told, _of(DISPATCHED)), _count(told, _of(REDELIVERED))
        is_numbered_beyond = F.array_max(given["attempt"]) > taken_back + 1
        is_beyond = F.size(given) > _count(told, is_acceptance) + taken_back
        return is_beyond | F.coalesce(is_numbered_beyond, F.lit(False))

    return _per_broker(dispatches_exceed)


def _by_former_owner(is_torn: Predicate) -> Column:
    """A reply is passed on for a dispatch that was not taken back: there is one for each."""

    def replies_exceed(told: Column) -> Column:
        given = _count(told, _of(DISPATCHED)) - _count(told, _of(REDELIVERED))
        return _count(told, _is_reply) > given

    return _per_broker(replies_exceed) | F.exists(
        "events", lambda reply: _names_another(reply, is_torn)
    )


def _names_another(reply: Column, is_torn: Predicate) -> Column:
    """Whether a broker's reply names a worker that ended this attempt, but not so or not yet.

    A worker may be given a request twice under one number, and take the newest end with it.
    """

    def is_its(event: Column) -> Column:
        return (event["worker"] == reply["worker"]) & (event["attempt"] == reply["attempt"])

    def fits(event: Column) -> Column:
        in_time = event["ts"] <= later(reply["ts"], ORDER_SLACK_S)
        return (event["outcome"] == OK) & (in_time | is_torn(event) | is_torn(reply))

    told = F.filter("events", is_its)
    ends = F.filter(told, _of(FINISHED))
    all_told = F.size(ends) >= F.greatest(_count(told, _of(DISPATCHED)), F.lit(1))
    return _is_reply(reply) & all_told & ~F.exists(ends, fits)


def _is_reply(event: Column) -> Column:
    ok = F.coalesce(event["outcome"] == OK, F.lit(False))
    return (event["role"] == BROKER) & is_outcome(event) & ok


def _begun_late(terms: Terms, is_torn: Predicate) -> Column:
    """Compare what is begun with the deadlines in the same log.

    A worker cannot know what is on its way, and what waits for it when it wakes: it has the grace.
    """
    steps = {
        SENT: (is_acceptance, _TIMER_SLACK_S),
        DISPATCHED: (is_acceptance, _TIMER_SLACK_S),
        STARTED: (_of(DELIVERED), terms.grace_s),
    }

    def late(kind: str, gives_time: Predicate, slack_s: float) -> Column:
        def is_late(event: Column) -> Column:
            same = F.filter("events", lambda e: (e["log"] == event["log"]) & gives_time(e))
            ends = same["deadline"]
            known = (F.size(ends) > 0) & ~F.exists(ends, F.isnull)
            return known & (event["ts"] > later(F.array_max(ends), slack_s))

        return F.exists(
            "events", lambda event: (event["kind"] == kind) & ~is_torn(event) & is_late(event)
        )

    return reduce(Column.__or__, (late(kind, *rest) for kind, rest in steps.items()))


def _is_shared() -> Column:
    """A client counts its calls; what it sends again keeps its size and its service."""
    accepted = F.filter("events", is_acceptance)
    sizes = F.array_distinct(F.array_compact(accepted["bytes"]))
    by_client = _count(accepted, lambda event: event["role"] == CLIENT)
    return (by_client > 1) | (F.size(sizes) > 1) | F.col("tally")["is_shared"]


def _of(kind: str) -> Predicate:
    return lambda event: event["kind"] == kind


def _count(events: Column, condition: Predicate) -> Column:
    return F.size(F.filter(events, condition))
