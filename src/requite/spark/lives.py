"""The life of each request: all its events in one row, and what they come to.

Everything that the pipeline says about single requests is made from these rows, so the events are
shuffled once. Columns:

    request_id, service
    events      every event but partials, by time: array of structs
    own         those of whoever answers for the request, its authority: acceptances and outcomes.
                That is the client if it has written down that it accepted the call, and otherwise
                the brokers.
    last        the authority's last acceptance; null: nobody accepted it
    word        the order of `own`, as a word of letters, see below

A *word* spells what the authority wrote, log by log: `|` begins a log, `A` is an acceptance, `L`
the last of all acceptances, `O` an outcome. `|LO` is a life without incidents; `|A|LO` was accepted
by a broker that died, then by another one that answered; `|LOO` was answered twice.

A log has two orders: that of its clock, and that in which it was written. A clock may be set back,
and a process that writes two kinds of rows may write later ones first. A request is accused only if
neither order excuses it, so `word` is the milder one of the two.

What a broker wrote is judged by counting. It may accept a request while it still holds it: a client
that lost its connection sends again, and the broker may not know yet that the old one is gone. Each
acceptance has its outcome, but nothing tells which is whose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.vocabulary import ACCEPTED, BROKER, CLIENT, OUTCOMES, PARTIAL

FIELDS: Final = (
    "ts", "log", "seq", "kind", "role", "attempt", "outcome", "worker", "error_class", "reason",
    "deadline",
)  # fmt: skip

Predicate = Callable[[Column], Column]

PLAIN: Final = "|LO"

ACCEPTED_TWICE: Final = "[AL][AL]"
ANSWERED: Final = "LO"
ANSWERED_TWICE: Final = r"OO|\|O.*LO|LO.*\|O"


def lives(events: DataFrame) -> DataFrame:
    """Gather `bronze_events` into one row per request."""
    told = events.where(F.col("request_id").isNotNull() & (F.col("kind") != PARTIAL))
    gathered = told.groupBy("request_id").agg(
        F.coalesce(F.max("service"), F.lit("")).alias("service"),
        F.sort_array(F.collect_list(F.struct(*FIELDS))).alias("events"),
    )
    owned = gathered.withColumn("own", _own(F.col("events")))
    dated = owned.withColumn("last", last_of(F.col("own"), is_acceptance))
    return dated.withColumn("word", _word(F.col("own"), F.col("last")))


def is_acceptance(event: Column) -> Column:
    """Whether an event is an acceptance, by a client or a broker."""
    return event["kind"] == ACCEPTED


def is_outcome(event: Column) -> Column:
    """Whether an event ends a request."""
    return event["kind"].isin(*OUTCOMES)


def first_of(events: Column, condition: Predicate) -> Column:
    """Return the first event of an array for which the condition holds, or null."""
    return F.get(F.filter(events, condition), 0)


def last_of(events: Column, condition: Predicate) -> Column:
    """Return the last event of an array for which the condition holds, or null."""
    return F.try_element_at(F.filter(events, condition), F.lit(-1))


def _own(events: Column) -> Column:
    """Return the acceptances and outcomes of whoever answers for the request."""
    by_client = F.exists(events, lambda event: is_acceptance(event) & (event["role"] == CLIENT))
    authority = F.when(by_client, CLIENT).otherwise(BROKER)
    counts = ACCEPTED, *OUTCOMES
    return F.filter(
        events, lambda event: event["kind"].isin(*counts) & (event["role"] == authority)
    )


def _word(own: Column, last: Column) -> Column:
    """Return the milder word; nearly all lives are plain, and cost no sorting."""
    plain = (
        (F.size(own) == 2)
        & is_acceptance(F.get(own, 0))
        & is_outcome(F.get(own, 1))
        & (F.get(own, 0)["log"] == F.get(own, 1)["log"])
    )
    by_clock = _spell(own, last, "ts", "seq")
    as_written = _spell(own, last, "seq")
    by_broker = last["role"] == BROKER
    is_milder = severity(as_written, by_broker) < severity(by_clock, by_broker)
    milder = F.when(is_milder, as_written).otherwise(by_clock)
    return F.when(plain, PLAIN).otherwise(milder)


def _spell(own: Column, last: Column, *order: str) -> Column:
    """Spell events log by log, in an order; a null in it comes first, so it begins a log."""

    def letter(event: Column) -> Column:
        is_last = (event["log"] == last["log"]) & (event["seq"] == last["seq"])
        spelt = F.when(is_outcome(event), "O").when(is_last, "L").otherwise("A")
        return F.struct(event["log"], *(event[name] for name in order), spelt.alias("letter"))

    def beginning(log: Column) -> Column:
        types = {"ts": "timestamp", "seq": "bigint"}
        nothing = (F.lit(None).cast(types[name]).alias(name) for name in order)
        return F.struct(log.alias("log"), *nothing, F.lit("|").alias("letter"))

    begins = F.transform(F.array_distinct(own["log"]), beginning)
    ordered = F.sort_array(F.concat(F.transform(own, letter), begins))
    return F.array_join(ordered["letter"], "")


def severity(word: Column, by_broker: Column) -> Column:
    """Return how bad a word is: 0 ended once, 1 open, 2 ended twice, 3 accepted twice."""
    return F.when(by_broker, _by_counting(word)).otherwise(_by_order(word))


def _by_counting(word: Column) -> Column:
    logs = F.split(word, r"\|")

    def count(log: Column, letters: str) -> Column:
        return F.length(F.regexp_replace(log, f"[^{letters}]", ""))

    ended = F.exists(logs, lambda log: log.contains("L") & (count(log, "O") >= count(log, "AL")))
    surplus = F.exists(logs, lambda log: count(log, "O") > count(log, "AL"))
    return F.when(~ended, 1).when(surplus, 2).otherwise(0)


def _by_order(word: Column) -> Column:
    return (
        F.when(word.rlike(ACCEPTED_TWICE), 3)
        .when(word.rlike(ANSWERED_TWICE), 2)
        .when(word.contains(ANSWERED), 0)
        .otherwise(1)
    )


def outcomes(word: Column) -> Column:
    """Count the outcomes in a word, without those of earlier acceptances that ended well.

    A request that was refused by one broker and answered by the next one has one outcome.
    """
    return F.when(word == PLAIN, 1).otherwise(
        F.length(F.regexp_replace(word, "[^O]", "")) - F.regexp_count(word, F.lit("AO"))
    )
