"""The services a broker knows: made when first named, forgotten when nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from requite.core.timers import Timers
from requite.protocols.majordomo.dialects import check_service_name
from requite.protocols.majordomo.parties import PendingRequest, Service
from requite.protocols.majordomo.policy import BrokerPolicy

TOO_MANY = "the broker knows too many services (services_max, --services-max)"
_LOOK_AGAIN_S: Final = 0.1  # at a service that somebody waits for; its time to live may be 0


class Directory:
    """Services by name. A bare service (no workers) lives `service_ttl_s` after its last use."""

    def __init__(self, policy: BrokerPolicy, timers: Timers[Any]) -> None:
        self._policy = policy
        self._timers = timers
        self.services: dict[bytes, Service] = {}

    def find(self, name: bytes, now: float) -> Service | None:
        """Return the service of that name, made if need be; None when there are too many.

        Raises `RemoteViolation` for a name that is none ([service-name]).
        """
        service = self.services.get(name)
        if service is None:
            check_service_name(name)
            if self.is_full:
                return None
            service = self.add(name, now)
        return service

    @property
    def is_full(self) -> bool:
        """Whether there are as many services as there may be."""
        return len(self.services) >= self._policy.services_max

    @property
    def is_over_full(self) -> bool:
        """Whether there are more services than there may be."""
        return len(self.services) > self._policy.services_max

    def add(self, name: bytes, now: float) -> Service:
        """Make a service, be there too many or not."""
        service = self.services[name] = Service(name)
        self._timers.set(service, now + self._policy.service_ttl_s)
        return service

    def retire(self, service: Service, now: float) -> None:
        """Forget a bare service as soon as nobody waits for it, while there are too many."""
        if service.is_bare and self.is_over_full:
            self._timers.set(service, now)

    def first_worker_joined(self, service: Service) -> None:
        """Keep a service that has a worker."""
        self._timers.clear(service)

    def last_worker_left(
        self, service: Service, start_grace: Callable[[PendingRequest, float], None], now: float
    ) -> None:
        """Start the clocks of a service that has lost its last worker, and of its requests."""
        for pending in service.queue:
            start_grace(pending, now)
        self._timers.set(service, now + self._policy.service_ttl_s)

    def due(self, service: Service, now: float) -> None:
        """Forget a service that nobody serves and nobody waits for."""
        if service.is_bare and not service.queue.length:
            del self.services[service.name]
        elif service.is_bare:
            self._timers.set(service, now + max(self._policy.service_ttl_s, _LOOK_AGAIN_S))
