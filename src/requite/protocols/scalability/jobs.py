"""Requests of a worker, reasons for drops, and snapshots of workers and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from requite.core import jobs
from requite.engine import Warn


class Job(jobs.Job):
    """A delivered request.

    `stack` are the tags it arrived with, which begin its reply; `pipe_tag` is the tag of its
    channel.
    """

    __slots__ = ("pipe_tag", "stack")

    stack: bytes
    pipe_tag: bytes


class Why:
    """Reasons for dropping messages, as counters, notes and journals have them."""

    MALFORMED: Final = "malformed"  # no last tag, or too short
    HOPS: Final = "hops"  # more tags than allowed: perhaps in a loop
    LOST: Final = "lost"  # requests whose channel was lost before they started
    STRAY: Final = "stray"  # replies for an unknown channel
    PUSHBACK: Final = "pushback"  # replies for a channel with too much back-pressure
    STUCK: Final = "stuck"  # requests that a device could not pass on for too long


def unread_reply() -> Warn:
    """Return the warning for a dropped reply, whose client will time out and retry."""
    text = (
        "dropped a reply: its client does not read, and the backlog for it is full"
        " (backlog_size_max)"
    )
    return Warn("unread reply", text)


class RepSnapshot(NamedTuple):
    """Table sizes of a worker.

    `channels`: all; `blocked`: those with back-pressure; `unread`: those that we do not read from.
    `waiting` requests are queued; for `abandoned` ones no client waits any more. `dropped`:
    messages since the start, by reason (`Why`).
    """

    channels: int
    blocked: int
    unread: int
    waiting: int
    running: int
    abandoned: int
    dropped: Mapping[str, int]
    draining: bool
    stopped: bool


class DeviceSnapshot(NamedTuple):
    """Table sizes of a device.

    Of the channels at the `front` and at the `back`, `blocked` ones have back-pressure, and
    `unread` ones are not read from. `held` requests wait for a channel at the back. Since the
    start: `requests` and `replies` passed on, and messages `dropped`, by reason (`Why`).
    """

    front: int
    front_blocked: int
    front_unread: int
    back: int
    back_blocked: int
    held: int
    requests: int
    replies: int
    dropped: Mapping[str, int]
    stopped: bool
