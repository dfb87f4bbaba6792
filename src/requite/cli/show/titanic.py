"""Titanic: requests are kept on disk until their replies have been fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final

from requite.cli.show.majordomo import HEARTBEAT, HEARTBEAT_OPTIONS
from requite.cli.show.pattern import SERVICE, Plot
from requite.cli.show.tally import Tally
from requite.cli.show.traffic import CALL_TIMEOUT_S, RETRY, RequestSource
from requite.cli.show.troupe import Start, Troupe, command
from requite.client import AsyncClient
from requite.errors import CallError
from requite.testing.processes import free_ports

_SERVICE_NAME: Final = "nearest"


class Titanics(Troupe):
    """A broker with a Titanic inside; clients submit, and come back for the results."""

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        (self._port,) = free_ports(1)
        self._folder = TemporaryDirectory(prefix="requite-demo-")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._folder.cleanup()

    def middles(self) -> Sequence[Start]:
        """The broker: what it has been given survives it."""
        place = f"--bind=tcp://127.0.0.1:{self._port}"
        keep = f"--titanic={self._folder.name}/requests"
        return [command("broker", "broker", place, keep, *HEARTBEAT_OPTIONS)]

    def workers(self) -> Sequence[Start]:
        """Plain workers, which know nothing of Titanic."""
        place = f"--connect=mdp://127.0.0.1:{self._port}"
        return [
            command(f"worker {number}", "worker", SERVICE, place, *HEARTBEAT_OPTIONS)
            for number in range(1, self.plot.workers + 1)
        ]

    def new_client(self) -> AsyncClient:
        """Make a client with as many slots as it has requests under way."""
        return AsyncClient(
            f"mdp://127.0.0.1:{self._port}",
            service=_SERVICE_NAME,
            retry=RETRY,
            heartbeat=HEARTBEAT,
            slots=self.plot.concurrency,
        )

    async def drive(
        self, client: AsyncClient, source: RequestSource, tally: Tally, neighbours: int
    ) -> None:
        """Submit, fetch and forget, with so many requests under way."""

        async def keep_asking() -> None:
            while (number := await source.take()) is not None:
                body = f"{tally.asked[number]} {neighbours} {number}".encode()
                try:
                    ticket = await client.submit(body, timeout=CALL_TIMEOUT_S)
                    reply = await client.result(ticket, timeout=CALL_TIMEOUT_S)
                except CallError as error:
                    tally.take(error)
                    continue
                tally.take(reply)
                await client.forget(ticket)

        await asyncio.gather(*(keep_asking() for _ in range(self.plot.concurrency)))
