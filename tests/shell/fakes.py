"""A test bench for hosts: scripted engine, simple framing, fake streams and a manual clock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from requite.engine import Effect, Input, Received, Send
from requite.errors import RemoteViolation
from requite.principal import Credential
from requite.shell.host import Host, Link, LinkLimits
from requite.transport.base import Owner


class LineFraming:
    """A framing of one message per line, with frames separated by blanks.

    The peer's first line is its name. A line that starts with `!` violates the protocol. `?` is
    answered with `yes`. The line `.` is a farewell, and is answered with `.`; the framing also
    sends
    `.` before it closes.
    """

    peer_credential: Credential | None = None
    login: None = None  # no passwords
    peer_features: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.ready = False
        self.refusal = ""
        self.peer_identity = b""
        self.farewell = ""
        self._buffer = b""
        self._output = b""
        self._said_farewell = False

    def opening(self) -> bytes:
        return b"hello\n"

    def receive(self, chunk: bytes) -> list[list[bytes]]:
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [message for line in lines if (message := self._line(line)) is not None]

    def _line(self, line: bytes) -> list[bytes] | None:
        if line.startswith(b"!"):
            self._output += b"bye\n"
            self._said_farewell = True
            raise RemoteViolation(f"no line starts like {line!r}")
        if not self.ready:
            self.ready = True
            self.peer_identity = line
            return None
        if line == b"?":
            self._output += b"yes\n"
            return None
        if line == b"." or self.farewell:
            self._output += self.closing()
            self.farewell = "the peer said farewell"
            return None
        return line.split(b" ")

    def refuse(self, _status: str, /) -> None:
        """Do nothing: the protocol has no words for it."""

    def output(self) -> bytes:
        output, self._output = self._output, b""
        return output

    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        if self._said_farewell:
            return 0
        out.append(b" ".join(message) + b"\n")
        return len(out[-1])

    def closing(self) -> bytes:
        if self._said_farewell or not self.ready:
            return b""
        self._said_farewell = True
        return b".\n"

    @property
    def mid_message(self) -> bool:
        return bool(self._buffer)

    @property
    def partial_size(self) -> int:
        return len(self._buffer)

    def at_end(self) -> None:
        if self._buffer:
            raise RemoteViolation("hung up in the middle of a line")


class FakeStream:
    """A stream that records all calls in order."""

    def __init__(self, name: str = "fake") -> None:
        self.peer_name = name
        self.peer_credential: Credential | None = None
        self.has_unread = False
        self.read_was_full = False
        self.calls: list[Any] = []
        self.owner: Owner | None = None
        self.link: Any = None
        self.on_write: Callable[[], None] | None = None

    def start(self, owner: Owner, link: object) -> None:
        self.owner, self.link = owner, link
        self.calls.append("start")

    def write(self, data: bytes) -> None:
        self.calls.append(data)
        if self.on_write is not None:
            self.on_write()

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    @property
    def written(self) -> bytes:
        return b"".join(call for call in self.calls if isinstance(call, bytes))


class ScriptedEngine:
    """An engine that records its inputs. `script` returns the effects of an input."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.script: Callable[[Any], Iterable[Effect]] = lambda _event: ()
        self.at: float | None = None

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        self.inputs += events
        return [effect for event in events for effect in self.script(event)]

    def deadline(self) -> float | None:
        return self.at

    def snapshot(self) -> None:
        return None

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.inputs]

    def messages(self) -> list[Any]:
        return [event.messages for event in self.inputs if isinstance(event, Received)]


class HostBench:
    """A host under test. Call `host.flush()` for the flushes that it requests."""

    def __init__(self, limits: LinkLimits | None = None, **uses: Any) -> None:
        self.now = 100.0
        self.engine = ScriptedEngine()
        self.wakes: list[float] = []
        self.flushes_wanted = 0
        self.connects = 0
        self.told: list[Any] = []
        self.host = Host(
            self.engine,
            lambda: self.now,
            LineFraming,
            wake_at=self.wakes.append,
            want_flush=self._want_flush,
            connect=self._connect,
            ended=lambda link, reason: self.told.append(("ended", link.joined, reason)),
            released=lambda link: self.told.append(("released", link)),
            stopped=lambda: self.told.append("stopped"),
            deliver=lambda token, what: self.told.append(("deliver", token, what)),
            fail=lambda token, error: self.told.append(("fail", token, error)),
            abandon=lambda token, reason: self.told.append(("abandon", token, reason)),
            note=lambda note: self.told.append(note),
            flow=lambda is_free: self.told.append(("flow", is_free)),
            limits=limits or LinkLimits(),
            **uses,
        )

    def _want_flush(self) -> None:
        self.flushes_wanted += 1

    def _connect(self) -> None:
        self.connects += 1

    def open(
        self, name: str = "peer", *, accepted: bool = True, joined: bool = True
    ) -> tuple[Link, FakeStream]:
        stream = FakeStream(name)
        link = self.host.opened(stream, accepted=accepted)
        if joined:
            self.host.received(link, name.encode() + b"\n")
        return link, stream

    def tick(self, seconds: float) -> None:
        """Advance the clock, and fire the timer if it is due."""
        self.now += seconds
        if self.wakes and self.wakes[-1] <= self.now:
            self.host.wake()

    @property
    def armed_at(self) -> float:
        return self.wakes[-1] if self.wakes else inf


def warnings_of(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def echo(event: Any) -> list[Any]:
    """Return effects that send each received message back."""
    if isinstance(event, Received):
        return [Send(event.peer, message) for message in event.messages]
    return []
