"""A host whose peers are read in turn, for tests of its queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.shell.fakes import FakeStream, HostBench

from requite.engine import Effect, PeerJoined, ReadInTurn, Received, Refused
from requite.shell.host import Link, LinkLimits

TURN_S: Final = 0.01


class Bench(HostBench):
    """A host whose links are read in turn, but those whose name begins with `w`."""

    def __init__(self, burst: int = 1) -> None:
        super().__init__(LinkLimits(burst=burst))
        self.engine.script = self.script
        self.refuses_waited = False
        self.pending = 0
        self.finishes_at_once = False

    def unfinished(self) -> int:
        return 0 if self.finishes_at_once else self.pending

    def script(self, event: Any) -> Iterable[Effect]:
        if isinstance(event, PeerJoined) and not event.identity.startswith(b"w"):
            yield ReadInTurn(event.peer, 0.5, self.unfinished)
        if not isinstance(event, Received):
            return
        if event.behind_s and self.refuses_waited:
            yield Refused(event.peer, len(event.messages))
        elif event.messages[:1] == [[b"done"]]:
            self.pending -= len(event.messages)
        elif event.messages[:1] != [[b"heartbeat"]]:
            self.pending += len(event.messages)

    def join(self, name: str) -> tuple[Link, FakeStream]:
        link, stream = self.open(name)
        self.engine.inputs.clear()
        return link, stream

    def batches(self) -> list[Received]:
        """Return the batches since the last call, without empty ones."""
        batches = [e for e in self.engine.inputs if isinstance(e, Received) and e.messages]
        self.engine.inputs.clear()
        return batches

    def send(self, link: Link, count: int, text: bytes = b"go", *, full: bool = False) -> None:
        """Read messages of a link; `full`: there may be more to read."""
        stream: Any = link.stream
        stream.read_was_full = full
        self.host.received(link, (text + b"\n") * count)

    def turn(self, seconds: float = TURN_S) -> None:
        """Pass to the next turn of the loop. By default, 160 messages may start in it if nothing
        was handled since the last turn."""
        self.now += seconds
        assert self.flushes_wanted, "the host does not want a flush"
        self.flushes_wanted = 0
        self.host.flush()
