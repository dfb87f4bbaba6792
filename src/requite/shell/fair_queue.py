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
from requite.shell.link import Link, Pause
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


class Place:
    """A peer that is read in turn. `messages` are those of its last read, while they wait.

    They arrived at `arrived_after` or later, and unread ones at `unread_since` or later (0: all was
    read, and more is read as soon as it arrives). `used` counts messages, in rounds of a quantum;
    `turn` is the round and a number. `recent` counts those that had to wait since `recent_since`.
    """

    __slots__ = (
        "arrived_after",
        "messages",
        "recent",
        "recent_since",
        "turn",
        "unread_since",
        "used",
    )

    def __init__(self) -> None:
        self.messages: Sequence[Message] = ()
        self.arrived_after = 0.0
        self.unread_since = 0.0
        self.used = 0
        self.recent = 0
        self.recent_since = 0.0
        self.turn = (_FIRST, 0)


class FairQueue:
    """The peers of a host that are read in turn. `burst`: how many messages may start work beyond
    those that finish it. `feed` gives the engine an input, `resume` reads from a link again.

    `places` are the peers, and `line`, a heap, those whose messages wait.
    """

    __slots__ = (
        "_burst",
        "_clock",
        "_feed",
        "_finished",
        "_numbers",
        "_reassure_at",
        "_resume",
        "_room",
        "_round",
        "line",
        "places",
    )

    def __init__(
        self,
        burst: int,
        clock: Callable[[], float],
        feed: Callable[[Received], None],
        resume: Callable[[Link, Pause], None],
    ) -> None:
        self._burst = burst
        self._clock = clock
        self._feed = feed
        self._resume = resume
        self.places: dict[Link, Place] = {}
        self.line: list[tuple[tuple[int, int], Link]] = []
        self._numbers = count()
        self._room = burst  # messages that may start work now
        self._round = 0
        self._finished = 0  # messages of other peers in this turn of the loop
        self._reassure_at = 0.0

    def __len__(self) -> int:
        return len(self.places) + len(self.line)

    def add(self, link: Link) -> None:
        """Read from a link in turn from now on."""
        if not link.ended:
            self.places[link] = Place()

    def forget(self, link: Link) -> None:
        """Remove a link that has ended, and the messages that wait."""
        self.places.pop(link, None)

    def received(self, link: Link, messages: Sequence[Message], size: int) -> None:
        """Handle the messages of a read of `size` bytes now or later."""
        place = self.places.get(link)
        if place is None:
            self._finished += len(messages)
            self._feed(Received(link, messages))
            return
        if place.messages:  # the stream had read them before it was paused
            place.messages = [*place.messages, *messages]
        elif messages and (self._room <= 0 or self.line):
            self._hold(link, place, messages, size)
        else:
            self._room -= len(messages)
            behind_s = 0.0
            if place.unread_since:
                behind_s = self._clock() - place.unread_since
                if size < READ_SIZE or not link.stream.has_unread:
                    place.unread_since = 0.0
            self._feed(Received(link, messages, behind_s))

    def refused(self, link: Link, refused: int) -> None:
        """Count messages of a link that have started no work by what they cost."""
        free = refused - refused // _REFUSED_PER_STARTED
        self._room += free
        if (place := self.places.get(link)) is not None:
            place.used -= free

    def go_on(self) -> None:
        """Begin a turn of the loop: handle messages that wait, as far as there is room."""
        finished, self._finished = self._finished, 0
        # `min` and `max` would take 0.2 us of each turn.
        room = self._room + (finished if finished > _STARTED_MIN else _STARTED_MIN)
        self._room = room if room < self._burst else self._burst
        if not self.line:
            return
        now = self._clock()
        served = 0
        while self.line and self._room > 0 and served < _WAITED_MAX:
            turn, link = self.line[0]
            place = self.places.get(link)
            if place is not None and turn[0] != _FIRST:
                if self._room <= self._burst // 2 and now - place.arrived_after > _LATE_S:
                    break
                self._round = turn[0]
            heappop(self.line)
            if place is not None:
                served += len(place.messages)
                self._serve(link, place)
        if now >= self._reassure_at:
            self._reassure_at = now + _REASSURE_EVERY_S
            for _, link in [*self.line]:
                if not link.ended:
                    self._feed(Received(link, ()))

    def _hold(self, link: Link, place: Place, messages: Sequence[Message], size: int) -> None:
        now = self._clock()
        place.messages = messages
        place.arrived_after = place.unread_since or now
        if size < READ_SIZE or not place.unread_since:
            place.unread_since = now
        if now - place.recent_since >= _LITTLE_S:
            place.recent_since, place.recent = now, 0
        place.recent += len(messages)
        place.used = max(place.used, self._round * _QUANTUM)
        if place.recent <= _LITTLE:
            turn = _FIRST, next(self._numbers)
        else:
            if place.used // _QUANTUM != place.turn[0]:
                place.turn = place.used // _QUANTUM, next(self._numbers)
            turn = place.turn
        heappush(self.line, (turn, link))
        link.pause(Pause.TURN)

    def _serve(self, link: Link, place: Place) -> None:
        messages, place.messages = place.messages, ()
        self._room -= len(messages)
        place.used += len(messages)
        if not link.stream.has_unread:  # otherwise, the next read tells
            place.unread_since = 0.0
        self._feed(Received(link, messages, self._clock() - place.arrived_after))
        self._resume(link, Pause.TURN)
