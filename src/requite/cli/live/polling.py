"""Ask a broker for its numbers, again and again, at a bounded cost for the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from math import nan
from typing import Final, NamedTuple

from requite.cli.failures import advised, place_of, sentence
from requite.cli.live.worker_rows import WorkerRow, rows_in
from requite.cli.presence import unless_refused
from requite.cli.services import ask
from requite.client import AsyncClient
from requite.errors import Denied, RemoteViolation, RequiteError
from requite.metrics.figures import BrokerFigures, figures_in, figures_of
from requite.protocols.majordomo.answers import parsed
from requite.protocols.majordomo.census import NO_TALLY
from requite.protocols.majordomo.reading import Reading, from_json
from requite.shell import clock

SHARE_MAX: Final = 1 / 50
"""The share of a broker's time that goes into answers, at most. One with 10,000 services takes
about 100 ms for an answer."""

_AFTER_TROUBLE_S: Final = 1.0
_UNKNOWN: Final = b"501"
_FORBIDDEN: Final = b"403"


class Seen(NamedTuple):
    """What a broker answered. `took_s`: how long that took, without the way. `is_other`: it is not
    the broker of the answer before: it was restarted, or the other one of its pair serves.

    `workers` are those of `service`; None: the broker was not asked for any.
    """

    figures: BrokerFigures
    took_s: float
    is_other: bool
    service: str
    workers: list[WorkerRow] | None


class Trouble(NamedTuple):
    """Why a broker did not answer: a sentence, for people, and the error."""

    text: str
    error: RequiteError


class Poller:
    """Asks one broker. `interval_s` is the time between two questions, and may change at any time;
    while answers take long, it is longer (`pause_s`). At most one question is outstanding.

    `service`: also ask for the workers of this service. `asked_at`: when the outstanding question
    was asked; None: none is outstanding.
    """

    def __init__(self, client: AsyncClient, url: str, interval_s: float) -> None:
        self._client: Final = client
        self._url: Final = url
        self.interval_s = interval_s
        self.service = ""
        self.asked_at: float | None = None
        self._before: Reading | None = None
        self._workers: tuple[str, list[WorkerRow]] = ("", [])
        self._took_s = 0.0
        self._hurry: Final = asyncio.Event()

    @property
    def pause_s(self) -> float:
        """The time between an answer and the next question, in seconds."""
        return max(self.interval_s, self._took_s / SHARE_MAX)

    @property
    def is_slowed(self) -> bool:
        """Whether answers take so long that the broker is asked less often than wanted."""
        return self.pause_s > self.interval_s

    def hurry(self) -> None:
        """Ask as soon as the cost allows it, since the interval or the service has changed."""
        self._hurry.set()

    async def updates(self) -> AsyncIterator[Seen | Trouble]:
        """Yield what the broker answers, or why it does not, without end."""
        while True:
            try:
                seen = await self.look()
            except RequiteError as error:
                yield Trouble(sentence(error), error)
                await self._pause(_AFTER_TROUBLE_S)
            else:
                yield seen
                await self._pause(self._took_s / SHARE_MAX)

    async def look(self) -> Seen:
        """Ask once. Raises the errors of calls, and `RemoteViolation` for a broker that cannot
        answer."""
        service = self.service
        self.asked_at = clock.now()
        try:
            with advised(self._url, is_request=False):
                reading, rows = await unless_refused(self._client, self._ask(service))
        finally:
            self.asked_at = None
        before, self._before = self._before, reading
        figures = None if before is None else figures_of(before, reading)
        is_other = before is not None and before.broker != reading.broker
        figures = figures or first_figures(reading)
        workers = None if rows is None else self._workers_in(service, rows, figures.interval_s)
        return Seen(figures, self._took_s, is_other, service, workers)

    async def pause(self) -> None:
        """Wait until the broker may be asked again."""
        await asyncio.sleep(self.pause_s)

    async def _pause(self, least_s: float) -> None:
        """Wait for the interval, and for `least_s` even if somebody is in a hurry."""
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self.interval_s - least_s)):
                await self._hurry.wait()
        self._hurry.clear()

    async def _ask(self, service: str) -> tuple[Reading, bytes | None]:
        """Return the answers, and measure them. A ping, which costs a broker nothing, takes as long
        as the connection and the way of an answer, and as the requests before it."""
        started_at = clock.now()
        await self._client.call(b"", service="mmi.ping")
        ponged_at = clock.now()
        census = (await self._client.call(b"", service="mmi.census")).body
        rows = None
        if service:
            rows = (await self._client.call(service.encode(), service="mmi.workers")).body
        self._took_s = max(0.0, clock.now() - ponged_at - (ponged_at - started_at))
        return await self._reading_in(census), rows

    async def _reading_in(self, answer: bytes) -> Reading:
        if answer == _FORBIDDEN:
            text = "the broker shows its numbers only to users with the right `admin` of `stats`"
            raise Denied(text, may_have_executed=False)
        if answer == _UNKNOWN:
            await ask(self._client)  # raises an error if it is no broker of requite
            raise RemoteViolation(
                "the broker is an older requite, which does not know mmi.census: upgrade it, or"
                f" use `requite services {place_of(self._url)}`"
            )
        try:
            return from_json(answer)
        except ValueError as error:
            raise _unreadable("mmi.census", error) from error

    def _workers_in(self, service: str, answer: bytes, interval_s: float) -> list[WorkerRow]:
        asked_before, before = self._workers
        try:
            earlier = before if asked_before == service else ()
            rows = rows_in(parsed(answer), earlier, interval_s)
        except ValueError as error:
            raise _unreadable("mmi.workers", error) from error
        self._workers = service, rows
        return rows


def _unreadable(name: str, error: ValueError) -> RemoteViolation:
    return RemoteViolation(
        f"the broker's answer to {name} cannot be read ({error}): it is not a requite broker, or"
        " one of another version"
    )


def first_figures(reading: Reading) -> BrokerFigures:
    """Return the figures of a single reading: rates are not known yet, so they are NaN."""
    found = figures_of(reading._replace(at=reading.at - 1), reading)
    assert found is not None
    unknown = figures_in(NO_TALLY, nan)
    services = tuple(each._replace(happened=unknown) for each in found.services)
    return found._replace(interval_s=nan, happened=unknown, services=services)
