"""What happened at a broker between two readings: rates, and percentiles of durations.

    before, now = Reading(...), Reading(...)
    figures = figures_of(before, now)

The page of a broker and `requite top` show these figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Final, NamedTuple

from requite.core.durations import BOUNDS_S
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.census import NO_TALLY, Tally, Traffic, added, reduced
from requite.protocols.majordomo.reading import Reading, by_status

_NS: Final = 1e9
_OK: Final = "ok"


class Figures(NamedTuple):
    """What happened to the requests of a service, or of all, per second of an interval.

    `accepted` and `answered` are requests and replies, `redelivered` attempts after the first,
    `received` and `sent` bytes of bodies. `failed` has the requests that ended without a reply that
    is ok, by status. `p50_s`, `p99_s` and `mean_s` are durations of those with one; NaN: there were
    none. Percentiles are interpolated between the bounds of durations (as Prometheus does), and the
    last bound if they are above it.
    """

    accepted: float
    answered: float
    failed: Mapping[str, float]
    redelivered: float
    received: float
    sent: float
    p50_s: float
    p99_s: float
    mean_s: float


class ServiceFigures(NamedTuple):
    """A service: what happened, what it has now, and for how long its oldest request has waited in
    the queue, in seconds (0: none waits)."""

    seen: Traffic
    oldest_s: float
    happened: Figures


class BrokerFigures(NamedTuple):
    """A broker: what happened at its services, and to requests that it refused and to peers that it
    denied something, per second. `interval_s` is the time between the readings."""

    now: Reading
    interval_s: float
    happened: Figures
    refused: Mapping[str, float]
    denied: Mapping[str, float]
    services: tuple[ServiceFigures, ...]


def figures_of(before: Reading, now: Reading) -> BrokerFigures | None:
    """Return what happened between two readings. None if they are not of the same broker, such as
    one that was started anew, or are of one moment.

    All requests of a service that is new count, since they came after the earlier reading.
    """
    interval_s = now.at - before.at
    earlier = {each.number: each.tally for each in before.services}
    changes = [reduced(each.tally, earlier.get(each.number, NO_TALLY)) for each in now.services]
    if interval_s <= 0 or before.broker != now.broker:
        return None
    if any(min(change) < 0 for change in changes):
        return None
    total = NO_TALLY
    for change in changes:
        total = added(total, change)
    return BrokerFigures(
        now,
        interval_s,
        figures_in(total, interval_s),
        _rates(before.refused, now.refused, interval_s),
        _rates(before.denied, now.denied, interval_s),
        tuple(
            ServiceFigures(each, oldest_s(each, now.at), figures_in(change, interval_s))
            for each, change in zip(now.services, changes, strict=True)
        ),
    )


def figures_in(change: Tally, interval_s: float) -> Figures:
    """Return the figures of what was counted within an interval."""
    ended = by_status(change)
    answered, took = ended.pop(_OK, 0), change[at.TOOK]
    return Figures(
        accepted=change[at.ACCEPTED] / interval_s,
        answered=answered / interval_s,
        failed={name: count / interval_s for name, count in ended.items()},
        redelivered=change[at.REDELIVERED] / interval_s,
        received=change[at.RECEIVED] / interval_s,
        sent=change[at.SENT] / interval_s,
        p50_s=percentile(took, 0.5),
        p99_s=percentile(took, 0.99),
        mean_s=change[at.TOOK_NS] / _NS / answered if answered else nan,
    )


def percentile(counts: Sequence[int], share: float) -> float:
    """Return the duration in seconds that `share` (0 to 1) of the counted ones do not exceed: NaN
    without any. `counts` are as in `Durations`."""
    total = sum(counts)
    if not total:
        return nan
    below, rank = 0, share * total
    for count, low, high in zip(counts, (0.0, *BOUNDS_S), BOUNDS_S, strict=False):
        if count and below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below += count
    return BOUNDS_S[-1]


def oldest_s(seen: Traffic, now: float) -> float:
    """Return how long the oldest request of a service has waited in the queue; 0: none waits."""
    return 0.0 if seen.oldest_at == inf else max(0.0, now - seen.oldest_at)


def _rates(
    before: Mapping[str, int], now: Mapping[str, int], interval_s: float
) -> dict[str, float]:
    """Return what grew, per second."""
    grown = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count / interval_s for name, count in grown.items() if count > 0}
