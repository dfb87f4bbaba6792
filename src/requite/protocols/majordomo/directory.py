"""The services of a broker: added when first named, removed when unused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from requite.core.timers import Timers
from requite.protocols.majordomo.dialects import check_service_name
from requite.protocols.majordomo.parties import PendingRequest, Service
from requite.protocols.majordomo.policy import BrokerPolicy

TOO_MANY = "the broker knows too many services (services_max, --services-max)"
_RECHECK_S: Final = 0.1  # for a service with queued requests; its time to live may be 0


class Directory:
    """Services by name. A bare service (no workers) lives `service_ttl_s` after its last use."""

    def __init__(self, policy: BrokerPolicy, timers: Timers[Any]) -> None:
        self._policy = policy
        self._timers = timers
        self.services: dict[bytes, Service] = {}

    def find(self, name: bytes, now: float) -> Service | None:
        """Return the service of that name, added if unknown; None if there are too many.

        Raises `RemoteViolation` for an invalid name ([service-name]).
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
        """Whether the limit of services is reached."""
        return len(self.services) >= self._policy.services_max

    @property
    def is_over_full(self) -> bool:
        """Whether the limit of services is exceeded."""
        return len(self.services) > self._policy.services_max

    def add(self, name: bytes, now: float) -> Service:
        """Add a service, even beyond the limit."""
        service = self.services[name] = Service(name)
        self._timers.set(service, now + self._policy.service_ttl_s)
        return service

    def retire(self, service: Service, now: float) -> None:
        """While the limit is exceeded, remove a bare service as soon as its queue is empty."""
        if service.is_bare and self.is_over_full:
            self._timers.set(service, now)

    def first_worker_joined(self, service: Service) -> None:
        """Stop the expiry of a service."""
        self._timers.clear(service)

    def last_worker_left(
        self, service: Service, start_grace: Callable[[PendingRequest, float], None], now: float
    ) -> None:
        """Start the expiry of a service, and the grace period of its queued requests."""
        for pending in service.queue:
            start_grace(pending, now)
        self._timers.set(service, now + self._policy.service_ttl_s)

    def due(self, service: Service, now: float) -> None:
        """Remove an expired service without workers and queued requests."""
        if service.is_bare and not service.queue.length:
            del self.services[service.name]
        elif service.is_bare:
            self._timers.set(service, now + max(self._policy.service_ttl_s, _RECHECK_S))
