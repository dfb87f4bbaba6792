"""The device: a REP and a REQ endpoint back to back, which forwards requests and replies.

    clients ──requests──► front │ back ──requests──► workers, or further devices
            ◄──replies───       │      ◄──replies───

A request at the front gets the id of its channel prepended, and leaves by one of the channels at
the back, round robin. A reply at the back loses that id, which determines its channel. A device
stores nothing else: when it restarts, requests in flight are lost, and clients resend them.

While no channel at the back accepts requests, a request that was read is held, and its channel is
not read from: the back-pressure reaches the clients. Channels take turns for held requests too.
Replies are never held: a reply for a channel that does not accept it is dropped.

Devices may form a loop. Requests circulate in it until they have too many tags. Under load each
device may wait for another to read, so that none ever reads again; therefore held requests are
dropped when nothing has moved for `hold_s`.

Source: sp-request-reply-01, "Overview", the hop by hop parts of "REQ endpoint" and "REP endpoint",
and "Loop avoidance".
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import ClassVar

from requite.chronicle import Chronicle
from requite.core.machine import Handlers, Machine
from requite.core.turns import Turns
from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Wake,
)
from requite.errors import LocalViolation
from requite.protocols.scalability.channels import PORTION_SIZE, Channels
from requite.protocols.scalability.jobs import DeviceSnapshot, Why, unread_reply
from requite.protocols.scalability.policy import BACK, FRONT, DevicePolicy, pipe_options
from requite.protocols.scalability.raw import ReplyPipe, ReturnPaths
from requite.protocols.scalability.recorders import DeviceObserver, DeviceRecorder
from requite.protocols.scalability.wire import BOTTOM, TAG_SIZE, is_too_deep, stack_size


class ScalabilityDevice(Machine):
    """Forwards requests from its front to its back, and replies in the other direction.

    The `PipeOptions` of a peer have its side; a peer without a side is a `LocalViolation`. After
    `Drain`, requests are not read, and replies are forwarded for `linger_s`; then `Stopped`
    follows. `first_id` is the first channel id, 0 to 2**31 - 1: it MUST be random per start.
    `chronicle` journals channels and counts.
    """

    _kind: ClassVar = "a device"

    def __init__(
        self,
        policy: DevicePolicy | None = None,
        *,
        first_id: int,
        chronicle: Chronicle | None = None,
    ) -> None:
        super().__init__()
        self._policy = policy = policy or DevicePolicy()
        self._hops = policy.hops - 1  # of an incoming request
        self._paths = ReturnPaths(first_id, backlog_size_max=policy.backlog_size_max)
        self._turns: Turns[ReplyPipe] = Turns(queue_max=0, queue_size_max=0)
        self._channels = Channels()
        self._observer = (
            DeviceObserver(notes=policy.notes)
            if chronicle is None
            else DeviceRecorder(chronicle, notes=policy.notes)
        )
        self._requests = self._replies = 0
        self._dropped: Counter[str] = Counter()
        self._release_at = inf  # when to send the next portion of held requests
        self._stuck_at = inf  # when to drop held requests, unless one is sent before
        self._stop_at = inf

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = min(self._release_at, self._stuck_at, self._stop_at)
        at = min(at, self._observer.flush_at)
        return None if at == inf else at

    def snapshot(self) -> DeviceSnapshot:
        """Return the sizes of all tables."""
        pipes = list(self._turns)
        return DeviceSnapshot(
            len(pipes),
            sum(not pipe.is_open for pipe in pipes),
            sum(not pipe.is_read for pipe in pipes),
            len(self._channels),
            self._channels.blocked,
            self._turns.waiting,
            self._requests,
            self._replies,
            dict(self._dropped),
            self._stopped,
        )

    # --- messages ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        pipe = self._turns.by_peer.get(event.peer)
        if self._stopped:
            return
        if pipe is not None:
            self._pass_requests(pipe, event, now)
        elif event.peer in self._channels:
            self._pass_replies(event, now)
        self._observer.passed(now)

    def _pass_requests(self, pipe: ReplyPipe, event: Received, now: float) -> None:
        hops, tag = self._hops, pipe.tag
        say = self._out.append
        for (payload,) in event.messages:
            if not stack_size(payload, hops):
                self._drop(Why.HOPS if is_too_deep(payload, hops) else Why.MALFORMED, now)
                continue
            if self._turns.line or not pipe.is_open or (channel := self._channels.next()) is None:
                self._hold(pipe, payload)
                continue
            self._requests += 1
            say(Send(channel.peer, (tag, payload)))
        if self._turns.line and self._release_at == inf:
            self._release(now)

    def _pass_replies(self, event: Received, now: float) -> None:
        by_tag = self._paths.by_tag
        say = self._out.append
        for (payload,) in event.messages:
            pipe = by_tag.get(payload[:4])
            # A reply must have a tag left; a client may disconnect because of one that has none.
            if pipe is None or len(payload) < 2 * TAG_SIZE:
                self._drop(_fault_of(payload), now)
            elif pipe.is_open or self._paths.takes(pipe, len(payload)):
                self._replies += 1
                say(Send(pipe.peer, (payload[4:],)))
            else:
                self._drop(Why.PUSHBACK, now)
                say(unread_reply())

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        if not count:
            return
        self._dropped[why] += count
        self._observer.dropped(why, now, count)
        self._observer.remark("dropped", {"why": why, "count": count}, self._out)

    # --- held requests ----------------------------------------------------------------------------
    def _hold(self, pipe: ReplyPipe, payload: bytes) -> None:
        if self._turns.push(pipe, payload, len(payload)):
            self._out.append(StopReading(pipe.peer))

    def _release(self, now: float) -> None:
        """Send a portion of the held requests; the next portion follows in the next turn."""
        self._release_at = inf
        size = 0
        while self._channels.any_open and (due := self._turns.pop()):
            pipe, payload = due
            channel = self._channels.next()
            assert channel is not None  # one is open
            self._requests += 1
            self._out.append(Send(channel.peer, (pipe.tag, payload)))
            self._maybe_resume(pipe)
            size += len(payload)
            if size >= PORTION_SIZE:
                self._release_at = now
                break
        self._watch(now, moved=size > 0)

    def _watch(self, now: float, moved: bool) -> None:
        """Restart the timer of held requests if one was sent; stop it if none can be."""
        if not (self._turns.line and len(self._channels)):
            self._stuck_at = inf
        elif moved or self._stuck_at == inf:
            self._stuck_at = now + self._policy.hold_s

    def _give_up(self, now: float) -> None:
        """Drop all held requests: none could be sent for too long."""
        count = 0
        while due := self._turns.pop():
            count += 1
            self._maybe_resume(due[0])
        self._stuck_at = inf
        self._drop(Why.STUCK, now, count)

    def _maybe_resume(self, pipe: ReplyPipe) -> None:
        if not self._draining and self._turns.resumes(pipe):
            self._out.append(ResumeReading(pipe.peer))

    # --- channels ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        place = pipe_options(event.place)
        if self._draining:
            self._out.append(Disconnect(event.peer, "the device is shutting down", Cause.DONE))
            return
        if place.side == FRONT:
            self._turns.join(self._paths.join(event.peer))
        elif place.side == BACK:
            self._channels.join(event.peer, place)
            self._release(now)
        else:
            raise LocalViolation(f"the place of a peer names FRONT or BACK, not {event.place!r}")
        self._observer.joined(place.side, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        pipe = self._turns.leave(event.peer)
        if pipe is not None:
            self._paths.leave(pipe)
            self._drop(Why.LOST, now, pipe.queued)
        elif not self._channels.leave(event.peer):
            return
        self._watch(now, moved=False)
        self._observer.lost(BACK if pipe is None else FRONT, event.reason, now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._turns.block(event.peer)
        self._channels.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        if pipe := self._turns.unblock(event.peer):
            pipe.backlog = 0
        self._channels.unblock(event.peer)
        self._release(now)

    # --- time and drain ---------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if now >= self._release_at:
            self._release(now)
        if now >= self._stuck_at:
            self._give_up(now)
        if now >= self._observer.flush_at:
            self.tell_counts(now)
        if now >= self._stop_at:
            self._stop()

    def tell_counts(self, now: float) -> None:
        """Journal the messages since the last flush."""
        self._observer.flush_open_spans(self._requests, self._replies, self._turns.waiting, now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._draining:
            return
        self._draining = True
        for pipe in self._turns:
            if pipe.is_read:
                pipe.is_read = False
                self._out.append(StopReading(pipe.peer))
        if self._turns.by_peer and self._policy.linger_s:
            self._stop_at = now + self._policy.linger_s
        else:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._release_at = self._stuck_at = self._stop_at = inf
        self._out.append(Stopped())


def _fault_of(reply: bytes) -> str:
    """Return why a reply cannot be forwarded."""
    if len(reply) < 2 * TAG_SIZE or reply[0] & BOTTOM:
        return Why.MALFORMED
    return Why.STRAY
