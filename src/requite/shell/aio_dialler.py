"""Dialling on asyncio: one task per `Dialable`, for as long as connections are wanted there."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from requite.errors import TransportError
from requite.shell.connections import Dialable, Opened
from requite.transport.address import Address
from requite.transport.aio import DIAL_TIMEOUT_S, dial
from requite.transport.tls import TlsSettings


class Dialler:
    """Dials as often as connections are wanted, and gives up never; `opened` gets each stream."""

    def __init__(self, dialable: Dialable, opened: Opened, tls: TlsSettings | None) -> None:
        self._dialable = dialable
        self._opened = opened
        self._tls = tls
        self._wanted = 0
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def want(self) -> None:
        """Dial once more, on the running loop, unless dialling has stopped for good."""
        if self._stopped:
            return
        self._wanted += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._dial())

    def stop(self) -> None:
        """Begin to dial no more."""
        self._stopped = True

    async def close(self) -> None:
        """Dial no more, and give up what is on its way."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _dial(self) -> None:
        while self._wanted:
            await asyncio.sleep(self._dialable.pause_s())
            address = self._dialable.current
            try:
                timeout_s = min(DIAL_TIMEOUT_S, self._dialable.patience_s())
                await dial(address, partial(self._dialled, address), timeout_s, self._tls)
            except TransportError as error:
                self._dialable.failed(address, error)
        self._task = None

    def _dialled(self, address: Address, stream: Any) -> None:
        self._wanted -= 1
        self._dialable.opened(address, self._opened(stream))
