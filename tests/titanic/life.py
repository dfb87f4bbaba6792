"""A Titanic without threads: an engine and its store, for the lifetime of one process.

    life = LocalTitanic(folder)
    ticket = life.submit(b"hi")
    life.ask(REPLY, ticket)

Services answer with `reply_of(frames)`, by default `re:` and the body, unless `serves` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from requite.engine import Cancel, Effect, Finished, Load, Store, Submit, Wake, Warn
from requite.errors import CallError, CallTimeout
from requite.protocols.titanic.engine import TitanicEngine
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.wire import MMI_SERVICE, REPLICATE, REQUEST
from requite.request import Reply
from requite.sim.kernel.disk import Killed
from requite.storage import MemoryFolder
from requite.titanic.store import Store as TitanicStore
from requite.titanic.store import StoreSettings, open_memory, open_store

EPOCH_S = 1_700_000_000.0
SMALL = StoreSettings(segment_size_bytes=4096, sync=False)


class LocalTitanic:
    """A Titanic in this process. `submits` holds its unanswered calls."""

    def __init__(
        self,
        where: MemoryFolder | Path,
        settings: StoreSettings = SMALL,
        *,
        now: float = 100.0,
        seed: int = 0,
        epoch_s: float = EPOCH_S,
        key_file: Path | None = None,
        **policy: Any,
    ) -> None:
        self.now = now
        self._epoch_s = epoch_s
        self.serves = True
        self.reply_of: Callable[[Sequence[bytes]], bytes] = lambda frames: b"re:" + b"".join(frames)
        self.replica: LocalTitanic | None = None
        self.submits: list[Submit] = []
        self.warnings: list[str] = []
        self.answers: dict[int, list[bytes]] = {}
        self._tokens = count(1)
        self.store: TitanicStore
        if isinstance(where, Path):
            self.store = open_store(where, settings, now_us=self._wall_us, key_file=key_file)
        else:
            self.store = open_memory(settings, folder=where, now_us=self._wall_us)
        random = Random(seed)
        self.engine = TitanicEngine(
            TitanicPolicy(**policy),
            rng=lambda: 0.0,
            new_uuid=lambda: random.randbytes(16),
            recovered=self.store.recovered,
            epoch_s=epoch_s,
        )

    def ask(
        self, service: str, *frames: bytes, key: bytes = b"", owner: bytes = b""
    ) -> list[bytes]:
        """Send a request; return the answer."""
        token = self.begin(service, *frames, key=key, owner=owner)
        return self.answers[token]

    def begin(self, service: str, *frames: bytes, key: bytes = b"", owner: bytes = b"") -> int:
        """Send a request; return its token. The answer may arrive later, in `answers`."""
        token = next(self._tokens)
        self.feed([Asked(token, service, frames, key, owner)])
        return token

    def submit(self, body: bytes, key: bytes = b"", owner: bytes = b"") -> bytes:
        """Submit a request for `echo`; return its ticket."""
        status, ticket = self.ask(REQUEST, b"echo", body, key=key, owner=owner)
        assert status == b"200"
        return ticket

    def wait(self, seconds: float) -> None:
        """Advance the clock, and fire the timers that fall due."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed([Wake()])
        self.now = until

    def compact(self, bites: int = 200) -> None:
        """Run the given number of steps of compaction."""
        for _ in range(bites):
            assert self.store.work() == []

    def close(self) -> None:
        self.store.close()

    def feed(self, events: list[Any]) -> None:
        """Feed inputs, and the inputs that result from them."""
        while events:
            events = list(self._performed(self.engine.handle(events, self.now)))

    def _performed(self, effects: Iterable[Effect]) -> Iterable[Any]:
        for effect in effects:
            match effect:
                case Finished(token, frames):
                    assert token not in self.answers
                    self.answers[token] = list(frames)
                case Store() | Load():
                    self.store.submit(effect)
                case Submit():
                    yield from self._called(effect)
                case Warn(_, text):
                    self.warnings.append(text)
                case Cancel():
                    pass
        yield from self.store.work()

    def _called(self, effect: Submit) -> Iterable[Any]:
        if effect.service == MMI_SERVICE:
            yield Answered(effect.token, Reply([b"200"]))
        elif effect.service == REPLICATE and self.replica is not None:
            yield Answered(effect.token, self._replicated(self.replica, effect))
        elif self.serves and effect.service != REPLICATE:
            yield Answered(effect.token, Reply([self.reply_of(effect.frames)]))
        else:
            self.submits.append(effect)

    def _replicated(self, replica: LocalTitanic, effect: Submit) -> Reply | CallError:
        try:
            return Reply(replica.ask(REPLICATE, *effect.frames))
        except Killed:
            return CallTimeout("it died")

    def _wall_us(self) -> int:
        return int((self._epoch_s + self.now) * 1e6)
