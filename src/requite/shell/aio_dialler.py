"""Dialling on asyncio: one task per address list, while connections are wanted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from requite.errors import TransportError
from requite.shell.connections import AddressList, Opened
from requite.transport.address import Address
from requite.transport.aio import dial
from requite.transport.tls import TlsSettings


class Dialler:
    """Dials until every wanted connection is up, without limit; `opened` gets each stream."""

    def __init__(self, addresses: AddressList, opened: Opened, tls: TlsSettings | None) -> None:
        self._addresses = addresses
        self._opened = opened
        self._tls = tls
        self._task: asyncio.Task[None] | None = None

    def go_on(self) -> None:
        """Dial on the running loop, if a connection is wanted and none is being dialled."""
        if self._addresses.wanted and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._dial())

    def stop(self) -> None:
        """Want no further connections; those wanted already are still dialled."""
        self._addresses.stop()

    async def close(self) -> None:
        """Stop dialling and cancel the attempt in progress."""
        self._addresses.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _dial(self) -> None:
        while self._addresses.wanted:
            await asyncio.sleep(self._addresses.pause_s())
            address = self._addresses.current
            try:
                timeout_s = self._addresses.timeout_s()
                await dial(address, partial(self._dialled, address), timeout_s, self._tls)
            except TransportError as error:
                self._addresses.failed(address, error)
        self._task = None

    def _dialled(self, address: Address, stream: Any) -> None:
        self._addresses.opened(address, self._opened(stream))
