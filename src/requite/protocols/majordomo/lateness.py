"""Which queued requests have too little time left, and give way to others.

Beyond the capacity of the workers, a queue that is first in, first out hands out only requests that
are about to expire, so workers work for replies that come too late. The broker measures how long a
request is at a worker, and puts a request off once less time is left to it.

Beyond the capacity of the broker itself, requests also wait before they are read, and nobody knows
for how long. Those of a client that has long been behind are refused.
"""

from __future__ import annotations

from typing import Final

from requite.protocols.majordomo.parties import PendingRequest

# What a reply needs besides the time at the worker, and how much of its timeout a request may
# reserve for it. Delays of a busy machine are tens of milliseconds.
MARGIN_S_MAX: Final = 0.1
_MARGIN_SHARE: Final = 1 / 8
# How long a client has been behind whose requests are refused, and its share of the timeout. The
# rest is for what nobody knows of: the time in the buffers of the client's own system.
BEHIND_S_MIN: Final = 0.1
_BEHIND_SHARE: Final = 1 / 2
_RECENT: Final = 1 / 8  # the weight of the newest time at a worker


def is_late(pending: PendingRequest, now: float) -> bool:
    """Return whether a queued request has too little time left, while others wait that have more.

    A redelivered request is never late: it has had its turn.
    """
    service = pending.service
    if pending.attempts or not service.queue.has_turns:
        return False
    margin_s = min(MARGIN_S_MAX, _MARGIN_SHARE * (pending.deadline - pending.accepted_at))
    return pending.deadline - now < service.takes_s + margin_s


def refused_up_to_s(behind_s: float) -> float:
    """Return the longest timeout of the requests to refuse of a client that has been behind for
    `behind_s` ([client-behind]); 0 if none is refused."""
    return behind_s / _BEHIND_SHARE if behind_s >= BEHIND_S_MIN else 0.0


def learn_time(pending: PendingRequest, now: float) -> None:
    """Learn from the time that a request was at a worker while others were queued."""
    service = pending.service
    took_s = now - pending.dispatched_at
    # The first one counts in full.
    service.takes_s += (took_s - service.takes_s) * (_RECENT if service.takes_s else 1.0)
