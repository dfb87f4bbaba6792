"""A broker's numbers at one moment, as `mmi.census` answers them: one frame of JSON.

`requite top` and the page of a broker show the difference of two such readings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, NamedTuple

from requite.core.durations import BOUNDS_S
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.answers import (
    Facts,
    count_list_of,
    count_of,
    counts_of,
    facts_in,
    field_of,
    flag_of,
    parsed,
    rows_of,
    seconds_of,
    text_of,
)
from requite.protocols.majordomo.census import Census, Tally, Traffic
from requite.request import Status

_STATUSES: Final = tuple(status.name.lower() for status in Status)
_COUNTS: Final = ("queued", "unserved", "in_progress", "idle", "busy", "draining", "blocked")
_TALLY: Final = ("accepted", "redelivered", "request_bytes", "reply_bytes", "took_ns")
_WHOLE: Final = (
    "services_count",
    "services_max",
    "clients",
    "workers",
    "newcomers",
    "unread",
    "pending",
    "pending_bytes",
    "pending_bytes_max",
)


class Reading(NamedTuple):
    """A broker at one moment.

    `at` is by the broker's own clock, in seconds. `services` may be fewer than `services_count`, if
    some are summed as one. `refused` counts requests that were never accepted, by status, and
    `denied` what principals had no right to, by verb. `pair` is what `mmi.pair` answers; None: the
    broker is none of a pair. `broker` differs after a restart. See `Census` for the others.
    """

    at: float
    services: tuple[Traffic, ...]
    services_count: int
    services_max: int
    clients: int
    workers: int
    newcomers: int
    unread: int
    pending: int
    pending_bytes: int
    pending_bytes_max: int
    refused: Mapping[str, int]
    denied: Mapping[str, int]
    draining: bool
    pair: Mapping[str, Any] | None = None
    broker: str = ""


def reading_of(
    census: Census, services: Iterable[Traffic], now: float, pair: Mapping[str, Any] | None
) -> Reading:
    """Return a reading of the broker that has this census."""
    return Reading(
        at=now,
        services=tuple(services),
        services_count=len(census.services),
        services_max=census.services_max,
        clients=census.clients,
        workers=census.workers,
        newcomers=census.newcomers,
        unread=census.unread,
        pending=census.pending,
        pending_bytes=census.pending_size,
        pending_bytes_max=census.pending_size_max,
        refused=_by_status(census.refused),
        denied=census.denied,
        draining=census.draining,
        pair=pair,
        broker=census.broker,
    )


def by_status(tally: Tally) -> dict[str, int]:
    """Return how many requests of a tally ended with each status, without those that none had."""
    return _by_status(tally[at.ENDED])


def _by_status(counts: Iterable[int]) -> dict[str, int]:
    return {name: count for name, count in zip(_STATUSES, counts, strict=True) if count}


# --- JSON -----------------------------------------------------------------------------------------
def to_json(reading: Reading) -> bytes:
    """Return a reading as JSON."""
    facts: dict[str, Any] = {"broker": reading.broker, "at": round(reading.at, 6)}
    facts["bounds_s"] = BOUNDS_S
    facts |= {name: getattr(reading, name) for name in _WHOLE}
    facts |= {"refused": reading.refused, "denied": reading.denied, "draining": reading.draining}
    if reading.pair is not None:
        facts["pair"] = reading.pair
    facts["services"] = [_facts_of(each, reading.at) for each in reading.services]
    return json.dumps(facts, separators=(",", ":")).encode()


def from_json(text: bytes) -> Reading:
    """Return the reading that JSON has. Raises `ValueError` if it has none, or one with fields of
    other types or beyond their limits (`answers`)."""
    facts = facts_in(parsed(text), "the answer")
    if field_of(facts, "bounds_s") != list(BOUNDS_S):
        raise ValueError("the bounds of its durations are others")
    now = round(seconds_of(facts, "at"), 6)
    rows = rows_of(field_of(facts, "services"), "services")
    services = tuple([_traffic_in(facts_in(row, "a service"), now) for row in rows])
    if len({each.number for each in services}) < len(services):
        raise ValueError("two services have the same number")
    pair = facts.get("pair")
    return Reading(
        at=now,
        services=services,
        refused=counts_of(facts, "refused"),
        denied=counts_of(facts, "denied"),
        draining=flag_of(facts, "draining"),
        pair=None if pair is None else pair_in(facts_in(pair, "pair")),
        broker=text_of(facts, "broker"),
        **{name: count_of(facts, name) for name in _WHOLE},
    )


def _facts_of(seen: Traffic, now: float) -> dict[str, Any]:
    tally = seen.tally
    return {
        "service": seen.name,
        "number": seen.number,
        "accepted": tally[at.ACCEPTED],
        "redelivered": tally[at.REDELIVERED],
        "request_bytes": tally[at.RECEIVED],
        "reply_bytes": tally[at.SENT],
        "ended": by_status(tally),
        "took": tally[at.TOOK],
        "took_ns": tally[at.TOOK_NS],
        **{name: getattr(seen, name) for name in _COUNTS},
        "oldest_s": None if seen.oldest_at == inf else round(max(0.0, now - seen.oldest_at), 6),
        "paused": bool(seen.paused),
    }


def _traffic_in(facts: Facts, now: float) -> Traffic:
    ended = counts_of(facts, "ended")
    is_waiting = field_of(facts, "oldest_s") is not None
    return Traffic(
        name=text_of(facts, "service"),
        number=count_of(facts, "number"),
        tally=(
            *[count_of(facts, name) for name in _TALLY],
            *[ended.get(name, 0) for name in _STATUSES],
            *count_list_of(facts, "took", len(BOUNDS_S) + 1),
        ),
        oldest_at=now - seconds_of(facts, "oldest_s") if is_waiting else inf,
        paused=int(flag_of(facts, "paused")),
        **{name: count_of(facts, name) for name in _COUNTS},
    )


def pair_in(facts: Facts) -> dict[str, Any]:
    """Return the fields of `mmi.pair`, without those of later versions. Raises `ValueError`."""
    has_peer = field_of(facts, "peer") is not None
    was_heard = has_peer or field_of(facts, "heard_s_ago") is not None
    return {
        "role": text_of(facts, "role"),
        "state": text_of(facts, "state"),
        "epoch": count_of(facts, "epoch"),
        "serves": flag_of(facts, "serves"),
        "peer": text_of(facts, "peer") if has_peer else None,
        "peer_is_silent": flag_of(facts, "peer_is_silent"),
        "heard_s_ago": seconds_of(facts, "heard_s_ago") if was_heard else None,
    }
