"""Counts, rates, durations and sizes as short texts, for the page of a broker and `requite top`."""

from __future__ import annotations

from math import isnan
from typing import Final

from requite.core.durations import BOUNDS_S

NONE: Final = "–"
_KIB: Final = 1024.0
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def count(n: int) -> str:
    """Return a number: `0`, `1,234`."""
    return f"{n:,}"


def rate(per_s: float) -> str:
    """Return a rate in at most 6 characters: `0.5`, `1,234`, `1.2M`; `–`: not known."""
    if isnan(per_s):
        return NONE
    if per_s >= 1e6:
        return f"{per_s / 1e6:.1f}M" if per_s < 1e8 else f"{per_s / 1e6:.0f}M"
    if per_s >= 1e5:
        return f"{per_s / 1e3:.0f}k"
    if per_s >= 9.95:
        return f"{per_s:,.0f}"
    if 0 < per_s < 0.05:
        return "<0.1"
    return f"{per_s:.1f}" if per_s else "0"


def duration(s: float) -> str:
    """Return a duration in at most 7 characters: `0.3 ms`, `4.2 s`, `3m05s`; `–`: not known."""
    if isnan(s):
        return NONE
    if s < 0.9995:
        ms = s * 1000
        return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"
    if s < _MINUTE_S:
        return f"{s:.1f} s" if s < 9.95 else f"{s:.0f} s"
    whole = int(s)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02}m"
    days = whole // _DAY_S
    return f"{days}d{whole % _DAY_S // _HOUR_S:02}h" if days < 100 else f"{days}d"


def percentile(s: float) -> str:
    """Return a percentile of durations; one at the last bound may be any longer one."""
    return f"≥{duration(s)}" if s >= BOUNDS_S[-1] else duration(s)


def size(n: float) -> str:
    """Return bytes in at most 8 characters: `512 B`, `1.5 KiB`; `–`: not known."""
    if isnan(n):
        return NONE
    if n < _KIB - 0.5:
        return f"{n:.0f} B" if n else "0"
    value = n
    for unit in _SIZES:
        value /= _KIB
        if value < _KIB - 0.5 or unit == _SIZES[-1]:
            return f"{value:.1f} {unit}" if value < 99.95 else f"{value:,.0f} {unit}"
    raise AssertionError(n)
