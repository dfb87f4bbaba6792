"""Which peers are served next while more messages arrive than can be handled.

Messages of some peers start work (`ReadInTurn`), those of others finish it. If all were handled as
they arrive, an overloaded server would start ever more work, and finish too little of it in time.
So work is started as fast as it is finished, and at a moderate rate while there is nothing else to
do, so that work which takes long does not hold up the rest. Beyond a burst, the messages of a read
wait here, and the connection is not read from meanwhile: TCP slows its peer down, which costs this
process nothing.

Peers take turns by fair queueing (RFC 8290, section 4.2), with two differences:

- The quantum is large. Requests wait for their turn in buffers of the system and of the peer, too,
  so with a small quantum those of all peers would be equally late. While a peer uses its quantum,
  its requests are handled soon. Those that it sent before are late, and cost little: the engine is
  told how long they may have waited, and refuses them (`Refused`). The quantum is chosen so that a
  round takes a few seconds, unless the refusals at the beginning of each turn would take too much
  of it.
- A peer whose messages are late begins only when there is room for half a burst, so that peers who
  are served already stay in time.

A peer that sends much less than its share does not wait for the turns of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

from requite.engine import Received
from requite.framing.base import Message
from requite.shell.link import Link, Pause, Share

_STARTED_PER_IDLE_S: Final = 16_000  # beyond what is finished, while there is nothing else to do
_STARTED_MIN: Final = 16  # in a turn that takes no time
_REVIEW_EVERY_S: Final = 0.01  # whether there was nothing to do for most of the time
_WAITED_MAX: Final = 64  # handled per turn of the loop, so that those which finish work come soon
_ROUND_S: Final = 10.0  # what a round may take in which each peer uses its quantum
_TURN_S_MAX: Final = 4.0  # what the turn of one peer may take
_QUANTUM_MIN: Final = 64
_QUANTUM_FIRST: Final = 1024  # while the rate is unknown
_REFUSED_PER_STARTED: Final = 16  # messages that cost as much as one whose work is finished
_WORK_PER_REFUSAL: Final = 32  # how much more of a turn is work than is refusals
_RECENT: Final = 1 / 2  # the weight of the newest turn
_LATE_S: Final = 0.1
_LEARN_EVERY_S: Final = 0.5  # the rate at which work is started, and the number of peers
_LITTLE_MAX: Final = 16  # messages within that time
_LITTLE_SHARE: Final = 1 / 4  # of what each peer could send
_FIRST: Final = -1  # the round of peers that send little
_REPORT_EVERY_S_MIN: Final = 0.005


class FairQueue:
    """The peers of a host that are read in turn. `burst`: how many messages may start work beyond
    those that finish it. `feed` gives the engine an input, `resume` reads from a link again.

    Its length is the number of links whose messages wait.
    """

    __slots__ = (
        "_begun",
        "_burst",
        "_clock",
        "_feed",
        "_half",
        "_held",
        "_idle_s",
        "_idle_since",
        "_learnt_at",
        "_line",
        "_little",
        "_most",
        "_numbers",
        "_quantum",
        "_refilled",
        "_refused",
        "_report_at",
        "_resume",
        "_reviewed_at",
        "_room",
        "_round",
        "_started",
        "_turn",
        "_unfinished",
        "_unfinished_before",
    )

    def __init__(
        self,
        burst: int,
        clock: Callable[[], float],
        feed: Callable[[Received], None],
        resume: Callable[[Link, Pause], None],
    ) -> None:
        self._burst = burst
        self._half = burst // 2
        self._clock = clock
        self._feed = feed
        self._resume = resume
        self._line: list[tuple[tuple[int, int], Link]] = []  # a heap of those whose messages wait
        self._held: list[Link] = []  # those of them that are still read from, until the next turn
        self._numbers = count()
        self._round = 0
        self._turn = 0  # of the loop
        self._idle_since = inf  # when a turn began since which nothing was handled
        self._idle_s = 0.0  # since the last review
        self._reviewed_at = clock()
        self._room = burst  # messages that may start work now
        self._begun = 0  # messages that may have started work since room was last made
        self._unfinished: Callable[[], int] = lambda: 0  # what the engine has not finished
        self._unfinished_before = 0
        self._refilled = 0  # the turn in which room was last made
        self._report_at = inf  # when the next peer is reported alive
        self._quantum = _QUANTUM_FIRST
        self._little = _LITTLE_MAX
        self._learnt_at = -inf
        self._started = 0  # messages of peers that waited, since then
        self._most = 1  # peers that waited at a time, since then
        self._refused = 0.0  # messages in a turn, on average

    def __len__(self) -> int:
        return len(self._line)

    def add(self, link: Link, report_s: float, unfinished: Callable[[], int]) -> None:
        """Read from a link in turn from now on. While it waits, report it alive each `report_s`.
        `unfinished` returns how much of the work that was started is not finished."""
        self._unfinished = unfinished
        if link.share is not None:
            link.share.report_s = report_s
        elif not link.ended:
            link.share = Share(report_s)

    def release(self, link: Link) -> None:
        """Read from a link freely from now on, and handle what waits of it."""
        share, link.share = link.share, None
        if share is not None and share.messages:
            self._feed(Received(link, share.messages))
            self._resume(link, Pause.TURN)

    def received(self, link: Link, messages: Sequence[Message]) -> None:
        """Handle the messages of a read now or later."""
        self._idle_since = inf
        share = link.share
        if share is not None:
            self._received_in_turn(link, share, messages)
            return
        self._feed(Received(link, messages))
        if link.share is not None:  # by its first messages
            self._use_room(len(messages))

    def refused(self, link: Link, refused: int) -> None:
        """Count messages of a link that have started no work by what they cost."""
        free = refused - refused // _REFUSED_PER_STARTED
        self._use_room(-free)
        self._started -= free
        if (share := link.share) is not None:
            share.used -= free
            share.refused += refused

    def begin_turn(self) -> bool:
        """Begin a turn of the loop: handle messages that wait, as far as there is room. Return
        whether any waited."""
        self._turn += 1
        if not self._line:
            return False
        now = self._clock()
        if now == self._idle_since:  # the clock of a simulation stands still
            self._room += _STARTED_MIN
        self._idle_s += max(0.0, now - self._idle_since)
        self._idle_since = now
        self._most = max(self._most, len(self._line))
        if now - self._learnt_at >= _LEARN_EVERY_S:
            self._learn(now)
        self._make_room(now)
        served = 0
        while self._line and self._room > 0 and served < _WAITED_MAX:
            turn, link = self._line[0]
            share = link.share
            if share is not None and turn[0] != _FIRST:
                if self._room <= self._half and now - share.arrived_after > _LATE_S:
                    break
                self._round = turn[0]
            heappop(self._line)
            if share is not None:
                served += len(share.messages)
                self._serve(link, share)
        for link in self._held:
            if link.share is not None and link.share.messages:
                link.pause(Pause.TURN)
        self._held.clear()
        if now >= self._report_at:
            self._report(now)
        return True

    def _received_in_turn(self, link: Link, share: Share, messages: Sequence[Message]) -> None:
        if self._room <= self._half and self._refilled != self._turn:
            self._make_room(self._clock())
        if share.messages:  # more that was read in the same turn, or before it was paused
            share.messages = [*share.messages, *messages]
            link.pause(Pause.TURN)
        elif messages and (self._room <= 0 or self._line):
            self._hold(link, share, messages)
        elif share.unread_since:
            behind_s = self._clock() - share.unread_since
            if not (link.stream.read_was_full and link.stream.has_unread):
                share.unread_since = 0.0
            self._start(link, share, messages, behind_s)
        else:
            self._use_room(len(messages))
            self._feed(Received(link, messages))

    def _start(
        self, link: Link, share: Share, messages: Sequence[Message], behind_s: float
    ) -> None:
        started = len(messages)
        self._idle_since = inf
        self._use_room(started)
        self._started += started
        share.used += started
        self._feed(Received(link, messages, behind_s))

    def _use_room(self, count: int) -> None:
        self._room -= count
        self._begun += count

    def _make_room(self, now: float) -> None:
        """Make room for as much as was finished since the last time, and for more if there was
        nothing else to do for most of the time.

        The engine knows what it has not finished. Messages do not tell: some work ends without one,
        or with many.
        """
        unfinished = self._unfinished()
        self._room += self._begun + self._unfinished_before - unfinished
        self._unfinished_before, self._begun = unfinished, 0
        if now - self._reviewed_at >= _REVIEW_EVERY_S:
            if self._idle_s > (now - self._reviewed_at) / 2:
                self._room += int(self._idle_s * _STARTED_PER_IDLE_S)
            self._reviewed_at, self._idle_s = now, 0.0
        if self._room > self._burst:
            self._room = self._burst
        self._refilled = self._turn

    # --- waiting ----------------------------------------------------------------------------------
    def _hold(self, link: Link, share: Share, messages: Sequence[Message]) -> None:
        now = self._clock()
        was_full = link.stream.read_was_full
        share.messages = messages
        share.arrived_after = share.unread_since or now
        if not (was_full and share.unread_since):
            share.unread_since = now
        if now - share.recent_since >= _LEARN_EVERY_S:
            share.recent_since, share.recent = now, 0
        share.recent += len(messages)
        heappush(self._line, (self._turn_of(share), link))
        share.report_at = now + share.report_s
        self._report_at = min(self._report_at, share.report_at)
        # It may be its turn soon: to pause and to resume takes several system calls.
        if was_full:
            link.pause(Pause.TURN)
        else:
            self._held.append(link)

    def _turn_of(self, share: Share) -> tuple[int, int]:
        """Return the round of a peer, and its place in it."""
        if share.recent <= self._little:
            return _FIRST, next(self._numbers)
        number = share.turn[0]
        if number < self._round - 1:  # in its turn, it may have had nothing to read for a moment
            share.turn = self._round, next(self._numbers)
            share.used = share.refused = 0
        elif share.used >= self._quantum:
            self._refused += (share.refused - self._refused) * _RECENT
            rounds, share.used = divmod(share.used, self._quantum)
            share.turn = number + rounds, next(self._numbers)
            share.refused = 0
        return share.turn

    def _serve(self, link: Link, share: Share) -> None:
        messages, share.messages = share.messages, ()
        if not (link.paused and link.stream.has_unread):  # otherwise, the next read tells
            share.unread_since = 0.0
        self._start(link, share, messages, self._clock() - share.arrived_after)
        if link.paused:
            self._resume(link, Pause.TURN)

    def _learn(self, now: float) -> None:
        """Choose the quantum, and what is little, by what was started and who waited."""
        seconds = now - self._learnt_at
        if seconds < 2 * _LEARN_EVERY_S:  # otherwise, nobody waited most of the time
            rate = self._started / seconds
            share_per_s = rate / self._most
            work = self._refused / _REFUSED_PER_STARTED * _WORK_PER_REFUSAL
            quantum = min(max(share_per_s * _ROUND_S, work), rate * _TURN_S_MAX)
            self._quantum = max(int(quantum), _QUANTUM_MIN)
            self._little = min(int(share_per_s * _LEARN_EVERY_S * _LITTLE_SHARE), _LITTLE_MAX)
        self._learnt_at = now
        self._started = 0
        self._most = 1

    def _report(self, now: float) -> None:
        """Report peers alive whose messages have waited for long enough."""
        next_at = inf
        for _, link in [*self._line]:
            if (share := link.share) is None:
                continue
            if share.report_at <= now:
                share.report_at = now + share.report_s
                self._feed(Received(link, ()))
            next_at = min(next_at, share.report_at)
        self._report_at = max(next_at, now + _REPORT_EVERY_S_MIN)
