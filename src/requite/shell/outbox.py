"""The output of a host's links: queued during a turn of the loop, and written at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from requite.engine import SendAll
from requite.shell.limiter import Limiter
from requite.shell.link import Link

# A larger output is written in portions of this size, until the stream pushes back: nobody counts
# what a stream buffers.
_WRITE_SIZE: Final = 1 << 20


class Outbox:
    """Queues and writes the output of links. What their streams do not accept, `limiter` limits;
    `flow` is called with whether none pushes back, when that changes.

    `dirty` are the links with output of this turn, and its length is the number of them. The host
    appends to it.
    """

    __slots__ = ("_flow", "_limiter", "_pushing_back", "dirty")

    def __init__(self, limiter: Limiter, flow: Callable[[bool], object]) -> None:
        self._limiter = limiter
        self._flow = flow
        self._pushing_back = 0  # how many links push back
        self.dirty: list[Link] = []

    def __len__(self) -> int:
        return len(self.dirty)

    def queue(self, link: Link, data: bytes) -> None:
        """Queue bytes."""
        link.out.append(data)
        link.size += len(data)
        if not link.dirty:
            link.dirty = True
            self.dirty.append(link)

    def send_all(self, effect: SendAll) -> None:
        """Queue messages."""
        link: Any = effect.peer  # the engine calls it Peer
        encode, out, size = link.encode, link.out, 0
        for message in effect.messages:
            size += encode(message, out)
        link.size += size
        if not link.dirty:
            link.dirty = True
            self.dirty.append(link)

    def write_out(self, *, now: bool) -> None:
        """Write the queued output, each link once; `now`: do not wait for the end of the loop
        iteration."""
        links, self.dirty = self.dirty, []
        for link in links:
            link.dirty = False
            if link.blocked:
                self._limiter.count_output(link)
            elif link.out:
                write = link.write_now if now else link.stream.write
                if link.size <= _WRITE_SIZE:  # inline: it saves a call per link and turn
                    write(link.take_output())
                else:
                    self.write(link, write)

    def write(self, link: Link, write: Callable[[bytes], None]) -> None:
        """Write the queued output of a link until its stream pushes back."""
        while link.out and not (link.blocked or link.ended):
            write(link.take_portion(_WRITE_SIZE))
        if link.out:
            self._limiter.count_output(link)
        else:
            self._limiter.output_sent(link)

    def press(self, link: Link) -> None:
        """Record that the stream of a link pushes back."""
        link.pushed_back = True
        self._pushing_back += 1
        if self._pushing_back == 1:
            self._flow(False)

    def release(self, link: Link) -> None:
        """Record that the stream of a link pushes back no more, or has ended."""
        if link.pushed_back:
            link.pushed_back = False
            self._pushing_back -= 1
            if not self._pushing_back:
                self._flow(True)
