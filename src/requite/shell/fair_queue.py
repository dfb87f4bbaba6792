"""Which peers are served next while more messages arrive than can be handled.

Messages of some peers start work (`ReadInTurn`), those of others finish it. If all were handled as
they arrive, an overloaded server would start ever more work, and finish too little of it in time.
So work is started as fast as it is finished. Beyond a burst, the messages of a read wait here, and
the connection is not read from meanwhile: TCP slows its peer down, which costs this process
nothing.

Peers take turns by fair queueing (RFC 8290, section 4.2), with two differences:

- The quantum is large. Requests wait for their turn in buffers of the system and of the peer, too,
  so with a small quantum those of all peers would be equally late. While a peer uses its quantum,
  its requests are handled soon. Those that it sent before are late, and cost little: the engine is
  told how long they may have waited, and refuses them (`Refused`).
- A peer whose messages are late begins only when there is room for half a burst, so that peers who
  are served already stay in time.

A peer that sends little does not wait for the turns of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from requite.engine import Received
from requite.framing.base import Message
from requite.shell.link import Link, Pause, Share
from requite.transport.sockets import READ_SIZE

_STARTED_MIN: Final = 16  # per turn of the loop, also if nothing is finished
_WAITED_MAX: Final = 64  # handled per turn of the loop, so that those which finish work come soon
_QUANTUM: Final = 8192
_REFUSED_PER_STARTED: Final = 16  # messages that cost as much as one whose work is finished
_LATE_S: Final = 0.1
_LITTLE: Final = 16  # messages in _LITTLE_S
_LITTLE_S: Final = 0.5
_FIRST: Final = -1  # the round of peers that send little
_REASSURE_EVERY_S: Final = 0.5


class FairQueue:
    """The peers of a host that are read in turn. `burst`: how many messages may start work beyond
    those that finish it. `feed` gives the engine an input, `resume` reads from a link again.

    `line`, a heap, has the peers whose messages wait. The host counts in `turn` the turns of its
    loop, and in `finished` the messages of other peers.
    """

    __slots__ = (
        "_burst",
        "_clock",
        "_feed",
        "_half",
        "_numbers",
        "_reassure_at",
        "_refilled",
        "_resume",
        "_room",
        "_round",
        "finished",
        "line",
        "turn",
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
        self.turn = 0
        self.finished = 0
        self.line: list[tuple[tuple[int, int], Link]] = []
        self._numbers = count()
        self._room = burst  # messages that may start work now
        self._refilled = 0  # the turn in which room was last made
        self._round = 0
        self._reassure_at = 0.0

    def __len__(self) -> int:
        return len(self.line)

    def add(self, link: Link) -> None:
        """Read from a link in turn from now on."""
        if not link.ended:
            link.share = Share()

    def received(self, link: Link, share: Share, messages: Sequence[Message], size: int) -> None:
        """Handle the messages of a read of `size` bytes now or later."""
        if self._room <= self._half and self._refilled != self.turn:
            self._make_room()
        if share.messages:  # the stream had read them before it was paused
            share.messages = [*share.messages, *messages]
        elif messages and (self._room <= 0 or self.line):
            self._hold(link, share, messages, size)
        elif share.unread_since:
            behind_s = self._clock() - share.unread_since
            if size < READ_SIZE or not link.stream.has_unread:
                share.unread_since = 0.0
            self._room -= len(messages)
            self._feed(Received(link, messages, behind_s))
        else:
            self._room -= len(messages)
            self._feed(Received(link, messages))

    def refused(self, link: Link, refused: int) -> None:
        """Count messages of a link that have started no work by what they cost."""
        free = refused - refused // _REFUSED_PER_STARTED
        self._room += free
        if (share := link.share) is not None:
            share.used -= free

    def go_on(self) -> None:
        """Begin a turn of the loop: handle messages that wait, as far as there is room."""
        self._make_room()
        now = self._clock()
        served = 0
        while self.line and self._room > 0 and served < _WAITED_MAX:
            turn, link = self.line[0]
            share = link.share
            if share is not None and turn[0] != _FIRST:
                if self._room <= self._half and now - share.arrived_after > _LATE_S:
                    break
                self._round = turn[0]
            heappop(self.line)
            if share is not None:
                served += len(share.messages)
                self._serve(link, share)
        if now >= self._reassure_at:
            self._reassure_at = now + _REASSURE_EVERY_S
            for _, link in [*self.line]:
                if not link.ended:
                    self._feed(Received(link, ()))

    def _make_room(self) -> None:
        """Count what was finished, and the turns that have passed, since the last time."""
        room = max(self.finished, _STARTED_MIN * (self.turn - self._refilled))
        self._room = min(self._burst, self._room + room)
        self._refilled = self.turn
        self.finished = 0

    def _hold(self, link: Link, share: Share, messages: Sequence[Message], size: int) -> None:
        now = self._clock()
        share.messages = messages
        share.arrived_after = share.unread_since or now
        if size < READ_SIZE or not share.unread_since:
            share.unread_since = now
        if now - share.recent_since >= _LITTLE_S:
            share.recent_since, share.recent = now, 0
        share.recent += len(messages)
        share.used = max(share.used, self._round * _QUANTUM)
        if share.recent <= _LITTLE:
            turn = _FIRST, next(self._numbers)
        else:
            if share.used // _QUANTUM != share.turn[0]:
                share.turn = share.used // _QUANTUM, next(self._numbers)
            turn = share.turn
        heappush(self.line, (turn, link))
        link.pause(Pause.TURN)

    def _serve(self, link: Link, share: Share) -> None:
        messages, share.messages = share.messages, ()
        self._room -= len(messages)
        share.used += len(messages)
        if not link.stream.has_unread:  # otherwise, the next read tells
            share.unread_since = 0.0
        self._feed(Received(link, messages, self._clock() - share.arrived_after))
        self._resume(link, Pause.TURN)
