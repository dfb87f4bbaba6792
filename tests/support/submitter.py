"""A program that submits durable requests in a loop, and records each acknowledged one.

`python -m tests.support.submitter URL FILE` appends a line `TICKET BODY` to FILE for each
acknowledged request. It runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.support.live import Process

import requite

_AT_A_TIME: Final = 8
SERVICE: Final = "plain"


class Submitter(Process):
    """The program in a child process; `acknowledged` reads its file."""

    def __init__(self, url: str, file: Path) -> None:
        super().__init__("-m", __name__, url, str(file))


def acknowledged(file: Path) -> dict[str, bytes]:
    """Return the body of each acknowledged request by ticket. Ignores a line without a newline,
    which a killed writer may leave."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    whole = (line.split() for line in lines if line.endswith("\n"))
    return {ticket: body.encode() for ticket, body in whole}


async def _submit(client: requite.AsyncClient, file: Path) -> None:
    with file.open("a", buffering=1) as tickets:
        while True:
            body = uuid4().hex
            ticket = await client.submit(body.encode(), timeout=60)
            tickets.write(f"{ticket} {body}\n")


async def _main(url: str, file: Path) -> None:
    async with requite.AsyncClient(url, service=SERVICE) as client, asyncio.TaskGroup() as tasks:
        for _ in range(_AT_A_TIME):
            tasks.create_task(_submit(client, file))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2])))
