"""Access decisions, from a lake to facts: denials, refused passwords, changes of rights, users."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from requite.spark.lake import Lake
from requite.spark.report import facts
from requite.spark.report.bounded import first_of, rows_of
from requite.spark.report.facts import Access, Denial, Guesses, RightsChange, User
from requite.story.vocabulary import CONNECT, DECISIONS, DENIED, OK, RIGHTS

_HOST: Final = r"^[^:]+://(.*?)(?::\d+)?$"
"""The host of an address without its port, or the path of a socket."""

_IS_DENIED: Final = "denied"
_IS_GUESS: Final = "guessed"


def access(lake: Lake) -> Access | None:
    """Return the content of the section on access.

    None if brokers denied nobody and know no users: a broker without an access file records the
    workers that it admitted, without names.
    """
    if not lake.catalog.files("silver_access"):
        return None
    is_denied = F.col("verdict") == DECISIONS[DENIED]
    is_password = (F.col("verb") == CONNECT) & F.col("principal").startswith("plain:")
    decided = lake.table("silver_access").withColumns(
        {_IS_DENIED: is_denied, _IS_GUESS: is_denied & is_password}
    )
    counts = (F.count_if(name).alias(name) for name in (_IS_DENIED, _IS_GUESS))
    named = F.count_if(F.col("principal") != "").alias("named")
    (sums,) = rows_of(decided.agg(*counts, named))
    if not sums["denied"] and not sums["named"]:
        return None
    denials_known, denials = _denials(decided.where(_IS_DENIED))
    guesses_known, guesses = _guesses(decided.where(_IS_GUESS))
    changes_known, changes = _changes(decided)
    users_known, users = _users(lake.table("silver_requests"))
    return Access(
        denied=sums["denied"],
        guessed=sums["guessed"],
        denials=denials,
        denials_known=denials_known,
        guesses=guesses,
        guesses_known=guesses_known,
        changes=changes,
        changes_known=changes_known,
        users=users,
        users_known=users_known,
    )


def _denials(denied: DataFrame) -> tuple[int, tuple[Denial, ...]]:
    """Return how many different things were denied, and the most frequent ones."""
    grouped = denied.groupBy("principal", "verb", "object").agg(
        F.count("*").alias("n"),
        F.min("ts").alias("first_seen"),
        F.max("ts").alias("last_seen"),
        F.max_by("reason", F.struct("ts", "reason")).alias("reason"),
    )
    order = (F.desc("n"), F.asc("principal"), F.asc("verb"), F.asc("object"))
    known, rows = first_of(grouped, facts.DENIALS_SHOWN, *order)
    return known, tuple(Denial(**row) for row in rows)


def _guesses(guessed: DataFrame) -> tuple[int, tuple[Guesses, ...]]:
    """Return the number of addresses and hours with refused passwords, and those with the most."""
    address = F.regexp_extract(F.coalesce("peer", F.lit("")), _HOST, 1).alias("address")
    grouped = guessed.groupBy(address, F.date_trunc("hour", "ts").alias("hour")).agg(
        F.count("*").alias("n"), F.count_distinct("principal").alias("names")
    )
    order = (F.desc("n"), F.asc("hour"), F.asc("address"))
    known, rows = first_of(grouped, facts.GUESSES_SHOWN, *order)
    return known, tuple(Guesses(**row) for row in rows)


def _changes(decided: DataFrame) -> tuple[int, tuple[RightsChange, ...]]:
    """Return the number of changes of rights, and the last ones."""
    changed = decided.where(F.col("verdict") == DECISIONS[RIGHTS])
    changes = changed.select(F.col("ts").alias("at"), "principal", F.col("reason").alias("what"))
    known, rows = first_of(changes, facts.CHANGES_SHOWN, F.desc("at"), F.asc("principal"))
    return known, tuple(RightsChange(**row) for row in rows)


def _users(requests: DataFrame) -> tuple[int, tuple[User, ...]]:
    """Return the number of users with requests, and those with the most."""
    accepted = requests.where(F.col("accepted_at").isNotNull())
    is_ok = F.col("outcome") == OK
    grouped = accepted.groupBy("principal").agg(
        F.count("*").alias("accepted"),
        F.count_if(is_ok).alias("replied"),
        F.count_if(~is_ok).alias("failed"),
    )
    known, rows = first_of(grouped, facts.USERS_SHOWN, F.desc("accepted"), F.asc("principal"))
    return known, tuple(User(**row) for row in rows)
