"""Round tick values and equal bars on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from requite.spark.report.facts import Bar

_BARS_MAX: Final = 60


def round_values(lowest: float, highest: float) -> list[float]:
    """Return ticks 1, 2, 5, 10 … from below `lowest` to above `highest`; powers of 10 if many.

    Both are positive; the ticks include the ends of the logarithmic axis.
    """
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    mantissas = (1, 2, 5) if last - first < 4 else (1,)
    decades = range(first - 1, last + 2)  # allows for rounded logarithms
    values = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
    begin = max(number for number, value in enumerate(values) if value <= lowest)
    end = next(number for number, value in enumerate(values) if value > highest)
    return values[begin : end + 1]


def merge_bars(bars: Sequence[Bar], at_most: int = _BARS_MAX) -> list[tuple[float, float, int]]:
    """Merge adjacent buckets into at most `at_most` bars (lower, upper, n) of equal log width.

    Buckets grow by a constant factor, which is derived from the closest two.
    """
    uppers = sorted({bar.upper_ms for bar in bars if bar.upper_ms > 0})
    ratios = [after / before for before, after in pairwise(uppers)]
    factor = max(min(ratios, default=1.02), 1.001)
    steps = log_of(uppers[-1] / uppers[0], factor)
    width = factor ** max(1, -(-round(steps + 1) // at_most))
    lowest = uppers[0] / factor
    counts: dict[int, int] = {}
    for bar in bars:
        place = int(log_of(max(bar.upper_ms, uppers[0]) / lowest, width) - 1e-6)
        counts[place] = counts.get(place, 0) + bar.n
    return [(lowest * width**k, lowest * width ** (k + 1), n) for k, n in sorted(counts.items())]


def log_of(value: float, base: float) -> float:
    """Return the logarithm to any base."""
    return math.log(value) / math.log(base)
