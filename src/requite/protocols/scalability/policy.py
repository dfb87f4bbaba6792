"""Settings of clients, workers and devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from requite.errors import ConfigurationError
from requite.protocols.scalability.wire import HOPS_DEFAULT, HOPS_MAX
from requite.request import RetryPolicy
from requite.value import Value

RESEND_S_DEFAULT: Final = 60.0
"""sp-request-reply-01, "End-to-end functionality": "The default timeout interval must be 60
seconds"."""

ATTEMPTS_UNLIMITED: Final = 1 << 31
"""The number of request ids of a client."""

RETRY_DEFAULT: Final = RetryPolicy(attempts=ATTEMPTS_UNLIMITED, attempt_timeout=RESEND_S_DEFAULT)

FRONT: Final = "front"
BACK: Final = "back"
LOSSES_BEFORE_REST: Final = 3
"""Number of lost channels after which a call backs off: a request that is too large breaks a
connection, with all its calls, each time it is sent."""

REST_S: Final = 0.1
"""The first back-off; each is twice as long as the one before, up to the resend interval."""

BACKLOG_SIZE_MAX_DEFAULT: Final = 60 << 20
"""Somewhat less than the 64 MiB at which shells drop a peer that does not read (`shell/link.py`):
bytes sent before the back-pressure, and the lengths of messages, also count there."""

_SLOTS_MAX: Final = 1 << 24  # far fewer than there are request ids


class PipeOptions(NamedTuple):
    """Options of a connection, by its address; shells pass them as `PeerJoined.place`.

    `side` is that of a device: FRONT, with clients, or BACK, with workers. Requests go to channels
    of the best `priority` (1 is first) with one that accepts them, shared by `weight`. By default
    all channels are equal.
    """

    side: str = ""
    priority: int = 1
    weight: int = 1


DEFAULT_OPTIONS: Final = PipeOptions()


def pipe_options(place: object) -> PipeOptions:
    """Return the options in a `PeerJoined.place`, or the defaults."""
    return place if isinstance(place, PipeOptions) else DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class ReqPolicy(Value):
    """Settings of a client.

    - `slots`: the maximum of outstanding calls; further calls fail with `Overloaded`.
    - `retry`: see `RetryPolicy`. An idempotent request is resent after `attempt_timeout`, which is
      also the timeout of the last attempt. `attempts` includes those lost with their channel, and
      is `ATTEMPTS_UNLIMITED` by default, as in the draft. There are no pauses between attempts. The
      budget bounds resends by timer: the first is free for each call, as the draft demands it, and
      others wait until the budget allows them. Each second counts as `CALLS_WORTH_A_SECOND` new
      calls (`requite.core.budget`). Resends after a lost channel are outside of the budget, since
      they add no load.
    - `hold`: whether a call waits while no channel accepts it. If not, it fails with `Overloaded`.
    - `notes`: emit `Note` effects: `sent`, `resent`, `replied`, `failed`.
    """

    slots: int = 1024
    retry: RetryPolicy = field(default_factory=lambda: RETRY_DEFAULT)
    hold: bool = True
    notes: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= _SLOTS_MAX:
            raise ConfigurationError(f"slots is 1 to {_SLOTS_MAX}, not {self.slots}")


@dataclass(frozen=True, slots=True)
class RepPolicy(Value):
    """Settings of a worker.

    - `capacity`: the maximum of concurrent handlers. Further requests are queued per channel.
    - `hops`: the maximum of tags of a request, including its id; requests with more are dropped.
    - `queue_max`, `queue_size_max`: the maximum of queued requests, and of their bytes, per
      channel. At the limit, the channel is not read from until half of them are gone.
    - `backlog_size_max`: bytes of replies that are still sent to a channel with back-pressure.
      Beyond it, replies are dropped, as the protocol demands. Dropping at once would be too strict:
      several large replies cause back-pressure, and their client would resend a minute later.
    - `reply_size_max`: the maximum size of a reply joined from partial ones, in bytes.
    - `notes`: emit `Note` effects: `delivered`, `finished`, `abandoned`, `dropped`.
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
class DevicePolicy(Value):
    """Settings of a device.

    - `hops`: the maximum of tags of a request that leaves; requests with more are dropped.
    - `backlog_size_max`: bytes of replies that are still sent to a channel with back-pressure.
    - `hold_s`: how long a request may wait while all channels at the back have back-pressure. Then
      it is dropped: in a loop of devices, each may be waiting for the other to read. Well below the
      minute after which clients resend. Without any channel at the back, requests wait for ever.
    - `linger_s`: how long a draining device still passes replies on.
    - `notes`: emit `Note` effects: `dropped`.
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
