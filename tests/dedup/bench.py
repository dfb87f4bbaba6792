"""A test bench for the deduplicating engine, with a log under manual control."""

from __future__ import annotations

from typing import Any, NamedTuple

from requite.dedup.engine import DedupEngine
from requite.dedup.inputs import Asked, Discard, Found, GivenUp
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import NO_DIGEST, DedupRecord, Kind, decode
from requite.engine import (
    Deliver,
    Finished,
    Load,
    Loaded,
    LoadFailed,
    Produced,
    Started,
    Store,
    Stored,
    StoreFailed,
)
from requite.errors import LogCorrupt, LogFull
from requite.request import Status


class LogPosition(NamedTuple):
    """A position in the bench's log."""

    segment: int
    number: int


class Bench:
    """An engine, a clock, and a log with `per_segment` records per segment."""

    def __init__(self, per_segment: int = 1000, found: Any = (), **settings: Any) -> None:
        self.policy = DedupPolicy(**settings)
        self.now = 1000.0
        self.epoch_s = 500.0
        self.engine = DedupEngine(self.policy, epoch_s=self.epoch_s, found=found, now=self.now)
        self.out: list[Any] = []
        self.log: dict[LogPosition, bytes] = {}
        self.per_segment = per_segment
        self.stores: list[Store] = []
        self.loads: list[Load] = []
        self.ran: list[Any] = []
        self.answers: dict[Any, list[Any]] = {}
        self.discarded: list[int] = []

    def feed(self, event: Any) -> list[Any]:
        out = list(self.engine.handle([event], self.now))
        for effect in out:
            match effect:
                case Store():
                    self.stores.append(effect)
                case Load():
                    self.loads.append(effect)
                case Deliver(token, _):
                    self.ran.append(token)
                case Discard(segment):
                    self.discarded.append(segment)
                    self.log = {p: data for p, data in self.log.items() if p.segment != segment}
                case Produced(token, _) | Finished(token, _, _):
                    self.answers.setdefault(token, []).append(effect)
        self.out += out
        return out

    # --- the worker's engine ---
    def ask(self, token: Any, key: bytes = b"key", digest: bytes = NO_DIGEST) -> list[Any]:
        return self.feed(Asked(token, f"request {token}", key, digest))

    def give_up(self, token: Any) -> list[Any]:
        return self.feed(GivenUp(token, "nobody waits"))

    # --- handlers ---
    def start(self, token: Any) -> None:
        self.feed(Started(token))

    def part(self, token: Any, body: bytes) -> None:
        self.feed(Produced(token, (body,)))

    def finish(self, token: Any, body: bytes = b"reply", status: Status = Status.OK) -> list[Any]:
        return self.feed(Finished(token, (body,), status))

    def run(self, token: Any, body: bytes = b"reply", status: Status = Status.OK) -> None:
        """Start and finish a handler."""
        self.start(token)
        self.finish(token, body, status)

    # --- the log ---
    def sync(self) -> None:
        """Store all pending records, including those that result from storing them."""
        while self.stores:
            self.sync_one()

    def sync_one(self) -> None:
        """Store the next pending record."""
        store = self.stores.pop(0)
        places = [self._append(payload) for payload in store.records]
        self.feed(Stored(store.ticket, places))

    def _append(self, payload: bytes) -> LogPosition:
        number = self.written = getattr(self, "written", 0) + 1
        place = LogPosition((number - 1) // self.per_segment + 1, number)
        self.log[place] = payload
        return place

    def fail(self) -> None:
        """Fail to store the next pending record."""
        self.feed(StoreFailed(self.stores.pop(0).ticket, LogFull("no space")))

    def load(self, *, fail: bool = False) -> None:
        load = self.loads.pop(0)
        if fail or load.position not in self.log:
            self.feed(LoadFailed(load.ticket, LogCorrupt("damaged")))
        else:
            self.feed(Loaded(load.ticket, self.log[load.position]))

    def records(self) -> list[DedupRecord]:
        return [decode(payload) for payload in self.log.values()]

    def kinds(self) -> list[Kind]:
        return [record.kind for record in self.records()]

    def found(self) -> list[Found]:
        """Return the records as an opening process finds them."""
        return [Found(decode(data), place, len(data)) for place, data in self.log.items()]

    def reopened(self, later_s: float = 0.0, **settings: Any) -> Bench:
        """Return a bench for a new process on the same log; unsynced records are lost."""
        other = Bench.__new__(Bench)
        policy = {name: getattr(self.policy, name) for name in DedupPolicy.__dataclass_fields__}
        other.__init__(self.per_segment, (), **policy | settings)  # type: ignore[misc]
        other.log = dict(self.log)
        other.written = getattr(self, "written", 0)
        other.now = 20.0  # each process has its own clock
        epoch_s = self.epoch_s + self.now + later_s - other.now
        other.epoch_s = epoch_s
        other.engine = DedupEngine(other.policy, epoch_s=epoch_s, found=self.found(), now=other.now)
        return other

    # --- replies ---
    def reply(self, token: Any) -> tuple[Status, list[bytes]] | None:
        """Return the status and all bodies of a reply, or None if it is incomplete."""
        answers = self.answers.get(token, [])
        if not answers or not isinstance(answers[-1], Finished):
            return None
        assert sum(isinstance(answer, Finished) for answer in answers) == 1
        return answers[-1].status, [answer.frames[0] for answer in answers]
