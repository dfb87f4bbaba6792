"""Requests with two ids: those of MDP 0.1 and 0.2, whose wire format carries no call id.

The client journals a call under its own id. The broker does not receive that id, so it makes up an
id for each attempt (`requite.chronicle.MADE_UP`). Both ids name one request.

A made-up id that a broker accepted belongs to a call that had been sent and had not ended by then:
a call to the same service, with a body of the same size, that no broker journals under the call's
own id. If exactly one such call was in flight, the broker's id is an *alias* of that call. If there
were several, the match is unknown: the broker's half of the request is one-sided, and must not be
counted in addition to the client's. If there was none, the client keeps no journal, and only the
broker's half is known.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import later
from requite.spark.lifecycle import first_of, is_acceptance, last_of
from requite.story.vocabulary import BROKER, CLIENT, OK, OUTCOMES, SENT

MADE_UP: Final = "8"
"""The smallest made-up id: brokers set the first bit of ids that they make up."""

_NEAR_S: Final = 0.0005
_FAR_S: Final = 0.05
"""Clock difference between processes of one machine: typical, and maximum."""

_ON_ITS_WAY_S: Final = 5.0
"""How long a request may still be in transit after its caller gave up."""

_NEVER_S: Final = 1e9

_KEY: Final = ("service", "bytes")


def is_made_up(request_id: Column) -> Column:
    """Return whether a broker made up the id of a request (its first bit is set)."""
    return request_id >= MADE_UP


def aliases(lives: DataFrame) -> DataFrame:
    """Match made-up ids to calls: columns `alias` and `call_id`.

    `call_id` is null where several calls match. Ids that match no known call are left out.
    """
    made_up = is_made_up(F.col("request_id"))
    calls = _calls(lives.where(~made_up))
    counted = _counted(calls, _asked(lives.where(made_up)))
    single = F.when(F.col("near") == 1, F.col("code")).alias("code")
    known = counted.where((F.col("near") > 0) | (F.col("far") > 0)).select("alias", single)
    return known.join(calls.select("code", "call_id"), "code", "left").drop("code")


def renamed(events: DataFrame, found: DataFrame) -> DataFrame:
    """Return events with made-up ids replaced by call ids, where the call is known."""
    certain = found.where(F.col("call_id").isNotNull())
    joined = events.join(certain, F.col("request_id") == F.col("alias"), "left")
    true_id = F.coalesce("call_id", "request_id")
    return joined.withColumn("request_id", true_id).select(*events.columns)


def one_sided(lives: DataFrame, found: DataFrame) -> DataFrame:
    """Mark in `is_half` the lives of brokers' halves whose call is ambiguous."""
    halves = found.where(F.col("call_id").isNull()).select(F.col("alias").alias("request_id"))
    marked = lives.drop("is_half").join(
        halves.withColumn("is_half", F.lit(True)), "request_id", "left"
    )
    return marked.withColumn("is_half", F.coalesce("is_half", F.lit(False)))


def _calls(lives: DataFrame) -> DataFrame:
    """Return the calls that no broker journals under their own id, with the time they were open."""
    unheard_of = (F.col("tally")["made"] > 0) & (F.col("tally")["taken"] == 0)
    begin = first_of(F.col("events"), lambda event: event["kind"] == SENT)["ts"]
    ended = last_of(F.col("own"), lambda event: event["kind"].isin(*OUTCOMES))
    is_ok = F.coalesce(ended["outcome"] == OK, F.lit(False))
    end = F.when(is_ok, ended["ts"]).otherwise(later(ended["ts"], _ON_ITS_WAY_S))
    calls = lives.where(unheard_of).select(
        "service",
        _size_by(CLIENT).alias("bytes"),
        F.col("request_id").alias("call_id"),
        F.xxhash64("request_id").alias("code"),
        begin.alias("begin"),
        F.coalesce(end, later(begin, _NEVER_S)).alias("end"),
    )
    return calls.where(F.col("begin").isNotNull())


def _asked(lives: DataFrame) -> DataFrame:
    """Return three instants per made-up id: its acceptance, and the clock tolerance around it."""
    accepted = first_of(F.col("events"), is_acceptance)["ts"]
    moments = F.array(
        *(
            F.struct(F.lit(name).alias("moment"), later(accepted, seconds).alias("at"))
            for name, seconds in (("before", -_FAR_S), ("then", _NEAR_S), ("after", _FAR_S))
        )
    )
    asked = lives.where(accepted.isNotNull()).select(
        "service",
        _size_by(BROKER).alias("bytes"),
        F.col("request_id").alias("alias"),
        F.explode(moments).alias("question"),
    )
    return asked.select(*_KEY, "alias", "question.*")


def _counted(calls: DataFrame, asked: DataFrame) -> DataFrame:
    """Count the calls that were open when a broker accepted a request.

    `near` allows for the typical clock difference, `far` for the maximum. `code` is the hash of
    the call id if exactly one call was open.
    """
    begins = calls.select(*_KEY, F.col("begin").alias("at"), "code", F.lit(1).alias("begun"))
    ends = calls.select(*_KEY, F.col("end").alias("at"), "code", F.lit(1).alias("ended"))
    line = begins.unionByName(ends, allowMissingColumns=True).unionByName(
        asked, allowMissingColumns=True
    )
    so_far = Window.partitionBy(*_KEY).orderBy("at").rangeBetween(Window.unboundedPreceding, 0)
    # Begin and end of a call XOR to zero: with one call open, what remains is its hash.
    known = line.select(
        "alias",
        "moment",
        F.coalesce(F.sum("begun").over(so_far), F.lit(0)).alias("begun"),
        F.coalesce(F.sum("ended").over(so_far), F.lit(0)).alias("ended"),
        F.bit_xor("code").over(so_far).alias("code"),
    ).where(F.col("alias").isNotNull())

    def at(moment: str, name: str) -> Column:
        return F.max(F.when(F.col("moment") == moment, F.col(name)))

    return known.groupBy("alias").agg(
        (at("then", "begun") - at("then", "ended")).alias("near"),
        (at("after", "begun") - at("before", "ended")).alias("far"),
        at("then", "code").alias("code"),
    )


def _size_by(role: str) -> Column:
    accepted = first_of(F.col("events"), lambda e: is_acceptance(e) & (e["role"] == role))
    return accepted["bytes"]
