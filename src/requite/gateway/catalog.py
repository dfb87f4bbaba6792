"""The descriptions of the services behind a gateway, as it knows them.

A description is fetched when a method of its service is first called, and again when a call shows
that the service has changed, or when somebody asks for all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from requite.errors import CallError, ConfigurationError, NoService, ProtocolViolation
from requite.gateway.policy import KEPT_FOR_DESCRIPTIONS
from requite.gateway.problems import Problem, of_error
from requite.shell import clock
from requite.typed.fetching import SUFFIX, fetch_description, known_services

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from requite.client import AsyncClient
    from requite.typed.described import DescribedMethod, Description

SERVICES_MAX: Final = 256
"""Descriptions that a gateway keeps, and lists."""
FETCHED_S: Final = 1.0
"""For how long a fetched description is not fetched again, whatever calls show."""
_FETCH_TIMEOUT_S: Final = 5.0


class Entry(NamedTuple):
    """A description, and when it was fetched."""

    described: Description
    at: float

    def method(self, address: str) -> DescribedMethod | None:
        """Return the method that is served under an address."""
        methods = self.described.methods
        return next((each for each in methods if each.address == address), None)


class Catalog:
    """The descriptions of services: `named` ones, or without names all that the broker knows.

    `asks_broker`: whether there is a broker that answers `mmi.service`.
    """

    def __init__(self, client: AsyncClient, named: Sequence[str], *, asks_broker: bool) -> None:
        self._client: Final = client
        self._named: Final = tuple(named)
        self._asks_broker: Final = asks_broker
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # the least recently used first
        self._turn: Final = asyncio.Semaphore(KEPT_FOR_DESCRIPTIONS - 1)  # one is for `check`
        self._fetching: dict[str, asyncio.Task[Entry]] = {}

    async def find(self, address: str) -> tuple[Entry, DescribedMethod]:
        """Return the description of a method's service, and of the method. Raises `Problem`."""
        service = address.rpartition(".")[0]
        entry = await self._entry(service, address)
        method = entry.method(address)
        if method is None:
            entry = await self.newer(entry)
            method = entry.method(address)
        if method is None:
            raise Problem("NoMethod", f"{service} has no method {address!r}; it has not run")
        return entry, method

    async def newer(self, entry: Entry) -> Entry:
        """Return a description fetched again, or the same one if it is new. Raises `Problem`."""
        if clock.now() < entry.at + FETCHED_S:
            return entry
        return await self._fetched(entry.described.prefix)

    async def all(self, wanted: Callable[[str], bool]) -> list[Description]:
        """Return the descriptions of all services that are `wanted`, and can be had now.

        Raises `Problem` if the broker cannot be asked for its services.
        """
        names = [name for name in await self._names() if wanted(name)][:SERVICES_MAX]
        found = await asyncio.gather(*map(self._one, names))
        return [each.described for each in found if each is not None]

    async def check(self) -> str:
        """Return why no call can reach the broker now; "" if one can."""
        if not self._asks_broker:
            return ""
        try:
            await self._client.call(b"", service="mmi.service", timeout=FETCHED_S)
        except CallError as error:
            return str(error)
        return ""

    async def close(self) -> None:
        """Fetch nothing any more."""
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        if fetching:
            await asyncio.wait(fetching)

    # --- parts ------------------------------------------------------------------------------------
    async def _names(self) -> Sequence[str]:
        if self._named:
            return self._named
        try:
            return await asyncio.wait_for(known_services(self._client), _FETCH_TIMEOUT_S)
        except TimeoutError:
            raise Problem("CallTimeout", "the broker did not list its services") from None
        except (CallError, ProtocolViolation) as error:
            raise of_error(error) from error

    async def _one(self, service: str) -> Entry | None:
        try:
            entry = self._entries.get(service)
            return await (self._fetched(service) if entry is None else self.newer(entry))
        except Problem:
            return self._entries.get(service)

    async def _entry(self, service: str, address: str) -> Entry:
        entry = self._entries.get(service)
        if entry is not None:
            self._entries.move_to_end(service)
            return entry
        if not service or (self._named and service not in self._named):
            raise Problem("NoMethod", f"this gateway has no method {address!r}; it has not run")
        return await self._fetched(service)

    async def _check_known(self, service: str) -> None:
        """Raise `Problem` for a service without workers: a request would have the broker keep its
        name."""
        name = f"{service}{SUFFIX}".encode(errors="replace")
        try:
            asked = self._client.call(name, service="mmi.service", timeout=_FETCH_TIMEOUT_S)
            code = (await asked).body
        except CallError as error:
            raise of_error(error) from error
        if code == b"404":
            raise Problem(
                "NoMethod", f"no worker serves {name.decode()!r}; the request has not run"
            )

    async def _fetched(self, service: str) -> Entry:
        """Fetch a description; requests that need the same one share it."""
        task = self._fetching.get(service)
        if task is None:
            task = self._fetching[service] = asyncio.create_task(self._fetch(service))
            task.add_done_callback(partial(self._ended, service))
        return await asyncio.shield(task)

    def _ended(self, service: str, task: asyncio.Task[Entry]) -> None:
        del self._fetching[service]
        if not task.cancelled():
            task.exception()  # perhaps no request waits for it any more

    async def _fetch(self, service: str) -> Entry:
        async with self._turn:
            return await self._fetch_now(service)

    async def _fetch_now(self, service: str) -> Entry:
        if not self._named and service not in self._entries:
            await self._check_known(service)
        try:
            described = await asyncio.wait_for(
                fetch_description(self._client, service), _FETCH_TIMEOUT_S
            )
        except TimeoutError:
            raise Problem(
                "CallTimeout", f"{service} did not describe itself; the request has not run"
            ) from None
        except NoService:
            text = f"no worker serves {service}{SUFFIX}; the request has not run"
            raise Problem("NoService", text) from None
        except (CallError, ProtocolViolation, ConfigurationError) as error:
            problem = of_error(error)
            # What failed was a request of the gateway's own.
            text = f"cannot ask {service} for its methods, so the request has not run: {error}"
            raise Problem(problem.error, text, kind=problem.kind) from error
        if described.prefix != service:
            raise Problem(
                "BadDescription",
                f"{service} describes itself as {described.prefix[:100]!r}; the request has not"
                " run",
            )
        entry = self._entries[service] = Entry(described, clock.now())
        self._entries.move_to_end(service)
        while len(self._entries) > SERVICES_MAX:
            self._entries.popitem(last=False)
        return entry
