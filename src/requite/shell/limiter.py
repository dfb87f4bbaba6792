"""The limits of accepted links: received bytes per second, incomplete messages, unsent output.

The host tells it what links receive and hold; it pauses links and drops them. Limits of all peers
are those of `LinkLimits`, limits of one owner those of its quota.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from requite.shell.bandwidth import Bandwidth
from requite.shell.ledger import Ledger
from requite.shell.link import Link, LinkLimits, Pause
from requite.shell.partial_messages import PartialMessages

# A peer's reading is paused once its queued output exceeds `output_size_max` divided by this.
_MUTED_AT = 8


class Drop(Protocol):
    """Closes a link at once; `kind` and `reason` are for the log."""

    def __call__(self, link: Link, kind: str, reason: str, /) -> None: ...


class Limiter:
    """Enforces the limits of a host's links. `resume` reads from a link again."""

    __slots__ = ("_bandwidth", "_drop", "_limits", "_outputs", "_partials", "_resume")

    def __init__(
        self, limits: LinkLimits, drop: Drop, resume: Callable[[Link, Pause], None]
    ) -> None:
        self._limits = limits
        self._drop = drop
        self._resume = resume
        self._bandwidth = Bandwidth()
        self._partials = PartialMessages(limits)
        self._outputs = Ledger(limits.output_total_max)

    def __len__(self) -> int:
        return len(self._bandwidth) + len(self._partials) + len(self._outputs)

    # --- received bytes ---------------------------------------------------------------------------
    def count_received(self, link: Link, size: int, now: float) -> None:
        """Count bytes of a link whose owner has a rate; pause the link if it is exceeded."""
        self._bandwidth.count(link, size, now)

    def count_partial(self, link: Link, now: float) -> None:
        """Record the incomplete message of a link, and drop the links with the largest ones if
        those of its owner, or of all, exceed a limit."""
        size = link.framing.partial_size
        if link.ended or not size:
            self._partials.forget(link)
            return
        self._partials.update(link, size, now)
        if over := self._partials.sizes.choose_over_quota(link.principal):
            self._drop(
                over,
                "quota",
                f"holds {over.partial_size} bytes of an incomplete message, and those of"
                f" {over.principal} exceed the bytes of its quota",
            )
        while largest := self._partials.sizes.choose_dropped():
            self._drop(
                largest,
                "incomplete messages",
                f"holds {largest.partial_size} bytes of an incomplete message, and those of all"
                f" peers exceed the limit of {self._limits.partial_size_max} bytes"
                " (LinkLimits.partial_size_max; for a broker --partial-size-max)",
            )

    def resumed(self, link: Link, now: float) -> None:
        """Give a link that is read from again the whole time for its next byte."""
        self._partials.restart(link, now)

    # --- unsent output ----------------------------------------------------------------------------
    def count_output(self, link: Link) -> None:
        """Record the output that is queued for a peer which pushes back. Pause reading from one
        that reads too little; drop the links with the most beyond the limits of a link, an owner,
        or all. (A peer that is merely slow over one large message is still read.)

        A dialled link's queue holds our own user's messages, and the user bounds it. Dropping it
        would lose healthy calls; and if both sides stopped reading, they would deadlock.
        """
        if not link.accepted or link.ended:
            return
        limits, size = self._limits, link.size
        self._outputs.record(link, size)
        if size > limits.output_size_max // _MUTED_AT:
            link.pause(Pause.UNREAD)
        if size > limits.output_size_max:
            self._drop(link, "output limit", f"does not read: {size} bytes are queued for it")
        if over := self._outputs.choose_over_quota(link.principal):
            self._drop(
                over,
                "quota",
                f"does not read: {over.size} bytes are queued for it, and those for"
                f" {over.principal} exceed the bytes of its quota",
            )
        while largest := self._outputs.choose_dropped():
            self._drop(
                largest,
                "output limit",
                f"does not read: {largest.size} bytes are queued for it, and those for all peers"
                f" exceed the limit of {limits.output_total_max} bytes"
                " (LinkLimits.output_total_max)",
            )

    def output_sent(self, link: Link) -> None:
        """Record that a link has no queued output any more."""
        self._outputs.record(link, 0)

    # --- time, changes, ends ----------------------------------------------------------------------
    def next_at(self) -> float:
        """Return when to call `wake` (`inf`: never)."""
        at = self._bandwidth.next_at()
        return min(self._partials.next_at(), inf if at is None else at)

    def wake(self, now: float) -> None:
        """Resume links that are within their rate again; drop those whose message has stalled."""
        for link in self._bandwidth.take_due(now):
            self._resume(link, Pause.RATE)
        for link in self._partials.take_due(now):
            stalled = f"sent no further byte of a message for {self._limits.partial_timeout_s:g} s"
            self._drop(link, "incomplete messages", stalled)

    def review(self, now: float) -> None:
        """Apply changed quotas."""
        for link in self._bandwidth.review(now):
            self._resume(link, Pause.RATE)

    def forget(self, link: Link) -> None:
        """Remove a link that has ended."""
        self._bandwidth.forget(link)
        self._partials.forget(link)
        self._outputs.record(link, 0)
