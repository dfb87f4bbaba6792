"""Service names as they are on the wire, each checked once."""

from __future__ import annotations

from typing import Final

from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.majordomo.dialects import check_service_name

_KNOWN_MAX: Final = 1024  # beyond it the table starts afresh: users may make names up


class ServiceNames(dict[str, bytes]):
    """Names by their text; a new one is checked and kept when it is first looked up.

    A dict that fills itself, since each call looks its service up. Raises `LocalViolation` for what
    is no service name (mdp-0.3 [service-name]).
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
