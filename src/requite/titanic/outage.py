"""When the disk fails: what is kept is served from what can be read, until the log can be opened
again.

A log whose write or sync has failed takes nothing more, for nobody knows what reached the disk.
Opening it again settles that. So it is tried, by and by, and never where there is another log, or
none: a disk that is not mounted looks like an empty folder, and a Titanic that began anew there
would know nothing of what it has acknowledged.
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
from requite.storage import LogReader
from requite.titanic.desk import Desk
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import Store

_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 30.0

_log = logging.getLogger("requite.titanic")


class Outage:
    """Watches over the store of a desk. `begin` has a store work for it; `run` goes on for ever."""

    def __init__(self, settings: TitanicSettings, desk: Desk) -> None:
        self._settings = settings
        self._desk = desk

    def begin(self, store: Store) -> Callable[[StoreEffect | Load], None]:
        """Have a store work for the desk, on the running loop; return what performs effects."""
        self.store = store
        loop = asyncio.get_running_loop()
        store.start(lambda done: loop.call_soon_threadsafe(self._desk.take_all, done))
        return store.submit

    async def run(self) -> None:
        """Open the log again whenever it has failed, as soon as that can be done."""
        if self._settings.directory is None:
            return
        while True:
            await self._desk.failed.wait()
            _log.error(
                "the disk of kept requests has failed: %s. Nothing is accepted until it works "
                "again; what can be read is served.",
                self._desk.engine.failure,
            )
            await self._retire()
            store = await self._reopened()
            self._desk.engine.reopened(store.recovered, clock.now())
            self._desk.use(self.begin(store))
            _log.warning("the disk of kept requests works again: requests are accepted")

    async def _retire(self) -> None:
        """End the store that takes nothing any more; go on reading from it."""
        with suppress(StorageError):  # it has failed before
            await asyncio.to_thread(self.store.close)
        self._desk.use(self._perform)

    def _perform(self, effect: StoreEffect | Load) -> None:
        """Refuse what is to be written, and read what can be read."""
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
        """Try until the log is open again."""
        pause_s, logged = _PAUSE_S, ""
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            try:
                return await asyncio.to_thread(self._open)
            except StorageError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("the log of kept requests cannot be opened again: %s", error)

    def _open(self) -> Store:
        """Open the same log; write once more what was not known to be on the disk. What a system
        could not write it may call written from then on, as long as it has it in memory."""
        directory = self._settings.directory
        assert directory is not None
        there = {segment.log_id for segment in LogReader(directory).segments()}
        if there != {self.store.log_id}:
            raise LogMismatch(
                f"{directory} holds another log, or none: is its disk mounted? Put the folder back,"
                " or start anew"
            )
        store = self._settings.open()
        try:
            store.write_again_from(self.store.safe_to)
        except BaseException:
            store.close()
            raise
        return store
