"""The audit: one verdict per request, with evidence, and a summary.

A request is in order when the party that accepted it ended it exactly once, at most a heartbeat
period after its deadline (invariant I1). `requite.spark.lifecycle` finds that party and reads its
log. Requests that only workers journal get no verdict: no party with a journal accepted them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.bronze import CLIENT_DIGITS
from requite.spark.clock import Instant, dated, later
from requite.story.rules import FAULT_ACCEPTED, FAULT_ENDED, FAULT_TWICE, USUAL, Terms
from requite.story.vocabulary import BROKER, CLIENT, DISPATCHED, OUTCOMES, Verdict

_FAULTS_SHOWN: Final = 3
_SHOWN: Final = ("ts", "log", "seq", "kind", "attempt", "outcome", "worker", "reason")
SHOWN_MAX: Final = 200
"""Maximum number of events in the evidence of one contradiction."""

_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC"}


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of an audit. Fields count requests, except these:

    `contradictions` (a request may have several); `dropped_events`, which the journal lost before
    writing them; `damaged`, rows that do not decode; `faults`, which name what the journal should
    contain and does not. Each of the last three may hide the outcome of a request, so the audit is
    incomplete then.
    """

    accepted: int = 0
    exactly_one: int = 0
    missing: int = 0
    duplicate: int = 0
    in_flight: int = 0
    orphan: int = 0
    accepted_twice: int = 0
    late: int = 0
    contradictions: int = 0
    undecided: int = 0
    one_sided: int = 0
    dropped_events: int = 0
    damaged: int = 0
    faults: tuple[str, ...] = ()

    @property
    def violations(self) -> int:
        """Number of requests with a verdict that is a violation."""
        return self.late + self.missing + self.duplicate + self.orphan + self.accepted_twice

    @property
    def ok(self) -> bool:
        """Whether the journal shows no violation and no contradiction."""
        return not self.violations and not self.contradictions

    @property
    def complete(self) -> bool:
        """Whether the journal contains everything that the verdicts depend on."""
        return not (self.dropped_events or self.damaged or self.faults or self.undecided)

    def record(self) -> dict[str, int]:
        """Return the counts as a JSON-ready dict."""
        return {name: count for name, count in asdict(self).items() if name != "faults"}

    def sentence(self) -> str:
        """Return the summary as a sentence."""
        parts = [f"{self.accepted:,} accepted", f"{self.exactly_one:,} ended exactly once"]
        named = {
            "ended too late": self.late,
            "missing": self.missing,
            "ended more than once": self.duplicate,
            "ended without being accepted": self.orphan,
            "accepted twice": self.accepted_twice,
            "still in flight": self.in_flight,
            "seen from one side, not counted": self.one_sided,
        }
        parts += [f"{count:,} {name}" for name, count in named.items() if count]
        return ", ".join(parts) + self._contradicted() + self._holes()

    def _contradicted(self) -> str:
        n = self.contradictions
        return f"; {n:,} {'contradiction' if n == 1 else 'contradictions'}" if n else ""

    def _holes(self) -> str:
        holes = ""
        if self.undecided:
            holes += f"; {self.undecided:,} cannot be judged"
        if self.dropped_events or self.damaged:
            holes += (
                f"; the journal is incomplete ({self.dropped_events:,} events dropped, "
                f"{self.damaged:,} rows damaged): their requests are not proven"
            )
        if self.faults:
            holes += f"; the journal is incomplete: {self._named_faults()}"
        return holes

    def _named_faults(self) -> str:
        more = len(self.faults) - _FAULTS_SHOWN
        named = "; ".join(self.faults[:_FAULTS_SHOWN])
        return f"{named}; and {more:,} more" if more > 0 else named


def summarise(
    verdicts: Mapping[str, int],
    *,
    contradictions: int = 0,
    dropped_events: int = 0,
    damaged: int = 0,
    faults: Sequence[str] = (),
) -> Summary:
    """Build the summary from the number of requests per verdict."""
    count = {verdict: verdicts.get(verdict, 0) for verdict in Verdict}
    return Summary(
        accepted=sum(count.values()) - count[Verdict.ORPHAN] - count[Verdict.ONE_SIDED],
        exactly_one=count[Verdict.EXACTLY_ONE],
        missing=count[Verdict.MISSING],
        duplicate=count[Verdict.DUPLICATE_OUTCOME],
        in_flight=count[Verdict.IN_FLIGHT],
        orphan=count[Verdict.ORPHAN],
        accepted_twice=count[Verdict.ACCEPTED_TWICE],
        late=count[Verdict.LATE],
        contradictions=contradictions,
        undecided=count[Verdict.UNDECIDED],
        one_sided=count[Verdict.ONE_SIDED],
        dropped_events=dropped_events,
        damaged=damaged,
        faults=tuple(faults),
    )


def verdicts(
    lives: DataFrame,
    now: Instant,
    terms: Terms = USUAL,
    *,
    unsettled: Collection[str] = frozenset(),
    heard_us: Mapping[str, int] | None = None,
) -> DataFrame:
    """Judge each life (`requite.spark.lifecycle.lives`) as of `now`: the table `audit_verdicts`.

    Verdicts that depend on the clocks of the `unsettled` logs are undecided. `heard_us` maps a log
    to the instant (microseconds since 1970) up to which it was read: requests that are open in it
    are judged as of that instant.
    """
    if heard_us:
        lives, now = _as_heard(lives, now, heard_us)
    judged = lives.select(
        "request_id",
        "service",
        _decided(_verdict(now, terms), unsettled).alias("verdict"),
        "events",
        dated(F.col("own"), F.col("events")).alias("date"),
    )
    evidence = _evidence(F.col("verdict"), F.col("events")).alias("evidence")
    columns = "request_id", "service", "verdict", evidence, "date"
    return judged.where(F.col("verdict").isNotNull()).select(*columns)


def _as_heard(
    lives: DataFrame, now: Instant, heard_us: Mapping[str, int]
) -> tuple[DataFrame, Column]:
    """Join the instant as of which each life is judged: how far the logs are read that may end it.

    That is its client's log; for requests that brokers accepted, also every broker's log, since
    the request may have moved to another broker.
    """
    rows = sorted(heard_us.items())
    heard = lives.sparkSession.createDataFrame(rows, "heard_log string, heard_us bigint")
    own_client = F.concat(F.lit(f"{CLIENT}-"), F.substring("request_id", 1, CLIENT_DIGITS))
    by_client = F.col("last")["role"] == CLIENT
    log = F.when(by_client, F.col("last")["log"]).otherwise(own_client)
    joined = lives.join(F.broadcast(heard), log == F.col("heard_log"), "left")
    by_brokers = [us for name, us in rows if name.startswith(BROKER)]
    brokers_us = F.lit(min(by_brokers)) if by_brokers else F.lit(None).cast("bigint")
    us = F.least("heard_us", F.when(~by_client, brokers_us))
    return joined, F.least(F.lit(now), F.timestamp_micros(us))


def _verdict(now: Instant, terms: Terms) -> Column:
    fault = F.col("course")["fault"]
    is_late = F.col("course")["late_us"] > round(terms.grace_s * 1e6)
    is_overdue = F.lit(now) > later(_deadline(terms.longest_deadline_s), terms.grace_s)
    return (
        F.when(F.col("last").isNull(), _orphan(F.col("events")))
        .when(fault == FAULT_ACCEPTED, Verdict.ACCEPTED_TWICE.value)
        .when(fault == FAULT_TWICE, Verdict.DUPLICATE_OUTCOME.value)
        .when((fault == FAULT_ENDED) & is_late, Verdict.LATE.value)
        .when(fault == FAULT_ENDED, Verdict.EXACTLY_ONE.value)
        .when(is_overdue, Verdict.MISSING.value)
        .otherwise(Verdict.IN_FLIGHT.value)
    )


def _decided(verdict: Column, unsettled: Collection[str]) -> Column:
    """Make verdicts undecided that depend on a clock that was set, or on a one-sided half.

    A set clock decides what was late and which broker was last; the other half of a one-sided
    request is in the client's log under another id.
    """
    is_well = verdict.isin(Verdict.EXACTLY_ONE.value, Verdict.IN_FLIGHT.value)
    half = F.when(is_well, Verdict.ONE_SIDED.value).otherwise(Verdict.UNDECIDED.value)
    verdict = F.when(F.col("is_half") & verdict.isNotNull(), half).otherwise(verdict)
    if not unsettled:
        return verdict
    logs = F.array_distinct(F.col("own")["log"])
    is_torn = F.arrays_overlap(logs, F.array(*map(F.lit, sorted(unsettled))))
    is_late = verdict == Verdict.LATE.value
    is_open = verdict.isin(Verdict.MISSING.value, Verdict.IN_FLIGHT.value) & (F.size(logs) > 1)
    return F.when(is_torn & (is_late | is_open), Verdict.UNDECIDED.value).otherwise(verdict)


def _orphan(events: Column) -> Column:
    """Return ORPHAN for a request that was never accepted, if a broker or client handled it."""
    handled = F.exists(
        events,
        lambda event: (
            event["role"].isin(BROKER, CLIENT) & event["kind"].isin(DISPATCHED, *OUTCOMES)
        ),
    )
    return F.when(handled, Verdict.ORPHAN.value)


def _deadline(longest_deadline_s: float) -> Column:
    return F.coalesce(
        F.array_max(F.col("own")["deadline"]), later(F.col("last")["ts"], longest_deadline_s)
    )


def shown(events: Column) -> Column:
    """Return events as JSON."""
    selected = F.transform(events, lambda event: F.struct(*(event[name] for name in _SHOWN)))
    return F.to_json(selected, _JSON)


def _evidence(verdict: Column, events: Column) -> Column:
    """Return the evidence as JSON: all events of a violation, the newest of a request in flight."""
    everything = shown(events)
    newest = shown(F.slice(events, -1, 1))
    return (
        F.when(verdict == Verdict.EXACTLY_ONE.value, F.lit(None).cast("string"))
        .when(verdict == Verdict.IN_FLIGHT.value, newest)
        .otherwise(everything)
    )
