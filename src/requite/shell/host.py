"""The I/O-free core of every shell: engine, framings and links, but no socket, loop or clock.

The asyncio shell, the blocking shell and the simulator each wrap one `Host`:

    host = Host(engine, clock, make_framing, connect=..., wake_at=..., want_flush=..., ...)
    host.opened(stream)        # a connection is open: the stream reports to the host from now on
    host.submit(Submit(...))   # the user makes a call
    host.wake()                # the instant given to `wake_at` has passed
    host.flush()               # after `want_flush`, once per turn: each link is written once

The host calls its shell through plain callables (`Host.__init__`), never from inside the engine,
which a `Feeder` never re-enters.

This is the hot path of every role. Per message it costs one test of the effect's class, one
`encode` and one test of the link's flag; everything else is per chunk or per turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, Unpack

from requite.engine import (
    CancelHandler,
    Connect,
    Deliver,
    DeliverAll,
    Disconnect,
    Effect,
    Engine,
    Fail,
    Input,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    ReadFreely,
    ReadInTurn,
    Refused,
    ResumeReading,
    RightsChanged,
    Send,
    SendAll,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.framing.base import Chunk, CredentialsRefused, Framing, Message
from requite.shell.admission import AdmissionControl, verify_now
from requite.shell.fair_queue import FairQueue
from requite.shell.feeder import Feeder
from requite.shell.limiter import Limiter
from requite.shell.link import Link, LinkLimits, Pause, discard, reason_of_end
from requite.shell.outbox import Outbox
from requite.shell.owners import QuotaReached, unrestricted
from requite.shell.pending_links import PendingLinks
from requite.shell.uses import Uses
from requite.shell.waiting import Waiting
from requite.shell.warnings import Warnings
from requite.transport.base import Stream

__all__ = ["Host", "Link", "LinkLimits"]

# The timer is not reset for an instant that is earlier by less than this: resetting costs more than
# the engine gains.
_TIMER_SLACK_S: Final = 0.0005


# The maximum of inputs fed together before their output is sent. With all 64 calls in flight fed
# together, the two processes would wait for each other in turn; in two halves they work at the same
# time, with 1.9 times the throughput.
_PORTION: Final = 32


def _unexpected(*what: object) -> None:
    raise LocalViolation(f"the shell does not support the engine's effect {what!r}")


def _ignore(*_what: object) -> None:
    """Ignore the call."""


class Host:
    """One engine, its links, and one timer for both.

    `clock` returns monotonic seconds. `make_framing` makes the framing of a new link. `limits`
    apply to each link. The shell's callables:

    - `wake_at(instant)`: call `wake` at `instant` or soon after; replaces the previous instant. It
      may be in the past. Early calls are harmless.
    - `want_flush()`: output is queued; call `flush` before the turn ends. Not called again until
      then. Called after an input's effects are performed, so flushing at once is allowed.
    - `connect()`: open one more connection, retrying with pauses, and pass its stream to `opened`.
      Called for the engine, and again for each dialled link that ends during its handshake (unless
      it is `kept`).
    - `joined(link)`: a link has completed its handshake.
    - `ended(link, reason)`: a link has ended (`link.joined`: whether the engine knew it).
    - `released(link)`: the link's stream has closed, and all its output was sent.
    - `stopped()`: the engine has drained.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float],
        make_framing: Callable[[], Framing],
        *,
        wake_at: Callable[[float], None],
        want_flush: Callable[[], None],
        connect: Callable[[], None] = _unexpected,
        joined: Callable[[Link], None] = _ignore,
        ended: Callable[[Link, str], object] = _ignore,
        released: Callable[[Link], None] = _ignore,
        stopped: Callable[[], None] = _ignore,
        limits: LinkLimits | None = None,
        **uses: Unpack[Uses],
    ) -> None:
        self.engine = engine
        # An ordered set, so that the simulator can replay a run.
        self.links: dict[Link, None] = {}
        self._feeder = Feeder(engine, clock, self._perform)
        self._clock = clock
        self._make_framing = make_framing
        self._wake_at = wake_at
        self._want_flush = want_flush
        self._connect = connect
        self._joined = joined
        self._ended = ended
        self._released = released
        self._deliver = uses.get("deliver", _unexpected)
        self._login_refused = uses.get("login_refused", _ignore)
        self._admission = AdmissionControl(
            self,
            clock,
            uses.get("identify", unrestricted),
            uses.get("identified", _ignore),
            uses.get("verify", verify_now),
            uses.get("ask"),
            uses.get("identities"),
        )
        self.limits = limits or LinkLimits()
        self._warnings = Warnings(logging.getLogger(uses.get("logger", "requite")), clock)
        self._reports_dials = uses.get("reports_dials", False)

        self._flush_wanted = False
        self._delivered = False  # something that its user may answer at once
        self._armed_at = inf
        self._pending_links = PendingLinks(self.limits.handshake_timeout_s)
        self._limiter = Limiter(self.limits, self._drop, self._resume)
        self._outbox = Outbox(self._limiter, uses.get("flow", _ignore))
        self._giving_way: set[Link] = set()  # dropped by `make_room`, and not closed yet
        self._closing = Waiting(self.limits.linger_s)
        self._fair_queue = FairQueue(self.limits.burst, clock, self._feed, self._resume)
        self._deliver_pairs = uses.get("deliver_all", self._one_by_one)
        fail = uses.get("fail", _unexpected)
        abandon = uses.get("abandon", _unexpected)
        self._perform_other: dict[type, Callable[[Any], None]] = {
            SendAll: self._outbox.send_all,
            DeliverAll: self._deliver_all,
            Fail: lambda effect: fail(effect.token, effect.error),
            Connect: lambda _effect: connect(),
            Disconnect: self._disconnect,
            StopReading: lambda effect: effect.peer.pause(Pause.ENGINE),
            ReadInTurn: lambda effect: self._fair_queue.add(
                effect.peer, effect.report_s, effect.unfinished
            ),
            ReadFreely: lambda effect: self._fair_queue.release(effect.peer),
            Refused: lambda effect: self._fair_queue.refused(effect.peer, effect.count),
            ResumeReading: lambda effect: self._resume(effect.peer, Pause.ENGINE),
            CancelHandler: lambda effect: abandon(effect.token, effect.reason),
            Note: uses.get("note", _ignore),
            Warn: lambda effect: self._warnings.warn(effect.kind, effect.text),
            Stopped: lambda _effect: stopped(),
        }

    # --- from the user and the clock --------------------------------------------------------------
    def submit(self, *events: Input) -> None:
        """Feed the engine inputs of the user now: `Submit`, `Cancel`, `Finished`, `Drain`, …

        Many inputs are fed in portions, and the output of each is sent at once. Raises
        `LocalViolation` for an input that the engine refuses, after all have been fed.
        """
        if self._feeder.later:
            self._feed_later()
        refused = None
        for at in range(0, len(events), _PORTION):
            if at:
                self._write_out(now=True)
            later = self._feeder.feed(events[at : at + _PORTION])
            refused = refused or later
        self._settle()
        if refused is not None:
            raise refused

    def submit_soon(self, event: Input) -> None:
        """Feed the engine an input of the user by the end of the turn, together with others."""
        feeder = self._feeder
        feeder.later.append(event)
        if not self._flush_wanted:
            self._flush_wanted = True
            self._want_flush()
        elif len(feeder.later) >= _PORTION and not feeder.feeding:
            self._feed_later()
            self._write_out(now=True)

    def wake(self) -> None:
        """Feed a `Wake` if the engine's deadline has passed, and drop overdue links."""
        self._armed_at = inf
        now = self._clock()
        at = self.engine.deadline()
        if at is not None and at <= now:
            self._feed(Wake())
        self._drop_overdue(now)
        self._admission.wake(now)
        self._limiter.wake(now)
        self._arm(self.next_at())
        self._settle()

    def next_at(self) -> float:
        """Return the instant of the next `wake` (`inf`: none)."""
        ours = min(self._pending_links.next_at(), self._limiter.next_at(), self._closing.next_at())
        for at in (self.engine.deadline(), self._admission.next_at()):
            if at is not None:
                ours = min(ours, at)
        return ours

    # --- from streams -----------------------------------------------------------------------------
    def opened(
        self,
        stream: Stream,
        *,
        accepted: bool = False,
        kept: bool = False,
        framing: Framing | None = None,
        place: Any = None,
        patience_s: float = inf,
    ) -> Link:
        """Take over a new connection and send its framing's greeting.

        `accepted`: the peer dialled. `kept`: the shell redials the connection when it ends.
        `framing` replaces that of `make_framing`, for hosts whose listening addresses differ in it.
        `place` is passed to the engine. `patience_s`: time limit of the handshake, if shorter than
        that of all links.
        """
        link = Link(stream, framing or self._make_framing(), accepted, kept, place)
        self.links[link] = None
        self._arm(self._pending_links.add(link, self._clock(), patience_s))
        stream.start(self, link)
        opening = link.framing.opening()
        if opening:
            stream.write(opening)
        if link.framing.ready and self._admission.admit(link, []):  # a framing without a handshake
            self._join(link)
        self._settle()
        return link

    def received(self, link: Link, chunk: Chunk) -> None:
        """Handle the next bytes of a link; part of `Owner`."""
        if link.ended or (not link.joined and self._admission.hold_back(link, chunk)):
            return
        if link.principal.quota.bytes_per_s and link.accepted:
            self._limiter.count_received(link, len(chunk), self._clock())
            self._arm(self._limiter.next_at())
        framing = link.framing
        try:
            messages = framing.receive(chunk)
        except CredentialsRefused as refusal:
            self._login_refused(link.stream.peer_name, refusal)
            self._admission.login_failed(link, refusal)
            self._arm(self.next_at())
        except RemoteViolation as violation:
            self._expel(link, "protocol violation", str(violation))
        else:
            if link.joined or not framing.ready or self._admission.admit(link, messages):
                self._take_in(link, messages)
            if not link.joined and framing.login is not None and not link.ended:
                self._admission.log_in(link)
                self._arm(self.next_at())
        self._settle()

    def go_on(self, link: Link, why: Pause, messages: list[Message], chunk: Chunk) -> None:
        """Go on with a link that has waited; part of `Gate`."""
        self._resume(link, why)
        if link.framing.ready:
            self._take_in(link, messages)
        if chunk or not link.joined:
            self.received(link, chunk)
        self._settle()

    def _take_in(self, link: Link, messages: list[Message]) -> None:
        """Handle what the framing has made of bytes: its answer, messages, the end."""
        framing = link.framing
        if answer := framing.output():
            self._outbox.queue(link, answer)
        if not link.joined and framing.ready:
            self._join(link)
            if link.ended:
                return
        # Part of a message shows that the peer is alive, too: a large body may take longer than the
        # limit of silence.
        if messages or (link.joined and framing.mid_message):
            if link.mute and messages:
                self._pending_links.first_message(link)
            self._fair_queue.received(link, messages)
        if framing.farewell and not link.ended:
            self._hang_up(link)
            self._tell_end(link, framing.farewell)
        if link.accepted and (link.partial_size or framing.partial_size):
            self._limiter.count_partial(link, self._clock())
            self._arm(self._limiter.next_at())

    def closed(self, link: Link, reason: str) -> None:
        """Handle the end of a stream; part of `Owner`."""
        self.links.pop(link, None)
        self._closing.discard(link)
        self._giving_way.discard(link)
        if not link.ended:
            if reason and link.accepted and not link.joined:  # mostly TLS; reported nowhere else
                self._warnings.warn("handshake failed", f"{link.stream.peer_name}: {reason}")
            self._forget(link)
            self._tell_end(link, reason or reason_of_end(link.framing))
        self._released(link)
        self._settle()

    def blocked(self, link: Link) -> None:
        """Buffer a link's output, since its stream pushes back; part of `Owner`."""
        link.blocked = True
        if link.ended:
            return
        if link.joined and not link.pushed_back:
            self._outbox.press(link)
            self._feed(PeerBlocked(link))
            self._settle()

    def writable(self, link: Link) -> None:
        """Write a link's buffered output, since its stream is writable again; part of `Owner`."""
        link.blocked = False
        if link.ended:
            return
        self._outbox.write(link, link.stream.write)
        if link.blocked:  # the write blocked it again
            return
        self._resume(link, Pause.UNREAD)
        if link.pushed_back:
            self._outbox.release(link)
            self._feed(PeerWritable(link))
        self._settle()

    def _resume(self, link: Link, why: Pause) -> None:
        """Read from a link again; its unread bytes do not count as missing."""
        link.resume(why)
        self._limiter.resumed(link, self._clock())

    # --- output -----------------------------------------------------------------------------------
    def flush(self) -> None:
        """Feed the engine the deferred inputs, and write the queued output, each link once.

        Raises `LocalViolation` at the end if the engine refused a deferred input.
        """
        waited = False
        try:
            # User callbacks may submit more, for which no other flush is requested.
            while self._feeder.later or self._outbox.dirty:
                if self._feeder.later:
                    self._feed_later()
                self._write_out()
            waited = self._fair_queue.begin_turn()
            if waited and self._outbox.dirty:
                self._write_out()
        finally:  # an exception of a signal handler must not stop output forever
            self._flush_wanted = self._delivered = False
        if waited:
            self._settle()
        if (refused := self._feeder.take_refusal()) is not None:
            raise refused

    def _write_out(self, *, now: bool = False) -> None:
        self._outbox.write_out(now=now)
        self._settle()

    def turn_away(self, link: Link) -> None:
        """Close an unwanted link without an input to the engine."""
        if not link.ended:
            self._hang_up(link)
        self._settle()

    @property
    def giving_way(self) -> int:
        """How many links have been dropped by `make_room` and are still being closed."""
        return len(self._giving_way)

    def make_room(self, newcomer: Link, shortage: str) -> None:
        """Drop a peer that has sent no message, or else the newcomer, to free a connection."""
        link = self._pending_links.choose_dropped(newcomer)
        if link.ended:
            return
        self._giving_way.add(link)
        name = link.stream.peer_name
        why = "turned away" if link is newcomer else "dropped"
        whom = name if link is newcomer else f"{name}, which has sent no message"
        self._drop(link, "too many connections", f"{why}: {shortage}", f"{why} {whom}: {shortage}")
        self._settle()

    def rights_changed(self) -> None:
        """Tell the engine, and close the links whose owners may not connect any more.

        The engine is told first: handling the loss of a worker, it must not give its requests to
        another one without the right.
        """
        self._feed(RightsChanged())
        self._limiter.review(self._clock())
        for link, reason in self._admission.no_longer_admitted(list(self.links)):
            self.refuse(link, "access revoked", CredentialsRefused(reason))
        self._settle()

    def shut(self) -> None:
        """Close every link after its queued output is sent; the engine gets no more inputs."""
        for link in list(self.links):
            if not link.ended:
                self._hang_up(link)
        self._settle()

    def abort(self) -> None:
        """Close every link at once and drop its queued output."""
        for link in list(self.links):
            self._forget(link)
            link.stream.abort()

    # --- inside -----------------------------------------------------------------------------------
    def _feed(self, event: Input) -> None:
        """Feed the engine an input. Raises `LocalViolation` if the engine refuses it, or one that
        arrives meanwhile."""
        if refused := self._feeder.feed((event,)):
            self._settle()
            raise refused

    def _feed_later(self) -> None:
        """Feed the engine the deferred inputs; `flush` raises the error of a refused one."""
        self._feeder.feed_later()
        self._settle()

    def _perform(self, effects: Iterable[Effect]) -> None:
        deliver = self._deliver
        link: Any  # the engine calls it Peer
        for effect in effects:
            # Inline, since every message has a `Send` or `Deliver`; the table costs one more call.
            if effect.__class__ is Send:
                link = effect.peer
                link.size += link.encode(effect.message, link.out)
                if not link.dirty:
                    link.dirty = True
                    self._outbox.dirty.append(link)
            elif effect.__class__ is Deliver:
                deliver(effect.token, effect.what)
                self._delivered = True
            else:
                self._perform_other[effect.__class__](effect)

    def _deliver_all(self, effect: DeliverAll) -> None:
        self._deliver_pairs(effect.pairs)
        self._delivered = True

    def _one_by_one(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        for token, what in pairs:
            self._deliver(token, what)

    def _settle(self) -> None:
        """After an input, request a flush and set the timer if needed.

        What was delivered has woken tasks. A flush requested now runs after their next step, in the
        same iteration of the loop, so that replies and next calls leave with it: requested by them,
        it would cost one more iteration, with a system call. Without links, nothing can leave, and
        the loop may not run yet.
        """
        if self._feeder.feeding:
            return
        answers = self._delivered and self.links
        if (self._outbox.dirty or answers or len(self._fair_queue)) and not self._flush_wanted:
            self._flush_wanted = True
            self._want_flush()
        at = self.engine.deadline()
        if at is not None and at < self._armed_at:
            self._arm(at)

    def _arm(self, at: float) -> None:
        if at < self._armed_at - _TIMER_SLACK_S:
            self._armed_at = at
            self._wake_at(at)

    def _join(self, link: Link) -> None:
        """Pass a peer to the engine after its handshake."""
        link.identity = link.framing.peer_identity
        try:
            displaced = self._admission.name(link)
        except RemoteViolation as violation:
            self._expel(link, "identity refused", str(violation))
            return
        if displaced is not None:
            replaced = f"replaced by {link}, which has the same identity"
            self._drop(displaced, "identity taken over", replaced)
        link.joined = True
        self._pending_links.handshake_done(link)
        self._joined(link)
        self._feed(
            PeerJoined(link, link.identity, link.place, link.principal, link.framing.peer_features)
        )

    def _drop_overdue(self, now: float) -> None:
        for link, reason in self._pending_links.take_due(now):
            self._drop(link, "handshake timeout", reason)
        for link in self._closing.take_due(now):
            link.stream.abort()

    # --- ends, from the gentlest to the hardest ---------------------------------------------------
    def _disconnect(self, effect: Disconnect) -> None:
        link: Any = effect.peer
        if not link.ended:
            self._hang_up(link)
            self._ended(link, effect.reason)

    def _hang_up(self, link: Link) -> None:
        """Close a link after its queued output is sent, without an input to the engine."""
        if farewell := link.framing.closing():
            link.out.append(farewell)
        data = link.take_output()
        self._forget(link)
        if data:
            link.stream.write(data)
        self._arm(self._closing.add(link, self._clock()))
        link.stream.close()

    def _expel(self, link: Link, kind: str, reason: str) -> None:
        """Close the link of a peer that broke a rule; send it the reason if the framing can."""
        self._warn_of(link, kind, f"{link.stream.peer_name}: {reason}")
        if reason_told := link.framing.output():
            link.out.append(reason_told)
        self._hang_up(link)
        self._tell_end(link, reason)

    def refuse(self, link: Link, kind: str, refusal: RemoteViolation) -> None:
        """Close the link of a peer that is not admitted, or no more; part of `Gate`. A peer that
        may try again is not told anything."""
        if not isinstance(refusal, CredentialsRefused | QuotaReached):
            self._drop(link, kind, f"cannot be admitted: {refusal}")
        else:
            if not link.joined:
                link.framing.refuse(refusal.status)
            self._expel(link, kind, str(refusal))
        self._settle()

    def _drop(self, link: Link, kind: str, reason: str, text: str = "") -> None:
        """Close a link at once and drop its queued output; `text` replaces the warning's text."""
        self._warn_of(link, kind, text or f"{link.stream.peer_name} {reason}")
        self._forget(link)
        link.stream.abort()
        self._tell_end(link, reason)

    def _warn_of(self, link: Link, kind: str, text: str) -> None:
        if link.accepted or link.joined or not self._reports_dials:
            self._warnings.warn(kind, text)

    def _forget(self, link: Link) -> None:
        """Detach a link from engine and output; its stream may still be closing."""
        link.ended = True
        link.encode = discard
        link.take_output()
        self._pending_links.forget(link)
        self._admission.forget(link)
        self._limiter.forget(link)
        link.share = None
        self._outbox.release(link)

    def _tell_end(self, link: Link, reason: str) -> None:
        self._ended(link, reason)
        if link.joined:
            self._feed(PeerLost(link, reason))
        elif not (link.accepted or link.kept):
            self._connect()
