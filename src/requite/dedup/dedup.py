"""`Dedup`: the setting that makes a service run each request once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from typing import Any, Final

from requite.dedup.engine import DedupEngine
from requite.dedup.gate import CallId, Gate
from requite.dedup.inputs import Discard
from requite.dedup.policy import DedupPolicy, DedupStats, InDoubt, Unkeyed
from requite.dedup.store import LogStore
from requite.engine import Input, Load, Store, Wake, Warn
from requite.errors import ConfigurationError, LocalViolation
from requite.shell import clock
from requite.shell.feeder import Feeder
from requite.shell.warnings import Warnings

_DEFAULTS: Final = DedupPolicy()


class Dedup:
    """Makes a service run each request once, and answer repetitions with the stored reply.

        @requite.service("pay", idempotent=Dedup("replies"))
        async def pay(request): ...

    A request is identified by its `idempotency_key`, or without one by its client and call (MDP
    0.3), so that the attempts of one call count as one request. Keys and calls belong to the
    principal that calls (`Request.principal`): no other gets the stored reply. A repetition with
    another body is refused. Repetitions that arrive while the
    handler runs wait for its reply. A handler that has started is never interrupted, even if no
    caller waits for it any more.

    - `store`: a folder for a log of replies, used by one worker process at a time; a reply is sent
      only after it is on the disk. None stores replies in memory; they are lost with the process.
    - `window`: seconds for which a reply is stored.
    - `max_entries`, `max_bytes`: limits for stored replies. Beyond them replies are evicted
      (`stats.evicted`): the oldest of the principal with the most, whose repetitions then run
      again. With a log, `max_bytes` limits its size, give or take a segment; the oldest replies
      are evicted, except those of a principal with at most its share of half of the log.
    - `unkeyed`: requests without a key or an id (MDP 0.1 and 0.2, SP) get a negative reply; "run"
      runs each of them.
    - `in_doubt`: if the process died while a handler ran, a repetition of its request gets a
      negative reply, since the request may have run; "run" runs it again. In memory, requests of
      an earlier process are unknown.
    - `store_failures`: store negative replies as well; otherwise a repetition of a request whose
      handler failed runs.
    - `key_file`: a file with the keys to encrypt the folder with, one per line (64 hex digits); new
      records get the first key. It must be readable by its user only.

    Several services of a worker, and several workers on one event loop, may share one object and
    its limits. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: str | PathLike[str] | None = None,
        *,
        window: float = _DEFAULTS.window_s,
        max_entries: int = _DEFAULTS.entries_max,
        max_bytes: int = _DEFAULTS.bytes_max,
        unkeyed: Unkeyed = _DEFAULTS.unkeyed,
        in_doubt: InDoubt = _DEFAULTS.in_doubt,
        store_failures: bool = _DEFAULTS.store_failures,
        key_file: str | PathLike[str] | None = None,
    ) -> None:
        if key_file is not None and store is None:
            raise ConfigurationError("`key_file` requires a folder: memory is not encrypted")
        self._directory = None if store is None else fspath(store)
        self._key_file = key_file
        self._policy = DedupPolicy(
            window,
            max_entries,
            max_bytes,
            unkeyed,
            in_doubt,
            store_failures,
            durable=store is not None,
        )
        self._store: LogStore | None = None
        self._users = 0
        self._opening = asyncio.Lock()
        self._use(DedupEngine(self._policy))
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._warnings = Warnings(logging.getLogger("requite.worker"), clock.now)

    def __repr__(self) -> str:
        return f"<Dedup {self._directory or 'in memory'}>"

    @property
    def stats(self) -> DedupStats:
        """Counts of handled requests and stored replies."""
        return self._engine.snapshot()

    @property
    def is_durable(self) -> bool:
        """Whether replies are stored in a folder, and so survive this process."""
        return self._policy.durable

    # --- for workers ------------------------------------------------------------------------------
    @property
    def refuses_unkeyed(self) -> bool:
        """Whether requests without a key or an id are refused."""
        return self._policy.unkeyed == "refuse"

    def gate(self, service: str, call_id: CallId) -> Gate:
        """Return a new gate, which receives the requests of one service."""
        return Gate(service, call_id, self._feed)

    async def open(self) -> None:
        """Open the log for the first worker, and count one more. Raises `StorageError`."""
        async with self._opening:
            loop = asyncio.get_running_loop()
            if self._users and self._loop is not loop:
                raise LocalViolation(
                    f"{self} is in use on another event loop; use one Dedup per event loop"
                )
            if not self._users:
                self._loop = loop
                await self._open_log()
            self._users += 1

    async def _open_log(self) -> None:
        if self._directory is None:
            return
        store = await asyncio.to_thread(LogStore, self._directory, self._policy, self._key_file)
        now = clock.now()
        self._use(DedupEngine(self._policy, epoch_s=clock.wall() - now, found=store.found, now=now))
        store.found = []
        store.start(lambda events: self._feed(*events))
        self._store = store

    async def close(self) -> None:
        """Release the log for a worker whose gates are closed; the last worker closes it."""
        async with self._opening:
            self._users -= 1
            if self._users:
                return
            if self._store is not None:
                await self._store.close()
                self._store = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    # --- inside -----------------------------------------------------------------------------------
    def _use(self, engine: DedupEngine, now: Callable[[], float] = clock.now) -> None:
        self._engine = engine
        self._feeder = Feeder(engine, now, self._perform)

    def _feed(self, *events: Input) -> None:
        """Feed inputs to the engine, and those that arise while its effects are performed."""
        try:
            if refused := self._feeder.feed(events):
                raise refused
        finally:
            if self._timer is None and not self._feeder.feeding:
                self._arm()

    def _perform(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Store | Load | Discard):
                if self._store is not None:  # else the log is closed, and no caller waits
                    self._store.perform(effect)
            elif isinstance(effect, Warn):
                self._warnings.warn(effect.kind, effect.text)
            else:
                effect.token[0].perform(effect)

    def _arm(self) -> None:
        at = self._engine.deadline()
        if at is not None and self._users and self._loop is not None:
            self._timer = self._loop.call_later(max(0.0, at - clock.now()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._feed(Wake())
