"""Services that deduplicate requests, and whose side effects are lines of a file.

A handler appends a line with the body and a new unique id, waits, and returns the id. The file
survives a crash of the process, and the id links each reply to the side effect that produced it.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.support.live import Process

import requite

_FOLDER: Final = "REQUITE_TEST_ONCE"
_TAKES_S_MAX: Final = 0.01


class Ledger:
    """The side effects of the services in a folder; starts their workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def worker(self, url: str, *options: str, service: str = "once") -> OnceProcess:
        """Start a worker process."""
        command = ["-m", "requite.cli", "worker", f"{__name__}:{service}", "--connect", url]
        return OnceProcess(*command, *options, **{_FOLDER: str(self._folder)})

    def effects(self) -> dict[str, list[str]]:
        """Return the ids of all side effects, by request body."""
        effects: dict[str, list[str]] = {}
        if (self._folder / "effects").exists():
            for line in (self._folder / "effects").read_text().splitlines():
                body, effect_id = line.split()
                effects.setdefault(body, []).append(effect_id)
        return effects


class OnceProcess(Process):
    """`requite worker` as a process."""

    def await_start(self) -> None:
        """Wait until the worker prints "serving"."""
        line = self.line()
        assert line.startswith("serving "), line


def _folder() -> Path:
    return Path(os.environ.get(_FOLDER, "."))


def _act(request: requite.Request) -> bytes:
    effect_id = uuid4().hex
    line = b"%b %b\n" % (request.body, effect_id.encode())
    effects = os.open(_folder() / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(effects, line)  # a single write: a crash leaves no partial line
    finally:
        os.close(effects)
    return effect_id.encode()


@requite.service("once", idempotent=requite.Dedup(_folder() / "replies"))
async def once(request: requite.Request) -> bytes:
    """Write a side effect, wait up to 10 ms, and return the effect's id."""
    effect_id = _act(request)
    await asyncio.sleep(random.random() * _TAKES_S_MAX)
    return effect_id


@requite.service("gated", idempotent=requite.Dedup(_folder() / "replies"))
async def gated(request: requite.Request) -> bytes:
    """Write a side effect, and return its id once the file `open` exists."""
    effect_id = _act(request)
    while not (_folder() / "open").exists():  # noqa: ASYNC110 - has no event
        await asyncio.sleep(0.005)
    return effect_id
