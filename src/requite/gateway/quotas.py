"""What the users of a gateway have in progress, and whether that is within their quotas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from requite.gateway.problems import Problem
from requite.protocols.majordomo.quotas import Usage, usage_for
from requite.shell import clock

if TYPE_CHECKING:
    from requite.gateway.bodies import Body
    from requite.principal import Principal


class Quotas:
    """The requests of each user with a quota: `requests`, `requests_per_s`, and their `bytes`."""

    def __init__(self) -> None:
        self._usages: dict[Principal, Usage] = {}

    @contextmanager
    def counted(self, principal: Principal, body: Body) -> Iterator[None]:
        """Count a request while it is in progress, and the bytes of its body as they are read.

        Raises `Problem` for one beyond the quota of its user.
        """
        usage = usage_for(self._usages, principal)
        if usage is None:
            yield
            return
        if why := usage.admit(b"", clock.now()):
            raise Problem("QuotaReached", f"{why}; the request has not run")
        usage.room -= 1
        body.usage = usage
        try:
            yield
        finally:
            usage.ended += 1

    def review(self) -> None:
        """Apply changed quotas."""
        for usage in self._usages.values():
            usage.renew()
        for principal in [each for each in self._usages if each.is_revoked]:
            del self._usages[principal]
