"""The services of a broker: added when first named, removed when unused.

A client can name any service. So a service that had no worker exists only while a request waits
there, and is never in the way of a worker: workers may register for `services_max` services,
whatever clients have named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from requite.core.timers import Timers
from requite.protocols.majordomo.census import NO_TALLY, added, tally_of
from requite.protocols.majordomo.dialects import check_service_name
from requite.protocols.majordomo.parties import Client, PendingRequest, Service
from requite.protocols.majordomo.policy import BrokerPolicy

TOO_MANY = "the broker knows too many services (services_max, --services-max)"
_RECHECK_S: Final = 0.1  # for a service with queued requests; its time to live may be 0


class Directory:
    """Services by name. A bare service (no workers) that had some lives `service_ttl_s` longer; one
    that only a client has named, as long as a request waits there; a paused one, until it is
    resumed."""

    def __init__(self, policy: BrokerPolicy, timers: Timers[Any]) -> None:
        self._policy = policy
        self._timers = timers
        self.services: dict[bytes, Service] = {}
        self.forgotten = NO_TALLY  # what removed services had counted
        self._count = 0  # of services that were added
        self._served = 0  # the number of services with workers

    def find(self, name: bytes) -> Service | None:
        """Return the service of that name, if it is known.

        Raises `RemoteViolation` for an invalid name ([service-name]).
        """
        service = self.services.get(name)
        if service is None:
            check_service_name(name)
        return service

    def for_worker(self, name: bytes, now: float) -> Service | None:
        """Return the service of that name, added if unknown; None if too many have workers."""
        service = self.find(name)
        if service is None and self._served < self._policy.services_max:
            service = self.add(name, None, now)
        return service

    def refusal(self, client: Client) -> str:
        """Return why a client may not name a new service; "" if it may."""
        if client.usage is not None and (why := client.usage.exceeds_services()):
            return why
        if client.named >= self._policy.client_services_max:
            return (
                f"{client.named} services that the client has named have no worker, which is the"
                " limit (client_services_max, --client-services-max)"
            )
        return TOO_MANY if self.is_full else ""

    @property
    def is_full(self) -> bool:
        """Whether the limit of services is reached."""
        return len(self.services) >= self._policy.services_max

    @property
    def is_over_full(self) -> bool:
        """Whether the limit of services is exceeded."""
        return len(self.services) > self._policy.services_max

    def add(self, name: bytes, namer: Client | None, now: float) -> Service:
        """Add a service, even beyond the limit."""
        self._count += 1
        service = self.services[name] = Service(name, namer, self._count)
        if namer is not None:
            namer.count_named(1)
        self._timers.set(service, now + self._policy.service_ttl_s)
        return service

    def retire(self, service: Service, now: float) -> None:
        """Handle the end of a request in a queue.

        A bare service with an empty queue is removed if it had no worker, or as soon as possible
        while the limit is exceeded. The namer of a service always has a request there, so that its
        `named` changes with its requests.
        """
        if not service.is_bare or self.services.get(service.name) is not service:
            return
        if service.namer is None:
            if self.is_over_full:
                self._timers.set(service, now)
        elif not service.queue.length:
            self._forget_namer(service)
            self._timers.clear(service)
            self._remove(service)
        elif not service.queue.has_turn(service.namer):
            self._forget_namer(service)
            service.namer = next(iter(service.queue)).client
            service.namer.count_named(1)

    def keep(self, service: Service) -> None:
        """Keep a service that is paused, even if only a client has named it."""
        self._forget_namer(service)

    def first_worker_joined(self, service: Service) -> None:
        """Stop the expiry of a service."""
        self._served += 1
        self._forget_namer(service)
        self._timers.clear(service)

    def _forget_namer(self, service: Service) -> None:
        if service.namer is not None:
            service.namer.count_named(-1)
            service.namer = None

    def last_worker_left(
        self, service: Service, start_grace: Callable[[PendingRequest, float], None], now: float
    ) -> None:
        """Start the expiry of a service, and the grace period of its queued requests."""
        self._served -= 1
        for pending in service.queue:
            start_grace(pending, now)
        # Above the limit, workers that come and go must not fill the directory with bare services.
        ttl_s = 0.0 if self.is_over_full else self._policy.service_ttl_s
        self._timers.set(service, now + ttl_s)

    def due(self, service: Service, now: float) -> None:
        """Remove an expired service without workers and queued requests."""
        if service.is_bare and not service.queue.length and not service.is_paused:
            self._remove(service)
        elif service.is_bare:
            self._timers.set(service, now + max(self._policy.service_ttl_s, _RECHECK_S))

    def _remove(self, service: Service) -> None:
        del self.services[service.name]
        self.forgotten = added(self.forgotten, tally_of(service.counters))
