"""Titanic's engine with virtual time; the test plays its clients, services and disk.

    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[-1], b"ho")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]

The disk is a dict. A `Store` completes at once, unless the test sets `holds` (it completes at
`release`) or `refuses` (it fails with that error). The bench answers `mmi.service` queries: the
service exists if `there`; the query times out if `silent`.
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
    """The position of a record on the bench's disk."""

    def __init__(self, number: int) -> None:
        self.number = number


class TitanicBench:
    """One engine under test. Keywords override fields of `TitanicPolicy`.

    - `calls`: requests that it sent to services.
    - `asked`: service names in its `mmi.service` queries.
    - `replicas`: requests that it sent to `titanic.replicate`.
    - `cancelled`: tokens of the calls that it cancelled.
    - `damaged`: positions at which a `Load` fails with `LogCorrupt`.
    """

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
    def ask(
        self, service: str, *frames: bytes, key: bytes = b"", owner: bytes = b""
    ) -> list[bytes]:
        """Send a request to one of Titanic's services, which must answer at once; return the
        answer's frames."""
        token = self.begin(service, *frames, key=key, owner=owner)
        return self.answers[token]

    def begin(self, service: str, *frames: bytes, key: bytes = b"", owner: bytes = b"") -> int:
        """Send a request to one of Titanic's services; return its token, under which `answers` has
        the answer once it comes."""
        token = next(self._tokens)
        self.feed(Asked(token, service, frames, key, owner))
        return token

    def submitted(
        self, service: bytes, *body: bytes, key: bytes = b"", owner: bytes = b""
    ) -> bytes:
        """Submit a durable request, and return its ticket."""
        status, ticket = self.ask(REQUEST, service, *body, key=key, owner=owner)
        assert status == b"200"
        return ticket

    # --- services ---------------------------------------------------------------------------------
    def reply(self, call: Submit, *frames: bytes) -> None:
        """Answer a call with these frames, as its service."""
        self.feed(Answered(call.token, Reply(frames)))

    def fail(self, call: Submit, error: CallError) -> None:
        """End a call with an error."""
        self.feed(Answered(call.token, error))

    # --- the disk and the clock -------------------------------------------------------------------
    def release(self) -> None:
        """Complete the `Store`s that were held back."""
        held, self.held = self.held, []
        for effect in held:
            self._store(effect)

    def wait(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the engine."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = until

    def drain(self) -> None:
        self.feed(Drain())

    def feed(self, *events: Input) -> None:
        """Feed the engine inputs and perform its effects."""
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
        """Return the bodies of the requests that were sent to services, in order."""
        return [call.frames for call in self.calls]
