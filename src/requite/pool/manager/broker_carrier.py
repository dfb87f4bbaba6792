"""Keeps a manager connected to a broker of MDP, and performs the effects of its engine.

    mmi.under ──► is this manager first? ──no──► stand by, and poll again
                            │yes
                            ▼
             the engine is active, and receives listings, while this manager is first

`RabbitCarrier` does the same for RabbitMQ. When the broker does not answer, or another manager is
first, the carrier feeds `Disconnected` at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from requite.errors import CallError, ConfigurationError, RemoteViolation
from requite.pool.config import PoolConfig
from requite.pool.drivers.base import Driver
from requite.pool.effects import HandOver, ListServices, StopConsuming
from requite.pool.inputs import (
    Connected,
    Disconnected,
    HandedOver,
    ServiceListFailed,
    ServicesListed,
)
from requite.pool.manager.carrier import State
from requite.pool.manager.election import Election, LeaderDriver
from requite.pool.manager.refusals import Refusals
from requite.pool.manager.services import ServiceListing, Services
from requite.shell import clock
from requite.shell.warnings import Warnings
from requite.speaks.registry import parse_url
from requite.speaks.url import redact
from requite.transport.address import InprocAddress

_log = logging.getLogger("requite.pool")
_FAILURES: Final = (CallError, RemoteViolation, OSError)


class BrokerCarrier:
    """Carrier at a broker of MDP; `feed` takes the results of effects."""

    def __init__(
        self,
        config: PoolConfig,
        feed: Callable[[Any], None],
        on_state: Callable[[State], object],
    ) -> None:
        check_url(config.broker.url)
        check_driver(config)
        self._config: Final = config
        self._feed: Final = feed
        self._on_state: Final = on_state
        self._warnings: Final = Warnings(_log, clock.now)
        self._services: Final = Services(config)
        self._refusals: Final = Refusals(config.broker.url, config.pool.name)
        self._election: Final = Election(config.broker.url, config.pool.name, self._describe)
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._lost: asyncio.Future[str] | None = None  # set while this manager is active
        self.state = State.CONNECTING
        self.messages: Mapping[str, int] = {}  # waiting requests at the last listing, by key
        self.flaws: Final[Mapping[str, Sequence[str]]] = {}  # services have none

    # --- lifecycle --------------------------------------------------------------------------------
    async def start(self) -> None:
        """Register, and poll the broker until `close`; retries until it answers."""
        await self._election.register()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Close all connections."""
        self._set_state(State.CLOSED)
        for task in (*self._tasks, *filter(None, (self._keeper,))):
            task.cancel()
            await asyncio.wait((task,))
        await self._refusals.close()
        await self._election.leave()
        await self._services.close()

    def guarded(self, driver: Driver) -> Driver:
        """Return a driver that acts only while this manager is active."""
        return LeaderDriver(driver, self._election)

    def poison(self) -> NoReturn:
        """Raise `ConfigurationError`: there is no queue of poisoned requests."""
        raise ConfigurationError(
            "a broker of MDP does not store poisoned requests: a request that has lost as"
            " many workers as `requite broker --attempts` allows fails with Poisoned at its"
            " caller"
        )

    async def tell_to_drain(self, _key: str) -> None:
        """Do nothing: a worker that its driver stops drains at the broker."""

    async def drain_workers(self, _key: str | None, _worker_id: str | None) -> NoReturn:
        """Raise `ConfigurationError`: a broker of MDP cannot pass this on to workers."""
        raise ConfigurationError(
            "cannot drain single workers: a manager cannot reach workers through a broker of"
            " MDP; drain their group instead (`requite pool drain KEY`)"
        )

    async def check(self) -> dict[str, str]:
        """Test the connection now; return faults by component."""
        try:
            await self._services.fetch()
        except _FAILURES as error:
            return {"broker": str(error) or repr(error)}
        return {}

    def _describe(self) -> Mapping[str, Any]:
        """Return the reply to requests for the managers' service."""
        return {"pool": self._config.pool.name, "state": str(self.state)}

    # --- election ---------------------------------------------------------------------------------
    async def _keep(self) -> None:
        while True:
            try:
                await self._run_connection()
            except Exception as error:  # no answer of a broker may end the manager
                self._warn(str(error) or repr(error))
                self._set_state(State.CONNECTING)
            await asyncio.sleep(self._config.broker.interval_s)

    async def _run_connection(self) -> None:
        """Run one election; if this manager is elected, return when it is no longer active."""
        asked_at = clock.now()
        listing = await self._services.fetch()
        if not self._election.confirm(listing.managers, asked_at):
            is_there = self._election.name in listing.managers
            self._set_state(State.STANDBY if is_there else State.CONNECTING)
            return
        self._lost = asyncio.get_running_loop().create_future()
        self._set_state(State.ACTIVE)
        self._feed(Connected())
        try:
            self._warn(await self._lost)
        finally:
            self._lost = None
            self._set_state(State.CONNECTING)
            self._feed(
                Disconnected("the broker does not answer, or another manager is active at it")
            )
            await self._refusals.close()

    def _lose(self, reason: str) -> None:
        if self._lost is not None and not self._lost.done() and not self._election.has_left:
            self._lost.set_result(reason)

    def _warn(self, reason: str) -> None:
        if not self._election.has_left:
            where = redact(self._config.broker.url)
            self._warnings.warn("broker", f"broker.url ({where}): {reason}; retrying")

    def _set_state(self, state: State) -> None:
        if state is not self.state and self.state is not State.CLOSED:
            self.state = state
            self._on_state(state)

    # --- effects ----------------------------------------------------------------------------------
    def perform(self, effect: Any) -> None:
        """Start to perform an effect; `Disconnected` follows if the broker does not answer."""
        match effect:
            case ListServices(ticket):
                work = self._list(ticket)
            case StopConsuming():
                work = self._election.leave()
            case HandOver():
                work = self._hand_over()
            case _:
                raise AssertionError(f"{effect!r} is not an effect for a broker of MDP")
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _list(self, ticket: int) -> None:
        asked_at = clock.now()
        try:
            listing = await self._services.fetch()
        except RemoteViolation as error:
            self._feed(ServiceListFailed(ticket, str(error)))
        except Exception as error:  # the engine needs a result in any case
            self._lose(str(error) or repr(error))
        else:
            if self._election.confirm(listing.managers, asked_at):
                await self._listed(ticket, listing)
            else:
                self._lose("another manager is active at the broker")

    async def _listed(self, ticket: int, listing: ServiceListing) -> None:
        self.messages = {key: seen.queued for key, seen in listing.groups.items()}
        self._feed(ServicesListed(ticket, listing.groups))
        await self._refusals.update(listing.others)

    async def _hand_over(self) -> None:
        """Leave, and find out whether another manager is registered."""
        await self._election.leave()
        try:
            managers = (await self._services.fetch()).managers
        except _FAILURES:
            managers = ()
        self._feed(HandedOver(taken=any(name != self._election.name for name in managers)))


def check_url(text: str) -> None:
    """Raise `ConfigurationError` for a URL that no manager can use."""
    shown = f"broker.url: {redact(text)}"
    try:
        url = parse_url(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"broker.url: {error}") from None
    if url.protocol != "mdp":
        raise ConfigurationError(
            f"{shown}: use the mdp:// URL of a broker; for RabbitMQ, set rabbitmq.url"
        )
    if url.service:
        raise ConfigurationError(
            f"{shown}: remove the service {url.service}; pool.name names the services"
        )
    if url.options.get("dialect", "0.3") != "0.3":
        raise ConfigurationError(f"{shown}: managers need MDP 0.3; remove `dialect`")
    if any(isinstance(address, InprocAddress) for address in url.addresses):
        raise ConfigurationError(
            f"{shown}: workers are other processes, which cannot reach an inproc address"
        )


def check_driver(config: PoolConfig) -> None:
    """Raise `ConfigurationError` for a driver that needs RabbitMQ."""
    if config.driver.kind == "kubernetes" and config.driver.settings.get("scaling") == "keda":
        raise ConfigurationError(
            'driver.scaling: "keda" requires a queue of RabbitMQ, but the pool uses broker.url'
        )
