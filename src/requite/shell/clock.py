"""The clock that shells hand to engines: seconds that never jump back, from an arbitrary start."""

from time import monotonic as now

__all__ = ["now"]
