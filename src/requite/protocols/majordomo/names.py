"""Encoded service names, each validated once."""

from __future__ import annotations

from typing import Final

from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.majordomo.dialects import check_service_name

_KNOWN_MAX: Final = 1024  # the cache is cleared beyond it: users may generate names


class ServiceNames(dict[str, bytes]):
    """Cache of encoded service names; validates a name on first use.

    A dict with `__missing__`, since each call looks up its service. Raises `LocalViolation` for an
    invalid service name (mdp-0.3 [service-name]).
    """

    def __missing__(self, service: str) -> bytes:
        name = service.encode()
        try:
            check_service_name(name)
        except RemoteViolation as violation:
            raise LocalViolation(str(violation)) from violation
        if len(self) >= _KNOWN_MAX:
            self.clear()
        self[service] = name
        return name
