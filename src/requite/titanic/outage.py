"""Disk failures: Titanic serves what it can read, and retries to open the log.

After a failed write or sync it is unknown what reached the disk, so the log accepts nothing more;
reopening it settles that. A folder with another log or none is refused: an unmounted disk looks
like an empty folder, and a Titanic that started anew there would have lost all acknowledged
requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from requite.engine import Load, LoadFailed, StoreFailed
from requite.engine import Store as StoreEffect
from requite.errors import LogMismatch, StorageError
from requite.protocols.titanic.tickets import Since
from requite.shell import clock
from requite.titanic.desk import Desk
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import Store

_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 30.0

_log = logging.getLogger("requite.titanic")


class Outage:
    """Replaces the store of a desk after failures. `begin` starts a store; `run` never returns."""

    def __init__(self, settings: TitanicSettings, desk: Desk) -> None:
        self._settings = settings
        self._desk = desk

    def begin(self, store: Store) -> Callable[[StoreEffect | Load], None]:
        """Start a store for the desk, on the running loop; return its `submit`."""
        self.store = store
        loop = asyncio.get_running_loop()
        store.start(lambda done: loop.call_soon_threadsafe(self._desk.take_all, done))
        return store.submit

    async def run(self) -> None:
        """Reopen the log after each failure, as soon as possible."""
        if not self._settings.is_kept:
            return
        while True:
            await self._desk.failed.wait()
            _log.error(
                "the disk with the stored requests has failed: %s. No requests are accepted until "
                "it works again; stored replies are served.",
                self._desk.engine.failure,
            )
            await self._retire()
            store = await self._reopened()
            self._desk.settle()  # while this still refuses writes: the new store performs the rest
            self._desk.engine.reopened(store.recovered, clock.now())
            self._desk.use(self.begin(store))
            _log.warning("the disk with the stored requests works again: requests are accepted")

    async def _retire(self) -> None:
        """Close the failed store; continue reading from it."""
        with suppress(StorageError):  # it has failed before
            await asyncio.to_thread(self.store.close)
        self._desk.use(self._perform)

    def _perform(self, effect: StoreEffect | Load) -> None:
        """Refuse writes; perform reads."""
        failure = self._desk.engine.failure
        assert failure is not None
        if isinstance(effect, StoreEffect):
            self._desk.take(StoreFailed(effect.ticket, failure))
        elif isinstance(effect.position, Since):
            self._desk.take(LoadFailed(effect.ticket, failure))
        else:
            reading = asyncio.get_running_loop().run_in_executor(None, self.store.load, effect)
            reading.add_done_callback(lambda done: self._desk.take(done.result()))

    async def _reopened(self) -> Store:
        """Retry until the log is open again."""
        pause_s, logged = _PAUSE_S, ""
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            try:
                return await asyncio.to_thread(self._open)
            except StorageError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("cannot reopen the log of stored requests: %s", error)

    def _open(self) -> Store:
        """Open the same log, and rewrite the records that may not be on the disk: after a failed
        sync, the system may report pages as written that exist only in its memory."""
        if self._settings.log_ids() != {self.store.log_id}:
            raise LogMismatch(
                f"{self._settings.directory} contains another log, or none: check whether its disk"
                " is mounted. Restore the folder, or restart the Titanic to use this one"
            )
        # The folder may be replaced after that look at it.
        store = self._settings.open(self.store.log_id)
        try:
            store.write_again_from(self.store.safe_to)
        except BaseException:
            store.close()
            raise
        return store
