"""Who sends an HTTP request: a user of the access file, by a token or a password.

Authorization: Bearer TOKEN            a user with `token` in the file
Authorization: Basic USER:PASSWORD     a user with `password`, in base 64 (RFC 7617)
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections import Counter
from typing import TYPE_CHECKING, Final

from requite.access.guard import AccessOption, make_guard
from requite.access.tokens import token_credential
from requite.framing.base import CredentialsRefused, Login
from requite.gateway.problems import Problem
from requite.gateway.quotas import Quotas
from requite.principal import ANYONE, Credential, Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from requite.access.guard import Guard

CHECKING_MAX: Final = 16
"""Passwords of one address that are checked at a time; each takes a thread some 50 ms."""


class Users:
    """The users of a gateway, and their quotas; without an access file everybody may call
    everything."""

    def __init__(self, access: AccessOption | None) -> None:
        self.quotas: Final = Quotas()
        self._guard: Final = make_guard(
            access, None, changed=self.quotas.review, counts_requests=True
        )
        self._checking: Counter[str] = Counter()  # passwords, by address

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
        if self._guard is None:
            return ANYONE
        credential = await self._credential_of(self._guard, request)
        client = request.client
        peer_name = "http" if client is None else f"http://{client.host}:{client.port}"
        try:
            return self._guard.identify(credential, peer_name, None)
        except CredentialsRefused:
            if credential is None:
                raise self._refusal("send Authorization") from None
            raise self._refusal("no user has this token or password") from None

    async def _credential_of(self, guard: Guard, request: Request) -> Credential | None:
        field = request.headers.get("authorization")
        if field is None:
            return None
        scheme, _, value = field.partition(" ")
        if scheme.lower() == "bearer":
            return token_credential(value.strip())
        if scheme.lower() != "basic":
            raise self._refusal("send Authorization: Bearer TOKEN, or Basic")
        try:
            user, colon, password = b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise self._refusal("the field Authorization is malformed")
        address = "" if request.client is None else request.client.host
        if self._checking[address] >= CHECKING_MAX:
            raise Problem("Overloaded", "too many passwords are being checked; it has not run")
        self._checking[address] += 1
        try:
            proof = await _proof(guard, user, password)
        finally:
            self._checking[address] -= 1
            self._checking += Counter()  # drops what is 0
        if proof is None:
            raise self._refusal("a wrong password, or an unknown user")
        return proof

    def _refusal(self, text: str) -> Problem:
        assert self._guard is not None
        ways = 'Bearer, Basic realm="requite", charset="UTF-8"'
        challenge = ways if self._guard.access.has_passwords else "Bearer"
        detail = f"{text}; the request has not run"
        return Problem("Unauthorized", detail, headers={"WWW-Authenticate": challenge})


async def _proof(guard: Guard, user: str, password: str) -> Credential | None:
    """Return what a password proves; None if it is wrong."""
    login = Login(user, password, guard.access.check_password)
    decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def decide() -> None:
        if not decided.done():
            decided.set_result(None)

    withdraw = guard.verify(login, decide)
    try:
        await decided
    except asyncio.CancelledError:
        withdraw()
        raise
    return login.proof
