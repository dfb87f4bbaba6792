"""Latencies of many calls: percentiles, and a histogram for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

_BAR_WIDTH: Final = 40
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_FULL: Final = "█"
# Three buckets per octave: a bucket ends 26 % above its start.
_BUCKETS_PER_OCTAVE: Final = 3


def percentile(ordered_s: Sequence[float], share: float) -> float:
    """Return the smallest of the ordered values that `share` (0 to 1) of them do not exceed.

    NaN without values.
    """
    if not ordered_s:
        return math.nan
    return ordered_s[max(0, math.ceil(share * len(ordered_s)) - 1)]


class Bucket(NamedTuple):
    """A bucket: `size` values above the previous bucket's `upto_s` and at most its own."""

    upto_s: float
    size: int


def histogram(values_s: Sequence[float]) -> list[Bucket]:
    """Count values in buckets of equal ratio, without gaps from the smallest to the largest."""
    if not values_s:
        return []
    counts = Counter(math.ceil(math.log2(max(s, 1e-9)) * _BUCKETS_PER_OCTAVE) for s in values_s)
    return [
        Bucket(2 ** (exponent / _BUCKETS_PER_OCTAVE), counts[exponent])
        for exponent in range(min(counts), max(counts) + 1)
    ]


def bar(size: int, most: int) -> str:
    """Draw a bar as long as `size` is relative to `most`; at least one eighth if `size` > 0."""
    eighths = round(size / most * _BAR_WIDTH * 8) if most else 0
    if size and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return (_FULL * whole + _EIGHTHS[rest]).rstrip()


def in_ms(seconds: float) -> str:
    """Write a latency in milliseconds with three significant digits."""
    ms = seconds * 1000
    if math.isnan(ms):
        return "–"
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}" if ms >= 1 else f"{ms:.3f}"
