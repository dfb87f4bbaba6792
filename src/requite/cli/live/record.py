"""Figures as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, Final

from requite.metrics.figures import BrokerFigures, Figures, ServiceFigures

_BROKER: Final = (
    "broker",
    "clients",
    "workers",
    "newcomers",
    "unread",
    "services_count",
    "services_max",
    "pending",
    "pending_bytes",
    "pending_bytes_max",
    "draining",
)
_SERVICE: Final = (
    "number",
    "idle",
    "busy",
    "draining",
    "blocked",
    "queued",
    "unserved",
    "in_progress",
)


def record_of(figures: BrokerFigures) -> dict[str, Any]:
    """Return figures as JSON has them: durations in seconds, rates per second; null: not known."""
    reading = figures.now
    record = {name: getattr(reading, name) for name in _BROKER}
    if reading.pair is not None:
        record["pair"] = reading.pair
    return {
        "interval_s": _known(figures.interval_s),
        **record,
        **_happened(figures.happened),
        "refused_per_s": _rates(figures.refused),
        "denied_per_s": _rates(figures.denied),
        "services": [_service(row) for row in figures.services],
    }


def _service(row: ServiceFigures) -> dict[str, Any]:
    return {
        "service": row.seen.name,
        **{name: getattr(row.seen, name) for name in _SERVICE},
        "paused": bool(row.seen.paused),
        "oldest_s": _known(row.oldest_s),
        **_happened(row.happened),
    }


def _happened(happened: Figures) -> dict[str, Any]:
    return {
        "requests_per_s": _known(happened.accepted),
        "replies_per_s": _known(happened.answered),
        "failed_per_s": _rates(happened.failed),
        "redelivered_per_s": _known(happened.redelivered),
        "request_bytes_per_s": _known(happened.received),
        "reply_bytes_per_s": _known(happened.sent),
        "p50_s": _known(happened.p50_s),
        "p99_s": _known(happened.p99_s),
        "mean_s": _known(happened.mean_s),
    }


def _rates(rates: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _known(per_s) for name, per_s in rates.items()}


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 6)
