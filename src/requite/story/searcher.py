"""`Searcher`: asks for stories in an event loop, and searches the journals in another process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from requite.errors import StorageError

_MODULE: Final = "requite.story.search_process"
_WITHIN_S: Final = 30.0
_WAITING_MAX: Final = 16
_ANSWER_SIZE_MAX: Final = 1 << 24


class Searcher:
    """Searches journals in a process of its own, which has a low priority (nice 10).

    `places` are journals or logs, as for `requite why`. Between searches the process makes the
    indexes of full segments (`requite.journal.index`), so each search reads few of them. Searches
    run one after the other; at most 16 wait, and one that takes 30 s is given up.
    """

    def __init__(self, places: Sequence[Path | str]) -> None:
        self._places: Final = [str(place) for place in places]
        self._process: asyncio.subprocess.Process | None = None
        self._turn: Final = asyncio.Lock()
        self._waiting = 0
        self._is_closed = False

    async def start(self) -> None:
        """Start the process, so that it keeps the indexes from now on."""
        async with self._turn:
            await self._running()

    async def tell(self, request_id: str) -> dict[str, Any]:
        """Return the story of a request as `requite why --json` prints it, with the first 500 steps
        and events; `steps_more` and `events_more` count the others.

        `request_id` has 32 hexadecimal digits. Raises `StorageError`, also if too many searches
        wait.
        """
        return await self._ask({"tell": request_id})

    async def failures(self, within_s: float, count: int) -> dict[str, Any]:
        """Return the newest failed requests as `requite why --json --failed` prints them.

        Raises as `tell` does.
        """
        return await self._ask({"failures": [float(within_s), count]})

    async def close(self) -> None:
        """End the process. A search in progress fails."""
        self._is_closed = True
        await self._end()

    # --- inside -----------------------------------------------------------------------------------
    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._waiting >= _WAITING_MAX:
            raise StorageError(
                f"{_WAITING_MAX} searches of the journal wait already; try again in a few seconds"
            )
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._answered(question)
        finally:
            self._waiting -= 1
        if "error" in answer:
            raise StorageError(f"the journal cannot be searched: {answer['error']}")
        return answer

    async def _answered(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask, and return the answer. The process of a search that was given up is ended, since its
        answer would be taken for that of the next one."""
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{json.dumps(question)}\n".encode())
            async with asyncio.timeout(_WITHIN_S):
                line = await process.stdout.readline()
            answer: dict[str, Any] = json.loads(line)
        except TimeoutError:
            await self._end()
            raise StorageError(
                f"the search of the journal took more than {_WITHIN_S:.0f} s, and was given up"
            ) from None
        except ValueError:  # no whole line: the process has ended, or the line is too long
            await self._end()
            raise StorageError("the search of the journal failed: its process ended") from None
        except asyncio.CancelledError:
            await self._end()
            raise
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        await self._require_open()
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",  # modules come from where requite is installed, not from this folder
                    "-m",
                    _MODULE,
                    *self._places,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=_ANSWER_SIZE_MAX,
                    start_new_session=True,  # Ctrl-C reaches the server only
                )
            except OSError as error:
                raise StorageError(
                    f"the process that searches the journal cannot be started: {error}"
                ) from error
            await self._require_open()
        return self._process

    async def _require_open(self) -> None:
        """Raise `StorageError` if it was closed, perhaps while its process was started."""
        if self._is_closed:
            await self._end()
            raise StorageError("the search of the journal has been closed")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
