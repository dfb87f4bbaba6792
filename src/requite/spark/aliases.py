"""Requests that have two names: those of MDP 0.1 and 0.2, whose wire carries no call id.

The client writes down a call under its own id. The broker, which is not told that, makes up an id
for each try of it (`requite.chronicle.MADE_UP`). Both are one request.

What a broker accepted under such an id belongs to a call that had been sent by then, and had not
ended: a call to the same service, with a body of the same size, of which no broker tells by its own
id. If exactly one such call was under way, it is that one, and the broker's id is an *alias* of the
call's. If there were several, nothing tells which: the broker's half of the request is seen from
one side, and must not be counted besides the client's. If there was none, a client without a
journal has asked, and the broker's half is all that is known.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import later
from requite.spark.lifecycle import first_of, is_acceptance, last_of
from requite.spark.vocabulary import BROKER, CLIENT, OK, OUTCOMES, SENT

MADE_UP: Final = "8"
"""The least of the ids that brokers have made up: their first bit is set."""

_NEAR_S: Final = 0.0005
_FAR_S: Final = 0.05
"""What clocks of one machine disagree about: usually, and at most."""

_ON_ITS_WAY_S: Final = 5.0
"""How long a request may be on its way whose caller has given up already."""

_NEVER_S: Final = 1e9

_KEY: Final = ("service", "bytes")


def is_made_up(request_id: Column) -> Column:
    """Whether a broker made up the id of a request: its first bit says so."""
    return request_id >= MADE_UP


def aliases(lives: DataFrame) -> DataFrame:
    """Find whose requests brokers have made up ids for: columns `alias` and `call_id`.

    `call_id` is null where several calls come into question. Ids that belong to no call that is
    known are left out.
    """
    made_up = is_made_up(F.col("request_id"))
    calls = _calls(lives.where(~made_up))
    counted = _counted(calls, _asked(lives.where(made_up)))
    single = F.when(F.col("near") == 1, F.col("code")).alias("code")
    known = counted.where((F.col("near") > 0) | (F.col("far") > 0)).select("alias", single)
    return known.join(calls.select("code", "call_id"), "code", "left").drop("code")


def renamed(events: DataFrame, found: DataFrame) -> DataFrame:
    """Return events under the ids of their calls, where these are known."""
    certain = found.where(F.col("call_id").isNotNull())
    joined = events.join(certain, F.col("request_id") == F.col("alias"), "left")
    true_id = F.coalesce("call_id", "request_id")
    return joined.withColumn("request_id", true_id).select(*events.columns)


def one_sided(lives: DataFrame, found: DataFrame) -> DataFrame:
    """Mark the lives that are one half of a request whose other half cannot be told."""
    halves = found.where(F.col("call_id").isNull()).select(F.col("alias").alias("request_id"))
    marked = lives.drop("is_half").join(
        halves.withColumn("is_half", F.lit(True)), "request_id", "left"
    )
    return marked.withColumn("is_half", F.coalesce("is_half", F.lit(False)))


def _calls(lives: DataFrame) -> DataFrame:
    """Return the calls of which no broker tells by name, and from when to when they were open."""
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
    """Return three questions for each made-up id: which calls were open then, or nearly then?"""
    accepted = first_of(F.col("events"), is_acceptance)["ts"]
    moments = F.array(
        *(
            F.struct(F.lit(name).alias("moment"), later(accepted, seconds).alias("at"))
            for name, seconds in (("before", -_FAR_S), ("then", _NEAR_S), ("after", _FAR_S))
        )
    )
    told = lives.where(accepted.isNotNull()).select(
        "service",
        _size_by(BROKER).alias("bytes"),
        F.col("request_id").alias("alias"),
        F.explode(moments).alias("question"),
    )
    return told.select(*_KEY, "alias", "question.*")


def _counted(calls: DataFrame, asked: DataFrame) -> DataFrame:
    """Count the calls that were open when a broker accepted a request: `near`, and `far`, by the
    clocks at their worst. `code` is that of the call, if there is just one."""
    begins = calls.select(*_KEY, F.col("begin").alias("at"), "code", F.lit(1).alias("begun"))
    ends = calls.select(*_KEY, F.col("end").alias("at"), "code", F.lit(1).alias("ended"))
    line = begins.unionByName(ends, allowMissingColumns=True).unionByName(
        asked, allowMissingColumns=True
    )
    so_far = Window.partitionBy(*_KEY).orderBy("at").rangeBetween(Window.unboundedPreceding, 0)
    # The codes of calls that have ended cancel out: what is left is that of the one that has not.
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
    told = first_of(F.col("events"), lambda e: is_acceptance(e) & (e["role"] == role))
    return told["bytes"]
