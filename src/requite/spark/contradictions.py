"""Contradictions between logs: the table `audit_contradictions`, one row per request and kind.

A verdict rests on one log, that of the party that accepted the request. Contradictions compare the
logs of clients, brokers and workers. Most rules count events: each event requires an earlier event
of another kind, so there cannot be more of the former. Clocks and the order of rows do not matter.

    OUTCOMES_DIFFER     the client has an OK; brokers ended all its requests, never with OK
    BROKER_ENDED_TWICE  a broker ended a request more often than it had accepted it
    TWO_OWNERS          a broker dispatched a request to a worker while another one had it (I6)
    FORMER_OWNER        a broker forwarded a reply when no worker had the request any more; or the
                        worker it names had not replied (I6)
    RAN_UNDISPATCHED    a worker ran a request that no broker had dispatched to it
    RAN_UNASKED         a worker ran a request that no client had sent
    RAN_AGAIN           a request that is not idempotent was dispatched or run twice (I11)
    BEGUN_LATE          sent, dispatched or started after the deadline in the same log (I15)
    SHARED_CALL_ID      two requests have one call id

Two kinds rest on events that are *missing* from the journal, and need a witness: a log that would
contain the event. For a start that no broker dispatched, the witness is a broker with which the
worker was registered before and after (`requite.spark.missing_events`).

Some rules compare times, of one log or of two. They ignore clocks that were set meanwhile
(`requite.spark.skew`).

Hardly any request contradicts itself, so the tally of each life is checked first.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.audit import SHOWN_MAX, shown
from requite.spark.clock import dated, later
from requite.spark.lifecycle import Predicate, is_acceptance, is_outcome
from requite.spark.missing_events import is_asked, unasked, undispatched
from requite.story.rules import ORDER_SLACK_S, TIMER_SLACK_S, USUAL, Terms
from requite.story.vocabulary import (
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


def contradictions(
    lives: DataFrame,
    events: DataFrame | None,
    terms: Terms = USUAL,
    *,
    unsettled: Collection[str] = frozenset(),
) -> DataFrame:
    """Compare the logs of each life: the table `audit_contradictions`.

    `events` are the events of the lives, which show which worker was registered with which broker;
    None if no contradiction can rest on missing events (`rests_on_missing_events`). The times of
    `unsettled` logs are not compared with others.
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
    found = suspects.withColumn("kind", F.explode(_kinds(terms, is_torn))).select(*columns)
    if events is None:
        return found
    if unsettled:
        rests_on_it = F.exists("events", lambda e: e["kind"].isin(DISPATCHED, STARTED) & is_torn(e))
        suspects = suspects.where(~rests_on_it)
        events = events.where(~F.col("log").isin(*unsettled))
    by_brokers = undispatched(suspects, events).select(*columns)
    by_clients = unasked(suspects, events).select(*columns)
    unseen = by_brokers.union(by_clients).dropDuplicates(["request_id", "kind"])
    return found.union(unseen)


def is_suspect() -> Column:
    """Return whether a life needs the full check: one in which not every step happened once."""
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
    """Return whether a worker had not finished with OK before a broker's first reply."""

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
    """The client has an OK, but brokers received and ended all its attempts without one."""
    tally = F.col("tally")
    all_arrived = (tally["taken"] > 0) & (tally["sent"] <= tally["taken"])
    all_ended = tally["ended"] >= tally["taken"]
    return (tally["kept"] > 0) & (tally["replied"] == 0) & all_arrived & all_ended


def _per_broker(holds: Predicate) -> Column:
    """Return whether a predicate holds for the events of any one broker's log."""
    events = F.filter("events", lambda event: event["role"] == BROKER)
    logs = F.array_distinct(events["log"])
    return F.exists(logs, lambda log: holds(F.filter(events, lambda e: e["log"] == log)))


def _ended_twice() -> Column:
    return _per_broker(lambda events: _count(events, is_outcome) > _count(events, is_acceptance))


def _went_again() -> Column:
    tally = F.col("tally")
    return (tally["begun"] > 1) | (tally["given"] > 1) | (tally["taken_back"] > 0)


def _has_two_owners() -> Column:
    """Each dispatch must follow an acceptance or a redelivery."""

    def dispatches_exceed(events: Column) -> Column:
        given, taken_back = F.filter(events, _of(DISPATCHED)), _count(events, _of(REDELIVERED))
        is_numbered_beyond = F.array_max(given["attempt"]) > taken_back + 1
        is_beyond = F.size(given) > _count(events, is_acceptance) + taken_back
        return is_beyond | F.coalesce(is_numbered_beyond, F.lit(False))

    return _per_broker(dispatches_exceed)


def _by_former_owner(is_torn: Predicate) -> Column:
    """Each forwarded reply must have a dispatch that was not redelivered."""

    def replies_exceed(events: Column) -> Column:
        given = _count(events, _of(DISPATCHED)) - _count(events, _of(REDELIVERED))
        return _count(events, _is_reply) > given

    return _per_broker(replies_exceed) | F.exists(
        "events", lambda reply: _names_another(reply, is_torn)
    )


def _names_another(reply: Column, is_torn: Predicate) -> Column:
    """Return whether a broker's reply names a worker that ended this attempt otherwise or later.

    A worker may receive a request twice under one attempt number, and lose the newest end.
    """

    def is_its(event: Column) -> Column:
        return (event["worker"] == reply["worker"]) & (event["attempt"] == reply["attempt"])

    def fits(event: Column) -> Column:
        in_time = event["ts"] <= later(reply["ts"], ORDER_SLACK_S)
        return (event["outcome"] == OK) & (in_time | is_torn(event) | is_torn(reply))

    attempt = F.filter("events", is_its)
    ends = F.filter(attempt, _of(FINISHED))
    all_ended = F.size(ends) >= F.greatest(_count(attempt, _of(DISPATCHED)), F.lit(1))
    return _is_reply(reply) & all_ended & ~F.exists(ends, fits)


def _is_reply(event: Column) -> Column:
    ok = F.coalesce(event["outcome"] == OK, F.lit(False))
    return (event["role"] == BROKER) & is_outcome(event) & ok


def _begun_late(terms: Terms, is_torn: Predicate) -> Column:
    """Compare sends, dispatches and starts with the deadlines in the same log.

    A worker cannot know what is in transit or queued when it resumes, so it has the grace period.
    """
    steps = {
        SENT: (is_acceptance, TIMER_SLACK_S),
        DISPATCHED: (is_acceptance, TIMER_SLACK_S),
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
    """One call id was accepted twice by a client, or has several sizes or services."""
    accepted = F.filter("events", is_acceptance)
    sizes = F.array_distinct(F.array_compact(accepted["bytes"]))
    by_client = _count(accepted, lambda event: event["role"] == CLIENT)
    return (by_client > 1) | (F.size(sizes) > 1) | F.col("tally")["is_shared"]


def _of(kind: str) -> Predicate:
    return lambda event: event["kind"] == kind


def _count(events: Column, condition: Predicate) -> Column:
    return F.size(F.filter(events, condition))
