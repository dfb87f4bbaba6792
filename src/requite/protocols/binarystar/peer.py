"""One server of a fail-over pair: it tells the other what it is, listens, and knows who serves.

    the other server ──HEARTBEAT──► ┌────────────────┐ ──view──► whoever serves clients here
                     ◄──HEARTBEAT── │ BinaryStarPeer │ ◄──Vote── each request of a client
    an operator      ──ASK, SWITCH─►└────────────────┘

The table says what is done (`table.py`); here are the times. Three of them matter:

- The other counts as silent two heartbeats after its last word. A pause of our own is no evidence
  against it: its words are still unread then, so the two heartbeats begin again.
- We serve for a little less than two heartbeats after our own last word (`serves_until`). So when
  this process stands still and is woken, it answers nobody, before it has taken a single turn: it
  is suspended until the other has answered a word that it said after it woke, or is silent. As long
  as our words arrive, the other cannot have taken over before that.
- A server that has started waits for two heartbeats before clients can make it active.

Source: the Guide, chapter 4, "High-availability Pair (Binary Star Pattern)"; what is added to it is
in docs/protocols/binary-star.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, Final

from requite.engine import (
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
    failure,
    misplaced,
    no_switch,
    outdated,
    same_role,
)
from requite.protocols.binarystar.table import TABLE, Action, Event, State, heard, next_epoch
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote, view_on_wire
from requite.protocols.binarystar.wire import Ask, Refused, Switch, Word, decode, encode

DIALLED: Final = "dialled"
"""The place of connections to the other server that we have dialled; any other was accepted."""

CHANGED: Final = "changed"
"""The token under which a `PairView` is delivered whenever state, epoch or the peer's state have
changed."""

# Parts of a heartbeat. Turns come at least every quarter, so that a pause of half a heartbeat or
# more is noticed however the timers lie: a shorter one cannot hide a heartbeat of the other for two
# of them. And we stop to serve a quarter before the other may begin, for words that are late.
_TURN: Final = 0.25
_PAUSE: Final = 0.5
_MARGIN: Final = 0.25

# Who has hung up on us as often as this without a word is no server of a pair: the address is that
# of something else, a broker's for its clients for instance.
_JOINED_IN_VAIN_MAX: Final = 3


class BinaryStarPeer:
    """The engine. `instance` names the process: random, not 0, new at every start. `why_unheard`
    tells what keeps this server from being connected to the other, for people; "" if nothing does.

    `state`, `epoch` and `serves_until` may be read at any time: it serves as long as the clock is
    before the latter.
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
        self._number = 0  # of our last word
        self._spoke_at = -inf
        self._turn_at = -inf
        self._joined_in_vain = 0
        self._doubt = Doubt(instance, self._lease_s)
        self._links = PeerLinks(2 * policy.failover_s)
        self._other = Other(policy)
        self._told: tuple[State, int, State | None, bool] | None = None
        self._draining = False
        self._stopped = False
        self._stop_at = inf
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            Wake: self._nothing_but_time,
            Vote: self._voted,
            SwitchOver: self._switched_over,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._nothing_but_time,
            PeerWritable: self._nothing_but_time,
            Drain: self._drained,
        }
        self._commands: dict[type, Callable[[PeerLink, Any, float], None]] = {
            Word: self._heard,
            Switch: self._told_to_switch,
            Ask: self._asked_for_view,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        After `Drain` an active server lets the other take over, for as long as a fail-over takes at
        most; then `Stopped` follows.
        """
        refused: LocalViolation | None = None
        for event in events:
            handler = self._inputs.get(event.__class__)
            if handler is None:
                refused = refused or LocalViolation(f"a server of a pair has no use for {event!r}")
            elif not self._stopped:
                self._begin_turn(now)
                handler(event, now)
                self._end_turn(now)
        if refused is not None:
            raise refused
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`; before the first turn it has passed already."""
        if self._stopped:
            return None
        turn_at = self._turn_at + _TURN * self.policy.heartbeat_s
        return min(turn_at, self._spoke_at + self.policy.heartbeat_s, self._stop_at)

    def snapshot(self) -> SimpleNamespace:
        """Return the state, the number of connections, and the last message of the other server."""
        return SimpleNamespace(
            state=self.state,
            epoch=self.epoch,
            links=len(self._links),
            word=self._other.word,
            stopped=self._stopped,
        )

    # --- what others may read ---------------------------------------------------------------------
    def view(self, now: float) -> PairView:
        """Return what this server knows."""
        other = self._other
        # What the other has said while this process stood still is not read yet.
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
        state = State.SUSPENDED if is_stalled else self.state  # as the next turn will find
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
                self._speak(now)

    def _end_turn(self, now: float) -> None:
        if now >= self._spoke_at + self.policy.heartbeat_s:
            self._speak(now)
        for peer in self._links.take_silent(now):
            self._out.append(Disconnect(peer, "silent for too long"))
        self._maybe_tell(now)
        if self._draining and (self.state is not State.RESIGNED or now >= self._stop_at):
            self._stop()

    def _nothing_but_time(self, _event: Input, _now: float) -> None:
        """Do what is due at the end of the turn, as in every turn."""

    def _drained(self, _event: Drain, now: float) -> None:
        if not self._draining and not self._other.is_silent(now):
            self._apply(Event.SWITCH, now)
        self._draining = True
        self._stop_at = min(self._stop_at, now + self.policy.failover_s)

    def _stop(self) -> None:
        self.end()
        self._out.append(Stopped())

    def end(self) -> None:
        """Serve nobody, and do nothing any more: the process goes."""
        self._stopped = True
        self.serves_until = -inf

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        is_dialled = event.place == DIALLED
        outdone = self._links.add(event.peer, is_dialled, now)
        if outdone is not None:
            self._out.append(Disconnect(outdone, "too many connections"))
        if is_dialled:
            # Somebody is there. What we say now he may act upon, so we must not become something
            # else before he could answer.
            self._joined_in_vain += 1
            if self._joined_in_vain <= _JOINED_IN_VAIN_MAX:
                self._other.excuse(now)
            self._speak(now)

    def _lost(self, event: PeerLost, _now: float) -> None:
        self._links.remove(event.peer)

    def _received(self, event: Received, now: float) -> None:
        link = self._links.find(event.peer)
        if link is None:
            return
        for message in event.messages:
            if not self._obey(link, message, now):
                return

    def _obey(self, link: PeerLink, message: Message, now: float) -> bool:
        """Do what a message says; tell whether the connection still stands."""
        try:
            command = decode(message)
            answer = self._commands.get(command.__class__)
            if answer is None:
                raise RemoteViolation(f"nobody asked for {command.__class__.__name__}")
        except RemoteViolation as violation:
            self._refuse(link, misplaced(str(violation)))
            return False
        link.heard_at = now
        answer(link, command, now)
        return self._links.find(link.peer) is link

    def _refuse(self, link: PeerLink, why: str) -> None:
        """Close the connection of somebody who does not belong here."""
        self._links.remove(link.peer)
        self._out.append(Warn("pair link refused", why))
        self._out.append(Disconnect(link.peer, why))

    # --- what the other server says ---------------------------------------------------------------
    def _heard(self, link: PeerLink, word: Word, now: float) -> None:
        if word.role is self.policy.role:
            self._conflict(link, now)
            return
        link.is_peer = True
        link.instance = word.instance
        is_new = self._other.is_new(word)
        is_sudden = is_new and self._other.word is not None and not self._other.is_silent(now)
        self._joined_in_vain = 0
        if not self._other.note(word, now):
            return
        if is_sudden:
            self._out.append(Warn("new peer process", another_process(word.role)))
        if is_new:
            for peer in self._links.take_outdated(word):
                self._out.append(Disconnect(peer, "the other server has been started anew"))
        self._learn(word, now)
        if is_new or word.wants_answer:
            self._speak(now)

    def _conflict(self, link: PeerLink, now: float) -> None:
        """The peer has our role: whoever of the two has just started gives up."""
        why = same_role(self.policy.role)
        if self.state in (State.PRIMARY, State.BACKUP):
            self._fail(why, now)
        self._out.append(Send(link.peer, encode(self._own_word())))
        self._refuse(link, why)

    def _learn(self, word: Word, now: float) -> None:
        """Put a word to the table, beside our own epoch; then see to the epoch."""
        event = heard(word.state, word.epoch, self.epoch)
        if event is None or not self._is_news(event, word, now):
            return
        self._apply(event, now)
        if self.state in (State.PRIMARY, State.BACKUP, State.PASSIVE):
            self.epoch = max(self.epoch, word.epoch)
        elif self.state is State.ACTIVE and word.epoch > self.epoch:
            self._reign(now)  # we have been started anew, and knew none of the epochs before
        elif self.state is State.ACTIVE and event is Event.OLDER_ACTIVE:
            self._speak(now)  # it shall hear of us soon: each of us has clients

    def _is_news(self, event: Event, word: Word, now: float) -> bool:
        """Whether a word can be taken at its face. After a pause of ours only an answer can, to
        something that we have said since. Any other makes us follow at most, and never serve."""
        if not self._doubt.is_there or self._doubt.is_settled_by(word, now):
            return True
        step = TABLE.get((self.state, event))
        return step is not None and step[1] is Action.FOLLOW

    # --- what clients and operators want ----------------------------------------------------------
    def _voted(self, _event: Vote, now: float) -> None:
        if not self._draining:
            is_silent = self._other.is_silent(now)
            self._apply(Event.CLIENT_VOTE if is_silent else Event.CLIENT_REQUEST, now)

    def _switched_over(self, _event: SwitchOver, now: float) -> None:
        if reason := self.objection(now):
            self._out.append(Warn("cannot switch", reason))
        else:
            self._apply(self._switch_event(now), now)

    def _told_to_switch(self, link: PeerLink, switch: Switch, now: float) -> None:
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
            self._asked_for_view(link, Ask(), now)

    def _asked_for_view(self, link: PeerLink, _ask: Ask, now: float) -> None:
        view = view_on_wire(self.view(now), self.policy.heartbeat_ms)
        self._out.append(Send(link.peer, encode(view)))

    # --- steps ------------------------------------------------------------------------------------
    def _apply(self, event: Event, now: float) -> None:
        """Take the step that the table has for an event, if it has one."""
        step = TABLE.get((self.state, event))
        if step is None:
            return
        state, action = step
        if action is Action.TAKE_OVER and self._draining:
            return  # it would be gone in the same moment, and the other wait for it
        match action:
            case Action.ASK:
                self._say(encode(Switch(self.epoch)))
                return
            case Action.FAIL:
                self._fail(failure(event), now)
                return
            case Action.FOLLOW:
                self.epoch = max(self.epoch, self._other.epoch)
        self.state = state
        if action is Action.TAKE_OVER:
            self._reign(now)
        else:
            self._speak(now)
            self._maybe_tell(now)

    def _reign(self, now: float) -> None:
        """Begin a new epoch."""
        self.epoch = next_epoch(self.policy.role, max(self.epoch, self._other.epoch))
        self._speak(now)
        self._maybe_tell(now)

    def _fail(self, trouble: str, now: float) -> None:
        self.state = State.FAILED
        self.trouble = trouble
        self._out.append(Warn("pair failed", trouble))
        self._speak(now)
        self._maybe_tell(now)

    # --- what we say ------------------------------------------------------------------------------
    def _speak(self, now: float) -> None:
        """Tell the other server what we are. An active one may serve for a while after that."""
        self._number += 1
        self._spoke_at = now
        self.serves_until = now + self._lease_s if self.state is State.ACTIVE else -inf
        self._doubt.note_own(self._number, now)
        self._say(encode(self._own_word()))

    def _own_word(self) -> Word:
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

    def _say(self, message: Message) -> None:
        for peer in self._links.to_peer():
            self._out.append(Send(peer, message))

    def _maybe_tell(self, now: float) -> None:
        """Deliver a view if there is news in it."""
        other = self._other
        news = (self.state, self.epoch, other.state, other.is_silent(now))
        if news == self._told:
            return
        if self.policy.notes and (self._told is None or news[:2] != self._told[:2]):
            self._out.append(Note("became", {"state": self.state.name, "epoch": self.epoch}))
        self._told = news
        self._out.append(Deliver(CHANGED, self.view(now)))
