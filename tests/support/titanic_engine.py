"""Titanic's engine with virtual time; the test is its clients, its services and its disk.

    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[-1], b"ho")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]

The disk is a dict: what is stored is there at once, unless the test sets `holds` or `refuses`. A
service is there once `mmi.service` was answered, which the bench does by itself (`there`,
`silent`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from requite.engine import (
    Cancel,
    Drain,
    Effect,
    Finished,
    Input,
    Load,
    Loaded,
    LoadFailed,
    Note,
    Stopped,
    Store,
    Stored,
    StoreFailed,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError, CallTimeout, LogCorrupt, StorageError
from requite.protocols.titanic.engine import TitanicEngine
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.requests import Recovered
from requite.protocols.titanic.wire import MMI_SERVICE, REQUEST
from requite.request import Reply


class Spot:
    """A place on the bench's disk."""

    def __init__(self, number: int) -> None:
        self.number = number


class TitanicBench:
    """One engine. `calls` are the requests that it sends to services, `asked` its questions for
    services, `cancelled` what it takes back."""

    def __init__(
        self,
        *,
        recovered: Recovered | None = None,
        records: dict[Any, bytes] | None = None,
        at: float = 100.0,
        **policy: Any,
    ) -> None:
        self.now = at
        self.there = True
        self.silent = False
        self.holds = False
        self.refuses: StorageError | None = None
        self.records: dict[Any, bytes] = records or {}
        self.damaged: set[Spot] = set()
        self.held: list[Store] = []
        self.stores: list[Store] = []
        self.answers: dict[Any, list[bytes]] = {}
        self.calls: list[Submit] = []
        self.asked: list[bytes] = []
        self.replicas: list[Submit] = []
        self.cancelled: list[Any] = []
        self.warnings: list[str] = []
        self.notes: list[Note] = []
        self.stopped = False
        self._tokens = count(1)
        self._numbers = count()
        uuids = count(1)
        self.engine = TitanicEngine(
            TitanicPolicy(**policy),
            rng=lambda: 0.0,
            new_uuid=lambda: next(uuids).to_bytes(16, "big"),
            recovered=recovered,
            epoch_s=1_700_000_000.0,
        )
        self.wait(0.0)

    # --- clients ----------------------------------------------------------------------------------
    def ask(self, service: str, *frames: bytes, key: bytes = b"") -> list[bytes]:
        """Ask, and return the answer's frames."""
        token = self.begin(service, *frames, key=key)
        return self.answers[token]

    def begin(self, service: str, *frames: bytes, key: bytes = b"") -> int:
        """Ask; the answer may be in `answers` later, under the token that is returned."""
        token = next(self._tokens)
        self.feed(Asked(token, service, frames, key))
        return token

    def submitted(self, service: bytes, *body: bytes, key: bytes = b"") -> bytes:
        """Submit a request, and return its ticket."""
        status, ticket = self.ask(REQUEST, service, *body, key=key)
        assert status == b"200"
        return ticket

    # --- services ---------------------------------------------------------------------------------
    def reply(self, call: Submit, *frames: bytes) -> None:
        """A service answers."""
        self.feed(Answered(call.token, Reply(frames)))

    def fail(self, call: Submit, error: CallError) -> None:
        """A call ends with an error."""
        self.feed(Answered(call.token, error))

    # --- the disk and the clock -------------------------------------------------------------------
    def release(self) -> None:
        """What was held is stored now."""
        held, self.held = self.held, []
        for effect in held:
            self._store(effect)

    def wait(self, seconds: float) -> None:
        """Let time pass, with a `Wake` whenever the engine wants one."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = until

    def drain(self) -> None:
        self.feed(Drain())

    def feed(self, *events: Input) -> None:
        """Feed inputs, and perform what comes of them."""
        self._perform(self.engine.handle(events, self.now))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Finished(token, frames):
                    assert token not in self.answers, "answered twice"
                    self.answers[token] = list(frames)
                case Submit():
                    self._submit(effect)
                case Store() if self.holds:
                    self.held.append(effect)
                case Store():
                    self._store(effect)
                case Load(ticket, position):
                    self._load(ticket, position)
                case Cancel(token):
                    self.cancelled.append(token)
                case Warn(_, text):
                    self.warnings.append(text)
                case Note():
                    self.notes.append(effect)
                case Stopped():
                    self.stopped = True
                case _:
                    raise AssertionError(effect)

    def _submit(self, effect: Submit) -> None:
        if effect.service == MMI_SERVICE:
            self.asked.append(effect.frames[0])
            outcome = Reply([b"200" if self.there else b"404"])
            late = CallTimeout("the broker does not answer")
            self.feed(Answered(effect.token, late if self.silent else outcome))
        elif effect.service == "titanic.replicate":
            self.replicas.append(effect)
        else:
            self.calls.append(effect)

    def _store(self, effect: Store) -> None:
        self.stores.append(effect)
        if self.refuses is not None:
            self.feed(StoreFailed(effect.ticket, self.refuses))
            return
        spots = [Spot(next(self._numbers)) for _ in effect.records]
        self.records |= dict(zip(spots, effect.records, strict=True))
        self.feed(Stored(effect.ticket, spots))

    def _load(self, ticket: Any, spot: Spot) -> None:
        if spot in self.damaged:
            self.feed(LoadFailed(ticket, LogCorrupt("a bit turned round")))
        else:
            self.feed(Loaded(ticket, self.records[spot]))

    def bodies(self) -> list[Sequence[bytes]]:
        """What was sent to services."""
        return [call.frames for call in self.calls]
