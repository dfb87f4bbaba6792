"""What the tests of SP from end to end share: places to meet, services, and what they have seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

from requite.errors import RemoteFailure
from requite.request import Request
from requite.worker import Service, service

TRANSPORTS = ("tcp", "ipc", "inproc", "ws")
_names = count()


def place(transport: str, folder: Path) -> str:
    """Return a URL at which nobody listens yet."""
    match transport:
        case "ipc":
            return f"sp+ipc://{folder}/{next(_names)}.sock"
        case "inproc":
            return f"inproc://place-{next(_names)}"
        case "ws":
            return "sp+ws://127.0.0.1:0/sp"
        case _:
            return f"sp+{transport}://127.0.0.1:0"


class Echo:
    """A service that sends bodies back and counts them; `hold` keeps its requests until it is set.

    A body of `fail` ends with an error, `refuse` with a refusal.
    """

    def __init__(self, hold: bool = False) -> None:
        self.seen: list[bytes] = []
        self.gate = asyncio.Event()
        self._changed = asyncio.Event()
        if not hold:
            self.gate.set()

    @property
    def service(self) -> Service:
        """The service, for a worker."""
        return service("echo")(self.serve)

    async def serve(self, request: Request) -> bytes:
        """Answer."""
        self.seen.append(request.body)
        self._changed.set()
        await self.gate.wait()
        if request.body == b"fail":
            raise ValueError("it does not work")
        if request.body == b"refuse":
            raise RemoteFailure("not today")
        return request.body

    async def until(self, look: Callable[[], bool]) -> None:
        """Wait until what it has seen makes `look` true."""
        async with asyncio.timeout(20):
            while not look():
                self._changed.clear()
                await self._changed.wait()
