"""What may be set on a client, a worker and a device, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from requite.errors import ConfigurationError
from requite.protocols.scalability.wire import HOPS_DEFAULT, HOPS_MAX
from requite.request import RetryPolicy

RESEND_S_DEFAULT: Final = 60.0
"""sp-request-reply-01, "End-to-end functionality": "The default timeout interval must be 60
seconds"."""

ATTEMPTS_UNLIMITED: Final = 1 << 31
"""As many tries as a client has request ids."""

RETRY_DEFAULT: Final = RetryPolicy(attempts=ATTEMPTS_UNLIMITED, attempt_timeout=RESEND_S_DEFAULT)

FRONT: Final = "front"
BACK: Final = "back"
LOSSES_BEFORE_REST: Final = 3
"""How many channels a call may lose before it rests between tries. A call whose request is too
large costs everybody their connection each time it is sent."""

REST_S: Final = 0.1
"""The first rest; each is twice as long as the one before, up to the interval of resending."""

BACKLOG_SIZE_MAX_DEFAULT: Final = 60 << 20
"""Somewhat less than the 64 MiB at which shells drop a peer that does not read (`shell/link.py`):
what was sent before the channel pushed back, and the lengths of messages, count there as well."""

PRIORITIES: Final = range(1, 17)
WEIGHTS: Final = range(1, 1001)
_SLOTS_MAX: Final = 1 << 24  # far fewer than there are request ids


class PipeOptions(NamedTuple):
    """By which address a peer came; shells hand it to engines (`PeerJoined.place`).

    `side` is that of a device: FRONT, where requests come from, or BACK, where they go to. Requests
    go to channels of the best `priority` (1 comes first) that has one which takes them; among these
    each gets a share by its `weight`. All are equal unless somebody says otherwise.
    """

    side: str = ""
    priority: int = 1
    weight: int = 1


DEFAULT_OPTIONS: Final = PipeOptions()


def pipe_options(place: object) -> PipeOptions:
    """Return what a shell told of a peer's address; a shell that knows nothing tells None."""
    return place if isinstance(place, PipeOptions) else DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class ReqPolicy:
    """What may be set on a client; seconds and counts.

    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `retry`: see `RetryPolicy`. An idempotent request is sent again after `attempt_timeout`; the
      last try has this long, too. `attempts` counts those as well that were lost with their
      channel, and is `ATTEMPTS_UNLIMITED` by default, as in the draft. There are no pauses between
      tries. The budget bounds resending by the timer: the first time is free for each call, as the
      draft demands it, and what exceeds it waits until there is some again. Each second counts as
      `CALLS_WORTH_A_SECOND` new calls (`requite.core.budget`). What was lost with its channel is
      not charged: to send it elsewhere adds no load.
    - `hold`: whether a call waits while no channel takes it. If not, it fails with `Overloaded`.
    - `notes`: make `Note` effects: `sent`, `resent`, `replied`, `failed`.
    """

    slots: int = 1024
    retry: RetryPolicy = field(default_factory=lambda: RETRY_DEFAULT)
    hold: bool = True
    notes: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= _SLOTS_MAX:
            raise ConfigurationError(f"slots is 1 to {_SLOTS_MAX}, not {self.slots}")


@dataclass(frozen=True, slots=True)
class RepPolicy:
    """What may be set on a worker; counts and bytes.

    - `capacity`: how many requests its handlers may have at a time. The others wait, per channel.
    - `hops`: how many tags a request may have, its own id among them; longer ones are dropped.
    - `queue_max`, `queue_size_max`: how many requests, and bytes of them, may wait per channel;
      then the channel is not read from until half of them are gone.
    - `backlog_size_max`: how many bytes of replies are still sent to a channel that pushes back.
      Beyond it they are dropped, as the protocol demands; but a client that has asked for several
      large replies pushes back as a matter of course, and would have to ask again a minute later.
    - `reply_size_max`: how large a reply may grow out of partial ones.
    - `notes`: make `Note` effects: `delivered`, `finished`, `abandoned`, `dropped`.
    """

    capacity: int = 16
    hops: int = HOPS_DEFAULT
    queue_max: int = 1024
    queue_size_max: int = 4 << 20
    backlog_size_max: int = BACKLOG_SIZE_MAX_DEFAULT
    reply_size_max: int = 64 << 20
    notes: bool = False

    def __post_init__(self) -> None:
        _check_hops(self.hops)
        for name in ("capacity", "queue_max", "queue_size_max", "reply_size_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.backlog_size_max < 0:
            raise ConfigurationError("backlog_size_max cannot be negative")


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """What may be set on a device; counts, bytes and seconds.

    - `hops`: how many tags a request may leave with; those that would have more are dropped.
    - `backlog_size_max`: as for a worker.
    - `hold_s`: how long a request may wait while all channels to the back push back. It is dropped
      then: in a loop of devices, each may be waiting for the other to read. Well below the minute
      after which clients send again. Without any channel to the back requests wait for ever.
    - `linger_s`: how long replies are still passed on by a device that drains.
    - `notes`: make `Note` effects: `dropped`.
    """

    hops: int = HOPS_DEFAULT
    backlog_size_max: int = BACKLOG_SIZE_MAX_DEFAULT
    hold_s: float = 30.0
    linger_s: float = 1.0
    notes: bool = False

    def __post_init__(self) -> None:
        _check_hops(self.hops, 2)
        if self.hold_s <= 0 or self.linger_s < 0 or self.backlog_size_max < 0:
            raise ConfigurationError(
                "hold_s must be positive, linger_s and backlog_size_max not negative"
            )


def _check_hops(hops: int, least: int = 1) -> None:
    if not least <= hops <= HOPS_MAX:
        raise ConfigurationError(f"hops is {least} to {HOPS_MAX}, not {hops}")
