"""How long to wait before the next attempt to connect."""

from __future__ import annotations

from typing import Final

from requite.engine import Rng
from requite.errors import ConfigurationError
from requite.request import RetryPolicy

FIRST_S: Final = 0.05
MAX_S: Final = 2.0
# A listener that accepts and hangs up at once must not be dialled in a tight loop, so a connection
# counts as a success only once it has lived for this long.
LIVED_S: Final = 1.0


class Backoff:
    """Exponential back-off with jitter: each delay is random in the upper half of a ceiling.

    The ceiling starts at `first_s` and doubles up to `max_s`; it starts anew after a connection
    that lived. `rng` is uniform in [0, 1): clients that lost the same broker come back spread out.
    """

    __slots__ = ("_failures", "_rng", "_spacing")

    def __init__(self, rng: Rng, first_s: float = FIRST_S, max_s: float = MAX_S) -> None:
        if not 0 < first_s <= max_s:
            raise ConfigurationError(
                f"the first pause ({first_s} s) must be positive and not exceed the longest "
                f"({max_s} s)"
            )
        self._rng = rng
        self._spacing = RetryPolicy(backoff=first_s, backoff_max=max_s, jitter=0.5)
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait now; the next answer will be longer."""
        self._failures += 1
        return self._spacing.delay_s(self._failures, self._rng)

    def note_life(self, lasted_s: float) -> None:
        """Note that a connection ended after so many seconds: a long one starts the series anew."""
        if lasted_s >= LIVED_S:
            self._failures = 0
