"""A service whose effects are lines of a file, which outlives the process that wrote them.

Its handler writes a line with the body and a new word, waits a little, and answers with the word:
whoever gets a reply can tell which effect it is of.
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
    """What the services in a folder have done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def worker(self, url: str, *options: str, service: str = "once") -> OnceProcess:
        """Start a worker process."""
        command = ["-m", "requite.cli", "worker", f"{__name__}:{service}", "--connect", url]
        return OnceProcess(*command, *options, **{_FOLDER: str(self._folder)})

    def effects(self) -> dict[str, list[str]]:
        """The words of all effects, by the bodies of their requests."""
        effects: dict[str, list[str]] = {}
        if (self._folder / "effects").exists():
            for line in (self._folder / "effects").read_text().splitlines():
                body, word = line.split()
                effects.setdefault(body, []).append(word)
        return effects


class OnceProcess(Process):
    """`requite worker` as a process."""

    def await_start(self) -> None:
        """Wait until it says that it serves."""
        line = self.line()
        assert line.startswith("serving "), line


def _folder() -> Path:
    return Path(os.environ.get(_FOLDER, "."))


def _act(request: requite.Request) -> bytes:
    word = uuid4().hex
    line = b"%b %b\n" % (request.body, word.encode())
    effects = os.open(_folder() / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(effects, line)  # at once, or not at all
    finally:
        os.close(effects)
    return word.encode()


@requite.service("once", idempotent=requite.Dedup(_folder() / "replies"))
async def once(request: requite.Request) -> bytes:
    """Have an effect, and answer with its word."""
    word = _act(request)
    await asyncio.sleep(random.random() * _TAKES_S_MAX)
    return word


@requite.service("gated", idempotent=requite.Dedup(_folder() / "replies"))
async def gated(request: requite.Request) -> bytes:
    """Have an effect, and answer once there is a file `open`."""
    word = _act(request)
    while not (_folder() / "open").exists():  # noqa: ASYNC110 - has no event
        await asyncio.sleep(0.005)
    return word
