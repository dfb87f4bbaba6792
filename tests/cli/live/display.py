"""The display of `requite top` without a terminal: keys in, lines of text out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from textual.pilot import Pilot

from requite.cli.exit_codes import ExitCode
from requite.cli.failures import place_of
from requite.cli.live.app import TopApp
from requite.cli.live.polling import Poller
from requite.client import AsyncClient

WAIT_S: Final = 30.0
SMALL: Final = (80, 24)
LARGE: Final = (200, 50)


class Display:
    """A running display."""

    def __init__(self, pilot: Pilot[ExitCode], poller: Poller) -> None:
        self._pilot = pilot
        self.app: Any = pilot.app
        self.poller = poller

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def text(self) -> str:
        """What is on the screen, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.lines)

    def row(self, name: str) -> list[str]:
        """Return the words of the line that begins with a name; none: there is no such line."""
        found = [line.split() for line in self.lines]
        return next((words for words in found if words and words[0] == name), [])

    def names(self) -> list[str]:
        """Return the first words of the table's rows, from the top."""
        titles = next(n for n, line in enumerate(self.lines) if line.strip().startswith("SERVICE"))
        return [line.split()[0] for line in self.lines[titles + 1 : -1] if line.strip()]

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def click(self, word: str, times: int = 1) -> None:
        """Click at a word on the screen."""
        y = next(n for n, line in enumerate(self.lines) if word in line)
        await self._pilot.click(offset=(self.lines[y].index(word) + 1, y), times=times)
        await self._pilot.pause()

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal."""
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    async def until(self, look: Callable[[], object], within_s: float = WAIT_S) -> None:
        """Wait until `look` returns something true. Raises `AssertionError` with the screen."""
        try:
            async with asyncio.timeout(within_s):
                while not look():
                    await self._pilot.pause(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {within_s:g} s:\n{self.text}") from None

    async def until_shown(self, *texts: str) -> None:
        """Wait until all these texts are on the screen."""
        await self.until(lambda: all(text in self.text for text in texts))


@asynccontextmanager
async def displayed(
    url: str,
    size: tuple[int, int] = SMALL,
    *,
    interval_s: float = 0.2,
    timeout_s: float = 2.0,
    dialect: str | None = None,
) -> AsyncIterator[Display]:
    """Show a broker on a display of this size."""
    async with AsyncClient(url, timeout=timeout_s, dialect=dialect) as client:
        poller = Poller(client, url, interval_s)
        app = TopApp(poller, place_of(url))
        async with app.run_test(size=size) as pilot:
            yield Display(pilot, poller)
