"""The clients of a Python worker process: one event loop in a thread, one client per connection.

Spark reuses Python workers, so a task reuses the connections of earlier tasks. A client that has
been idle for `IDLE_S` is closed. Spark ends workers that have been idle for a minute, which closes
their connections, too.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from requite.client import AsyncClient
from requite.shell.aio import new_event_loop
from requite.spark.bulk.plan import Connection
from requite.spark.bulk.service_state import ServiceStates

IDLE_S: Final = 60.0


class Shared:
    """A client, its number of users, and the state of its service.

    `loop` may be used from any thread, `service_states` from the tasks' thread; the rest on the
    loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> None:
        self.loop = loop
        self.client = client
        self.service_states = ServiceStates()
        self.users = 0
        self.reaper: asyncio.TimerHandle | None = None


class Clients:
    """The event loop of this process, and its clients by connection."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self.pid = os.getpid()
        self._idle_s = idle_s
        self._shared: dict[Connection, Shared] = {}
        self._lock = threading.Lock()
        self._loop = new_event_loop()
        # A daemon thread: Spark must be able to end the worker.
        threading.Thread(target=self._loop.run_forever, name="requite-bulk", daemon=True).start()

    def __len__(self) -> int:
        return len(self._shared)

    @contextmanager
    def use(self, connection: Connection) -> Iterator[Shared]:
        """Yield the client for a connection, created on first use; it stays open meanwhile."""
        with self._lock:
            shared = self._shared.get(connection)
            if shared is None:
                shared = self._shared[connection] = Shared(self._loop, connection.open())
            shared.users += 1
        try:
            yield shared
        finally:
            with self._lock:
                shared.users -= 1
            self._loop.call_soon_threadsafe(self._plan_reaping, connection, shared)

    def _plan_reaping(self, connection: Connection, shared: Shared) -> None:
        if shared.reaper is not None:
            shared.reaper.cancel()
        shared.reaper = self._loop.call_later(self._idle_s, self._maybe_reap, connection, shared)

    def _maybe_reap(self, connection: Connection, shared: Shared) -> None:
        with self._lock:
            if shared.users or self._shared.get(connection) is not shared:
                return
            del self._shared[connection]
        self._closing = self._loop.create_task(
            shared.client.close()
        )  # the loop has only a weak reference


_clients: Clients | None = None


def process_clients() -> Clients:
    """Return the clients of this process; a forked process does not use its parent's."""
    global _clients
    if _clients is None or _clients.pid != os.getpid():
        _clients = Clients()
    return _clients
