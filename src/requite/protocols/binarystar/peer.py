"""One server of a fail-over pair: exchanges heartbeats with the other, and decides which serves.

    the other server ──HEARTBEAT──► ┌────────────────┐ ──view──► the application
                     ◄──HEARTBEAT── │ BinaryStarPeer │ ◄──Vote── each request of a client
    an operator      ──ASK, SWITCH─►└────────────────┘

The steps are in `table.py`, the timing is here:

- The other server counts as silent two intervals after its last heartbeat. After a pause of this
  process, its heartbeats are still unread, so the two intervals begin again.
- This server serves for a little less than two intervals after its own last heartbeat
  (`serves_until`). A process that was paused for longer therefore serves nobody when it resumes: it
  is suspended until the other server has answered a new heartbeat, or is silent. While our
  heartbeats arrive, the other cannot take over earlier than that.
- After a start, clients can make a server active only after two intervals.

Source: the Guide, chapter 4, "High-availability Pair (Binary Star Pattern)"; the additions are in
docs/protocols/binary-star.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, Final

from requite.engine import (
    Cause,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Input,
    Message,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    Stopped,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.binarystar.doubt import Doubt
from requite.protocols.binarystar.links import PeerLink, PeerLinks
from requite.protocols.binarystar.other import Other
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.reasons import (
    another_process,
    contradiction,
    distant,
    failure,
    misplaced,
    no_switch,
    outdated,
    same_role,
)
from requite.protocols.binarystar.table import TABLE, Action, Event, State, heard, next_epoch
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote, view_on_wire
from requite.protocols.binarystar.wire import (
    EPOCH_JUMP_MAX,
    Ask,
    Refused,
    Switch,
    Word,
    decode,
    encode,
)

DIALLED: Final = "dialled"
"""The `place` of dialled connections, which lead to the other server; others were accepted."""

CHANGED: Final = "changed"
"""The token of a `PairView`, delivered when state, epoch or the peer's state have changed."""

# Shares of a heartbeat interval. Turns come at least every quarter, so that every pause of half an
# interval is noticed; a shorter pause cannot hide the other's heartbeats for two intervals. This
# server stops serving a quarter before the other may begin, to allow for late heartbeats.
_TURN: Final = 0.25
_PAUSE: Final = 0.5
_MARGIN: Final = 0.25

# If this many dialled connections end without a heartbeat, the address belongs to something other
# than a server of a pair, for example to a broker's clients.
_SILENT_JOINS_MAX: Final = 3


class BinaryStarPeer:
    """The engine. `instance` identifies the process: random, not 0, new at each start.
    `why_unheard` returns the reason why the other server cannot be reached, "" if none is known.

    `state`, `epoch` and `serves_until` may be read at any time; the server serves while the clock
    is before `serves_until`.
    """

    def __init__(
        self, policy: BinaryStarPolicy, *, instance: int, why_unheard: Callable[[], str] = str
    ) -> None:
        self.policy = policy
        self.state = State(policy.role)
        self.epoch = 0
        self.serves_until = -inf
        self.trouble = ""
        self._instance = instance
        self._why_unheard = why_unheard
        self._lease_s = policy.failover_s - _MARGIN * policy.heartbeat_s
        self._number = 0  # of our last heartbeat
        self._sent_at = -inf
        self._turn_at = -inf
        self._silent_joins = 0
        self._doubt = Doubt(instance, self._lease_s)
        self._links = PeerLinks(2 * policy.failover_s)
        self._other = Other(policy)
        self._reported: tuple[State, int, State | None, bool] | None = None
        self._draining = False
        self._stopped = False
        self._stop_at = inf
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            Wake: self._ignore,
            Vote: self._voted,
            SwitchOver: self._switched_over,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._ignore,
            PeerWritable: self._ignore,
            Drain: self._drained,
        }
        self._commands: dict[type, Callable[[PeerLink, Any, float], None]] = {
            Word: self._heard,
            Switch: self._switch_requested,
            Ask: self._view_requested,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        After `Drain` an active server waits for the other to take over, at most for a fail-over
        time; then `Stopped` follows.
        """
        refused: LocalViolation | None = None
        for event in events:
            handler = self._inputs.get(event.__class__)
            if handler is None:
                refused = refused or LocalViolation(
                    f"a server of a pair does not handle the input {event!r}"
                )
            elif not self._stopped:
                self._begin_turn(now)
                handler(event, now)
                self._end_turn(now)
        if refused is not None:
            raise refused
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`; -inf before the first turn."""
        if self._stopped:
            return None
        turn_at = self._turn_at + _TURN * self.policy.heartbeat_s
        return min(turn_at, self._sent_at + self.policy.heartbeat_s, self._stop_at)

    def snapshot(self) -> SimpleNamespace:
        """Return the state, the number of connections, and the last message of the other server."""
        return SimpleNamespace(
            state=self.state,
            epoch=self.epoch,
            links=len(self._links),
            word=self._other.word,
            stopped=self._stopped,
        )

    # --- state for the application ----------------------------------------------------------------
    def view(self, now: float) -> PairView:
        """Return what this server knows."""
        other = self._other
        # Heartbeats that arrived while this process was paused are still unread.
        stood_still = now - self._turn_at > _PAUSE * self.policy.heartbeat_s
        is_silent = other.is_silent(now) and not stood_still
        return PairView(
            role=self.policy.role,
            state=self.state,
            epoch=self.epoch,
            peer_state=other.state,
            heard_s_ago=None if other.word is None else max(0.0, now - other.heard_at),
            serves=now < self.serves_until,
            peer_is_silent=is_silent,
            trouble=self.trouble or (self._why_unheard() if is_silent or not other.word else ""),
        )

    def objection(self, now: float) -> str:
        """Return why an operator's switch is not possible now; "" if it is."""
        is_stalled = self.state is State.ACTIVE and now >= self.serves_until
        state = State.SUSPENDED if is_stalled else self.state  # as in the next turn
        if self._draining or (state, self._switch_event(now)) not in TABLE:
            return no_switch(state, self._draining)
        return ""

    def _switch_event(self, now: float) -> Event:
        return Event.SEIZE if self._other.is_silent(now) else Event.SWITCH

    # --- time -------------------------------------------------------------------------------------
    def _begin_turn(self, now: float) -> None:
        pause_s, self._turn_at = now - self._turn_at, now
        if pause_s > _PAUSE * self.policy.heartbeat_s:  # also in the first turn
            self._other.excuse(now)
            self._links.excuse(now)
            if pause_s != inf:
                self._doubt.begin()
            if self.state is State.ACTIVE and now >= self.serves_until:
                self._apply(Event.STALL, now)
            else:
                self._send_heartbeat(now)

    def _end_turn(self, now: float) -> None:
        if now >= self._sent_at + self.policy.heartbeat_s:
            self._send_heartbeat(now)
        for peer in self._links.take_silent(now):
            self._out.append(Disconnect(peer, "silent for too long", Cause.SILENT))
        self._maybe_report(now)
        if self._draining and (self.state is not State.RESIGNED or now >= self._stop_at):
            self._stop()

    def _ignore(self, _event: Input, _now: float) -> None:
        """Do nothing but the work of every turn."""

    def _drained(self, _event: Drain, now: float) -> None:
        if not self._draining and not self._other.is_silent(now):
            self._apply(Event.SWITCH, now)
        self._draining = True
        self._stop_at = min(self._stop_at, now + self.policy.failover_s)

    def _stop(self) -> None:
        self.end()
        self._out.append(Stopped())

    def end(self) -> None:
        """Stop serving and ignore all inputs."""
        self._stopped = True
        self.serves_until = -inf

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        is_dialled = event.place == DIALLED
        outdone = self._links.add(event.peer, is_dialled, now)
        if outdone is not None:
            self._out.append(Disconnect(outdone, "too many connections", Cause.DONE))
        if is_dialled:
            # The peer may act upon the heartbeat that we send now, so our state must not change
            # before it could answer.
            self._silent_joins += 1
            if self._silent_joins <= _SILENT_JOINS_MAX:
                self._other.excuse(now)
            self._send_heartbeat(now)

    def _lost(self, event: PeerLost, _now: float) -> None:
        self._links.remove(event.peer)

    def _received(self, event: Received, now: float) -> None:
        link = self._links.find(event.peer)
        if link is None:
            return
        for message in event.messages:
            if not self._execute(link, message, now):
                return

    def _execute(self, link: PeerLink, message: Message, now: float) -> bool:
        """Execute a command; return whether the connection is still open."""
        try:
            command = decode(message)
            answer = self._commands.get(command.__class__)
            if answer is None:
                raise RemoteViolation(f"unexpected {command.__class__.__name__}")
        except RemoteViolation as violation:
            self._refuse(link, misplaced(str(violation)))
            return False
        link.heard_at = now
        answer(link, command, now)
        return self._links.find(link.peer) is link

    def _refuse(self, link: PeerLink, why: str) -> None:
        """Close the connection of a peer that violates the protocol."""
        self._links.remove(link.peer)
        self._out.append(Warn("pair link refused", why))
        self._out.append(Disconnect(link.peer, why, Cause.FAULTY))

    # --- from the other server --------------------------------------------------------------------
    def _heard(self, link: PeerLink, word: Word, now: float) -> None:
        if word.role is self.policy.role:
            self._conflict(link, now)
            return
        if refusal := self._refusal(link, word):
            self._refuse(link, refusal)
            return
        link.is_peer = True
        link.instance = word.instance
        is_new = self._other.is_new(word)
        is_sudden = is_new and self._other.word is not None and not self._other.is_silent(now)
        self._silent_joins = 0
        if not self._other.note(word, now):
            return
        if is_sudden:
            self._out.append(Warn("new peer process", another_process(word.role)))
        if is_new:
            for peer in self._links.take_outdated(word):
                self._out.append(Disconnect(peer, "the other server has restarted", Cause.DONE))
        self._apply_heartbeat(word, now)
        if is_new or word.wants_answer:
            self._send_heartbeat(now)

    def _conflict(self, link: PeerLink, now: float) -> None:
        """Handle a peer with our role: the one of the two that has just started fails.

        Anybody can dial this server, so it fails only if it reached such a peer itself.
        """
        why = same_role(self.policy.role)
        if link.is_dialled and self.state in (State.PRIMARY, State.BACKUP):
            self._fail(why, now)
        self._out.append(Send(link.peer, encode(self._own_heartbeat())))
        self._refuse(link, why)

    def _refusal(self, link: PeerLink, word: Word) -> str:
        """Return why not to accept a heartbeat; "" to accept it. Bytes from a stranger must neither
        end this server nor use up the epochs."""
        known = max(self.epoch, self._other.epoch)
        if word.epoch > known + EPOCH_JUMP_MAX:
            return distant(word.epoch, known)
        event = heard(word.state, word.epoch, self.epoch)
        if event is None or link.is_dialled:
            return ""
        step = TABLE.get((self.state, event))
        return contradiction(event) if step is not None and step[1] is Action.FAIL else ""

    def _apply_heartbeat(self, word: Word, now: float) -> None:
        """Apply the table to a heartbeat; then update our epoch."""
        event = heard(word.state, word.epoch, self.epoch)
        if event is None or not self._is_credible(event, word, now):
            return
        self._apply(event, now)
        if self.state in (State.PRIMARY, State.BACKUP, State.PASSIVE):
            self.epoch = max(self.epoch, word.epoch)
        elif self.state is State.ACTIVE and word.epoch > self.epoch:
            self._begin_epoch(now)  # after a restart, we did not know the earlier epochs
        elif self.state is State.ACTIVE and event is Event.OLDER_ACTIVE:
            self._send_heartbeat(now)  # tell it at once: both have clients

    def _is_credible(self, event: Event, word: Word, now: float) -> bool:
        """Return whether to act on a heartbeat. After a pause of ours, only an answer to a newer
        heartbeat of ours is trusted; any other may make us follow, but never serve."""
        if not self._doubt.is_there or self._doubt.is_settled_by(word, now):
            return True
        step = TABLE.get((self.state, event))
        return step is not None and step[1] is Action.FOLLOW

    # --- from clients and operators ---------------------------------------------------------------
    def _voted(self, _event: Vote, now: float) -> None:
        if not self._draining:
            is_silent = self._other.is_silent(now)
            self._apply(Event.CLIENT_VOTE if is_silent else Event.CLIENT_REQUEST, now)

    def _switched_over(self, _event: SwitchOver, now: float) -> None:
        if reason := self.objection(now):
            self._out.append(Warn("cannot switch", reason))
        else:
            self._apply(self._switch_event(now), now)

    def _switch_requested(self, link: PeerLink, switch: Switch, now: float) -> None:
        reason = self.objection(now)
        if not reason and switch.epoch != self.epoch:
            reason = outdated(switch.epoch, self.epoch)
        if link.is_peer:
            if not reason and self.state is State.ACTIVE:
                self._apply(self._switch_event(now), now)
        elif reason:
            self._out.append(Send(link.peer, encode(Refused(reason))))
        else:
            self._apply(self._switch_event(now), now)
            self._view_requested(link, Ask(), now)

    def _view_requested(self, link: PeerLink, _ask: Ask, now: float) -> None:
        view = view_on_wire(self.view(now), self.policy.heartbeat_ms)
        self._out.append(Send(link.peer, encode(view)))

    # --- steps ------------------------------------------------------------------------------------
    def _apply(self, event: Event, now: float) -> None:
        """Take the table's step for an event, if there is one."""
        step = TABLE.get((self.state, event))
        if step is None:
            return
        state, action = step
        if action is Action.TAKE_OVER and self._draining:
            return  # this server is about to stop
        match action:
            case Action.ASK:
                self._broadcast(encode(Switch(self.epoch)))
                return
            case Action.FAIL:
                self._fail(failure(event), now)
                return
            case Action.FOLLOW:
                self.epoch = max(self.epoch, self._other.epoch)
        self.state = state
        if action is Action.TAKE_OVER:
            self._begin_epoch(now)
        else:
            self._send_heartbeat(now)
            self._maybe_report(now)

    def _begin_epoch(self, now: float) -> None:
        """Begin a new epoch."""
        self.epoch = next_epoch(self.policy.role, max(self.epoch, self._other.epoch))
        self._send_heartbeat(now)
        self._maybe_report(now)

    def _fail(self, trouble: str, now: float) -> None:
        self.state = State.FAILED
        self.trouble = trouble
        self._out.append(Warn("pair failed", trouble))
        self._send_heartbeat(now)
        self._maybe_report(now)

    # --- output -----------------------------------------------------------------------------------
    def _send_heartbeat(self, now: float) -> None:
        """Send a heartbeat, which extends an active server's right to serve."""
        self._number += 1
        self._sent_at = now
        self.serves_until = now + self._lease_s if self.state is State.ACTIVE else -inf
        self._doubt.note_own(self._number, now)
        self._broadcast(encode(self._own_heartbeat()))

    def _own_heartbeat(self) -> Word:
        newest = self._other.word
        return Word(
            role=self.policy.role,
            state=self.state,
            wants_answer=self._doubt.is_there,
            interval_ms=self.policy.heartbeat_ms,
            epoch=self.epoch,
            instance=self._instance,
            number=self._number,
            heard_instance=0 if newest is None else newest.instance,
            heard=0 if newest is None else newest.number,
        )

    def _broadcast(self, message: Message) -> None:
        for peer in self._links.to_peer():
            self._out.append(Send(peer, message))

    def _maybe_report(self, now: float) -> None:
        """Deliver a view if it has changed."""
        other = self._other
        summary = (self.state, self.epoch, other.state, other.is_silent(now))
        if summary == self._reported:
            return
        if self.policy.notes and (self._reported is None or summary[:2] != self._reported[:2]):
            self._out.append(Note("became", {"state": self.state.name, "epoch": self.epoch}))
        self._reported = summary
        self._out.append(Deliver(CHANGED, self.view(now)))
