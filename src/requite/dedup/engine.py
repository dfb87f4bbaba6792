"""Runs each request once; the engine between a worker's engine and its handlers.

Inputs: `Asked` for each request that the worker's engine delivers, `GivenUp` for each that it
abandons, and the handlers' inputs. Effects: `Deliver` and `CancelHandler` for the handlers;
`Finished`, `Produced`, `Progressed` and `Started` for the worker's engine. With a log, `Store` and
`Load` come in between, and each reply is stored before it is sent.

A handler that has started runs to its end, even if no caller waits any more: the effects of an
interrupted handler would be unknown. Its reply is stored for repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.dedup.entries import Entry, State
from requite.dedup.inputs import Asked, Discard, Found, GivenUp, Interrupted
from requite.dedup.keeping import Keeping
from requite.dedup.policy import REPLY_SIZE_MAX, DedupPolicy, DedupStats
from requite.dedup.records import (
    NO_DIGEST,
    DedupRecord,
    Kind,
    Outcome,
    decode,
    encode,
    key_without_principal,
)
from requite.dedup.recovery import IN_DOUBT, UNKEPT, recover
from requite.engine import (
    CancelHandler,
    Deliver,
    Finished,
    Input,
    Load,
    Loaded,
    LoadFailed,
    Produced,
    Progressed,
    Started,
    Store,
    Stored,
    StoreFailed,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, StorageError
from requite.request import Status

_NO_KEY: Final = (
    b"this service runs each request once, and cannot recognise this one when it is repeated: call"
    b" it over MDP 0.3, or with an idempotency key"
)
KEY_REUSED: Final = (
    b"this request has not run: its idempotency key, or call id, was used before, with another body"
)
_NAMELESS: Final = (
    b"the request may have run, for a caller without a name, whose reply this caller does not get"
)
_GIVEN_UP: Final = (b"the caller has given the request up",)

# A repetition renews an entry in doubt after this share of its window.
_RENEW_AFTER: Final = 0.25


class DedupEngine:
    """The engine of one store, for one service, or for several with different keys.

    `epoch_s` is the wall time, in seconds since 1970, at instant 0 of the engine's clock. `found`
    are the records of the log, in order; `now` is the instant at which they were read.
    """

    def __init__(
        self,
        policy: DedupPolicy | None = None,
        *,
        epoch_s: float = 0.0,
        found: Iterable[Found] = (),
        now: float = 0.0,
    ) -> None:
        self._policy = policy or DedupPolicy()
        self._epoch_s = epoch_s
        self._keeping = Keeping(self._policy)
        self._entries = self._keeping.entries
        self._segments = self._keeping.segments
        self._tokens: dict[Any, Entry] = {}  # of owners and waiters
        self._loads: set[Any] = set()  # tokens that wait for a `Load`
        self._running = 0
        self._is_failing = False  # the last `Store` failed
        self._counts = dict.fromkeys(("ran", "replayed", "joined", "refused"), 0)
        self._out: list[Any] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Asked: self._asked,
            GivenUp: self._given_up,
            Started: self._began,
            Produced: self._produced,
            Progressed: self._progressed,
            Finished: self._finished,
            Stored: self._stored,
            StoreFailed: self._store_failed,
            Loaded: self._loaded,
            LoadFailed: self._load_failed,
            Interrupted: self._interrupted,
            Wake: _go_on,
        }
        for entry in recover(found, self._keeping, self._policy, epoch_s, now):
            self._store(Kind.DOUBTED, entry, now)

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Sequence[Any]:
        """See `requite.engine.Engine.handle`."""
        refused: LocalViolation | None = None
        for event in events:
            handler = self._inputs.get(event.__class__)
            if handler is None:
                text = f"Dedup does not handle the input {event!r}"
                refused = refused or LocalViolation(text)
                continue
            self._expire(now)
            handler(event, now)
            if self._keeping.is_beyond():
                self._bound(now)
        if refused is not None:
            raise refused
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self._keeping.next_end()
        return None if at == inf else at

    def snapshot(self) -> DedupStats:
        """Return counters and sizes."""
        states = [entry.state for entry in self._entries]
        return DedupStats(
            **self._counts,
            expired=self._keeping.expired,
            evicted=self._keeping.evicted,
            running=self._running,
            kept=states.count(State.KEPT),
            in_doubt=states.count(State.IN_DOUBT),
            size_bytes=self._keeping.size_bytes,
        )

    # --- from the worker's engine -----------------------------------------------------------------
    def _asked(self, event: Asked, now: float) -> None:
        token, request, key, digest = event
        if not key:
            if self._policy.unkeyed == "refuse":
                self._refuse(token, _NO_KEY)
            else:
                self._out.append(Deliver(token, request))
            return
        entry = self._entries.get(key) or self._nameless(key, digest)
        if entry is None:
            self._begin(event, now)
        elif entry.key != key and entry.digest == NO_DIGEST:
            self._refuse(token, _NAMELESS)
        elif entry.is_other_body(digest):
            self._refuse(token, KEY_REUSED)
        elif entry.state in (State.KEPT, State.IN_DOUBT):
            self._repeat(entry, token, now)
        else:
            self._counts["joined"] += 1
            entry.waiters[token] = event
            self._tokens[token] = entry

    def _nameless(self, key: bytes, digest: bytes) -> Entry | None:
        """Return the entry of the same request from a caller without a name, or None.

        While a deployment is upgraded, the first attempt may have come through a broker that did
        not know its caller's name. A request with another body is another request.
        """
        entry = self._entries.get(key_without_principal(key))
        return None if entry is None or entry.is_other_body(digest) else entry

    def _begin(self, event: Asked, now: float) -> None:
        entry = Entry(event.key, event.digest, now)
        entry.owner, entry.request = event.token, event.request
        self._entries.add(entry)
        self._tokens[event.token] = entry
        if self._policy.tells_starts:
            self._store(Kind.BEGUN, entry, now)
        else:
            self._run(entry)

    def _run(self, entry: Entry) -> None:
        entry.state = State.RUNNING
        self._running += 1
        self._out.append(Deliver(entry.owner, entry.request))

    def _repeat(self, entry: Entry, token: Any, now: float) -> None:
        """Answer the repetition of a request that has ended.

        Repetitions of a request in doubt extend its window: otherwise a client that retries for
        long, as Titanic does, would run it again once the window has passed.
        """
        if entry.state is State.IN_DOUBT and now - entry.at > self._policy.window_s * _RENEW_AFTER:
            self._entries.renew(entry, now)
            if self._policy.durable:
                self._store(Kind.DOUBTED, entry, now)
        if entry.outcome is not None:
            self._replay(token, entry.outcome)
        elif entry.position is not None:
            self._loads.add(token)
            self._out.append(Load(token, entry.position))
        else:
            self._refuse(token, entry.reason.encode())

    def _given_up(self, event: GivenUp, _now: float) -> None:
        token, reason = event
        entry = self._tokens.get(token)
        if token in self._loads:
            self._loads.discard(token)
            self._out.append(Finished(token, _GIVEN_UP, Status.CANCELLED))
        elif entry is None:  # it runs without a key, or has just ended
            self._out.append(CancelHandler(token, reason))
        elif token != entry.owner:
            del entry.waiters[token]
            self._leave(token)
        elif entry.state is State.BEGINNING:
            entry.owner = None
            self._leave(token)
        elif entry.state is State.RUNNING and not entry.started and not entry.waiters:
            self._out.append(CancelHandler(token, reason))

    def _leave(self, token: Any) -> None:
        del self._tokens[token]
        self._out.append(Finished(token, _GIVEN_UP, Status.CANCELLED))

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, _now: float) -> None:
        entry = self._tokens.get(event.token)
        if entry is not None:
            entry.started = True
        self._counts["ran"] += 1
        self._out.append(event)

    def _produced(self, event: Produced, _now: float) -> None:
        entry = self._tokens.get(event.token)
        if entry is not None and not entry.overflowed:
            entry.parts.append(event.frames)
            entry.parts_size += sum(map(len, event.frames))
            if entry.parts_size > self._reply_size_max:
                entry.overflowed = True
                entry.parts = []
        self._out.append(event)

    def _progressed(self, event: Progressed, _now: float) -> None:
        """Extend the leases of all waiters along with the owner's."""
        self._out.append(event)
        entry = self._tokens.get(event.token)
        if entry is not None:
            self._out += [Progressed(token, event.extend_s) for token in entry.waiters]

    def _finished(self, event: Finished, now: float) -> None:
        token, frames, status = event.token, event.frames, event.status
        entry = self._tokens.get(token)
        if entry is None:  # it ran without a key
            self._out.append(event)
            return
        self._running -= 1
        if status is Status.CANCELLED and not entry.started:
            self._never_began(entry, event, now)
        elif status is Status.OK or (status is Status.FAILED and self._policy.store_failures):
            self._end(entry, Outcome(status, tuple(entry.parts), frames), now)
        else:
            self._forget(entry, now)
            self._answer(entry, Outcome(status, tuple(entry.parts), frames))

    def _never_began(self, entry: Entry, event: Finished, now: float) -> None:
        """Run a waiter's request instead of one that was abandoned before its handler started."""
        del self._tokens[event.token]
        self._out.append(event)
        entry.owner = None
        self._promote(entry, now)

    def _promote(self, entry: Entry, now: float) -> None:
        """Run the request of the next waiter; without any, forget the key.

        Waiters with names that wait for a caller without one never run under its key.
        """
        if entry.owner is None:
            same = (each.token for each in entry.waiters.values() if each.key == entry.key)
            entry.owner = next(same, None)
            if entry.owner is not None:
                entry.request = entry.waiters.pop(entry.owner).request
        if entry.owner is not None:
            self._run(entry)
            return
        named, entry.waiters = entry.waiters, {}
        self._forget(entry, now)
        for event in named.values():
            del self._tokens[event.token]
            self._asked(event, now)

    # --- ends -------------------------------------------------------------------------------------
    @property
    def _reply_size_max(self) -> int:
        return min(REPLY_SIZE_MAX, self._policy.bytes_max)

    def _end(self, entry: Entry, outcome: Outcome, now: float) -> None:
        entry.outcome = outcome
        if self._policy.durable:
            entry.state = State.ENDING
            self._store(Kind.UNKEPT if self._is_too_large(entry) else Kind.ENDED, entry, now)
            return
        self._answer(entry, outcome)
        self._settle(entry, now)

    def _is_too_large(self, entry: Entry) -> bool:
        outcome = entry.outcome
        return entry.overflowed or (outcome is not None and outcome.size > self._reply_size_max)

    def _settle(self, entry: Entry, now: float) -> None:
        """Retain a reply, or only the fact that the request has run."""
        if self._is_too_large(entry):
            entry.outcome, entry.reason = None, UNKEPT
        elif entry.position is not None:
            entry.outcome = None  # it is on the log
        entry.parts = []
        self._entries.settle(entry, State.KEPT, now)

    def _answer(self, entry: Entry, outcome: Outcome) -> None:
        """Answer owner and waiters; the owner has already received the partial replies."""
        owner, waiters = entry.owner, entry.waiters
        entry.owner = entry.request = None
        entry.waiters = {}
        self._tokens.pop(owner, None)
        self._out.append(Finished(owner, outcome.frames, outcome.status))
        for token in waiters:
            del self._tokens[token]
            if entry.overflowed:
                self._refuse(token, UNKEPT.encode())
            else:
                self._replay(token, outcome)

    def _replay(self, token: Any, outcome: Outcome) -> None:
        self._counts["replayed"] += 1
        self._out += [Produced(token, frames) for frames in outcome.parts]
        self._out.append(Finished(token, outcome.frames, outcome.status))

    def _refuse(self, token: Any, reason: bytes) -> None:
        self._counts["refused"] += 1
        self._out.append(Finished(token, (reason,), Status.FAILED))

    def _refuse_all(self, entry: Entry, reason: str) -> None:
        tokens = [*entry.waiters] if entry.owner is None else [entry.owner, *entry.waiters]
        entry.owner = entry.request = None
        entry.waiters = {}
        for token in tokens:
            del self._tokens[token]
            self._refuse(token, reason.encode())

    def _forget(self, entry: Entry, now: float) -> None:
        """Forget a key: a repetition runs."""
        self._keeping.forget(entry)
        if self._policy.tells_starts:
            self._store(Kind.DROPPED, entry, now)

    # --- the log ----------------------------------------------------------------------------------
    def _store(self, kind: Kind, entry: Entry, now: float) -> None:
        outcome = entry.outcome if kind is Kind.ENDED else None
        at_us = round((now + self._epoch_s) * 1e6)
        payload = encode(DedupRecord(kind, at_us, entry.key, entry.digest, outcome))
        self._out.append(Store((kind, entry, len(payload)), (payload,)))

    def _stored(self, event: Stored, now: float) -> None:
        kind, entry, size = event.ticket
        assert isinstance(entry, Entry)
        [position] = event.positions
        if self._is_failing:
            self._is_failing = False
            self._out.append(Warn("stored again", "the log of replies accepts records again"))
        self._segments.grow(position.segment, size)
        if kind is Kind.BEGUN:
            if entry.state is State.BEGINNING:
                self._segments.move(entry, position.segment, size)
                self._promote(entry, now)
            elif entry.state is State.RUNNING:  # rewritten before its segment is removed
                self._segments.move(entry, position.segment, size)
        elif kind is Kind.DOUBTED:
            if self._entries.get(entry.key) is entry:
                self._segments.move(entry, position.segment, size)
        elif kind is not Kind.DROPPED and entry.state is State.ENDING:
            self._segments.move(entry, position.segment, size)
            if kind is Kind.ENDED:
                entry.position = position
            assert entry.outcome is not None  # else there would have been nothing to store
            self._answer(entry, entry.outcome)
            self._settle(entry, now)
        elif kind is not Kind.DROPPED and self._entries.get(entry.key) is entry:  # a copy
            self._segments.move(entry, position.segment, size)
            if kind is Kind.ENDED:
                entry.position = position
        entry.moves = False

    def _store_failed(self, event: StoreFailed, now: float) -> None:
        kind, entry, _size = event.ticket
        if not self._is_failing:  # one line for a disk that is full, not one for each request
            self._is_failing = True
            self._out.append(Warn("not stored", f"{entry}: {event.error}"))
        if kind is Kind.BEGUN and entry.state is State.BEGINNING:
            self._entries.remove(entry)
            self._refuse_all(
                entry, f"the request has not run: its start could not be stored: {event.error}"
            )
        elif kind in (Kind.ENDED, Kind.UNKEPT) and entry.state is State.ENDING:
            entry.outcome = None
            entry.reason = f"the request has run, but its reply could not be stored: {event.error}"
            self._refuse_all(entry, entry.reason)
            self._entries.settle(entry, State.IN_DOUBT, now)
        elif entry.moves:
            self._not_copied(entry)

    def _loaded(self, event: Loaded, _now: float) -> None:
        token = event.ticket
        if token.__class__ is Entry:
            self._copy(token, event.payload)
            return
        if token not in self._loads:
            return
        self._loads.discard(token)
        try:
            outcome = decode(event.payload).outcome
        except StorageError as error:
            self._unreadable(token, error)
            return
        assert outcome is not None  # only records with a reply are read
        self._replay(token, outcome)

    def _load_failed(self, event: LoadFailed, _now: float) -> None:
        if event.ticket.__class__ is Entry:
            self._not_copied(event.ticket)
        elif event.ticket in self._loads:
            self._loads.discard(event.ticket)
            self._unreadable(event.ticket, event.error)

    def _unreadable(self, token: Any, error: StorageError) -> None:
        self._out.append(Warn("not read", str(error)))
        self._refuse(
            token, f"the request has run, but its stored reply cannot be read: {error}".encode()
        )

    # --- bounds -----------------------------------------------------------------------------------
    def _expire(self, now: float) -> None:
        self._keeping.expire(now)

    def _bound(self, now: float) -> None:
        """Evict what exceeds the bounds. Before segments are removed, write again the BEGUN records
        of running requests, and the records of entries that are to be retained."""
        for entry in self._keeping.bound():
            if entry.state is State.RUNNING:
                self._store(Kind.BEGUN, entry, now)
            elif entry.position is not None:
                self._out.append(Load(entry, entry.position))
            else:
                kind = Kind.DOUBTED if entry.state is State.IN_DOUBT else Kind.UNKEPT
                self._store(kind, entry, entry.at)
        self._out += [Discard(number) for number in self._keeping.take_idle()]

    def _copy(self, entry: Entry, payload: bytes) -> None:
        if self._entries.get(entry.key) is entry:
            self._out.append(Store((Kind.ENDED, entry, len(payload)), (payload,)))

    def _not_copied(self, entry: Entry) -> None:
        """Evict an entry, so that its segment can be removed all the same."""
        if self._entries.get(entry.key) is entry:
            self._keeping.evict(entry)

    # --- shutdown ---------------------------------------------------------------------------------
    def _interrupted(self, event: Interrupted, now: float) -> None:
        stopped = []
        for token in event.tokens:
            self._loads.discard(token)
            entry = self._tokens.get(token)
            if entry is None or entry.state is State.ENDING:  # its reply is being stored
                continue
            del self._tokens[token]
            if token == entry.owner:
                stopped.append(entry)
            else:
                del entry.waiters[token]
        for entry in stopped:
            self._stop(entry, now)

    def _stop(self, entry: Entry, now: float) -> None:
        """Handle a handler that was stopped, or will not start."""
        entry.owner = None
        if entry.state is State.BEGINNING:
            return  # until its BEGUN is stored
        self._running -= 1
        if entry.started and self._policy.in_doubt == "refuse":
            entry.reason = IN_DOUBT
            self._refuse_all(entry, entry.reason)
            self._entries.settle(entry, State.IN_DOUBT, now)
        else:
            self._promote(entry, now)


def _go_on(_event: Wake, _now: float) -> None:
    """Do nothing but expire entries, as with every input."""
