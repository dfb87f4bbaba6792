"""The users of a gateway; `requite.web.authorization` says how a request shows whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from requite.access.guard import AccessOption, make_guard
from requite.gateway.problems import Problem
from requite.gateway.quotas import Quotas
from requite.principal import ANYONE, Principal
from requite.web.authorization import Authorization, TooManyChecks, Unauthorized

if TYPE_CHECKING:
    from starlette.requests import Request

    from requite.access.guard import Guard


class Users:
    """The users of a gateway, and their quotas; without an access file everybody may call
    everything."""

    def __init__(self, access: AccessOption | None) -> None:
        self.quotas: Final = Quotas()
        self._guard: Final = make_guard(
            access, None, changed=self.quotas.review, counts_requests=True
        )
        self._authorization: Final = None if self._guard is None else Authorization(self._guard)

    @property
    def guard(self) -> Guard | None:
        """The guard that reads the access file; None without one."""
        return self._guard

    def start(self) -> None:
        """Begin to follow the file."""
        if self._guard is not None:
            self._guard.start()

    async def close(self) -> None:
        """Follow it no more."""
        if self._guard is not None:
            await self._guard.close()

    def is_open(self, address: str) -> bool:
        """Whether a request without `Authorization` may call a method."""
        if self._guard is None:
            return True
        access = self._guard.access
        return access.has_anonymous and access.identify(None, "http").may("call", address)

    async def principal_of(self, request: Request) -> Principal:
        """Return the user that sends a request. Raises `Problem` for one of nobody."""
        if self._authorization is None:
            return ANYONE
        try:
            return await self._authorization.principal_of(request)
        except Unauthorized as refusal:
            detail = f"{refusal}; the request has not run"
            headers = {"WWW-Authenticate": ", ".join(refusal.challenges)}
            raise Problem("Unauthorized", detail, headers=headers) from None
        except TooManyChecks as refusal:
            raise Problem("Overloaded", f"{refusal}; it has not run") from None
