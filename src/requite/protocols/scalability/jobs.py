"""The nouns of a worker and of a device: a request in a handler's hands, and what can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from requite.core import jobs
from requite.engine import Warn


class Job(jobs.Job):
    """A request by a channel.

    `stack` are the tags it arrived with, which begin its reply; `pipe_tag` is the tag of its
    channel.
    """

    __slots__ = ("pipe_tag", "stack")

    stack: bytes
    pipe_tag: bytes


class Why:
    """Why messages are dropped: the words of counters, notes and journals."""

    MALFORMED = "malformed"  # no last tag, or hardly a message at all
    HOPS = "hops"  # more tags than allowed: it may be going round in a loop
    LOST = "lost"  # requests whose channel was lost before they began
    STRAY = "stray"  # replies to a channel that is not there
    PUSHBACK = "pushback"  # replies to a channel that does not take them
    STUCK = "stuck"  # requests that a device could hand to nobody for too long


def unread_reply() -> Warn:
    """Say that a reply is dropped, which its client will wait for until it asks again."""
    text = (
        "a reply is dropped: too much waits for its client, which does not read (backlog_size_max)"
    )
    return Warn("unread reply", text)


class RepSnapshot(NamedTuple):
    """A worker's tables, as counts.

    `channels`: `blocked` ones push back, `unread` ones are pushed back. `waiting` requests have no
    handler yet; of those which have one, nobody waits for the `abandoned`. `dropped`: messages
    since the beginning, by reason (`Why`).
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
    """A device's tables, as counts.

    Of the channels to the `front` and to the `back`, those `blocked` push back, and those `unread`
    are pushed back. `held` requests wait for a channel to the back. Since the beginning: `requests`
    and `replies` passed on, and messages `dropped`, by reason (`Why`).
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
