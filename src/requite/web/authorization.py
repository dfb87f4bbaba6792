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

from requite.access.tokens import token_credential
from requite.framing.base import CredentialsRefused, Login
from requite.principal import Credential, Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from requite.access.guard import Guard

CHECKING_MAX: Final = 16
"""Passwords of one address that are checked at a time; each takes a thread some 50 ms."""


_WAYS: Final = ("Bearer", 'Basic realm="requite", charset="UTF-8"')


class Unauthorized(Exception):
    """A request of nobody. `challenges` are values of `WWW-Authenticate`. Browsers know only the
    first one of a line, so answers to them need a line for each."""

    def __init__(self, text: str, challenges: tuple[str, ...]) -> None:
        super().__init__(text)
        self.challenges = challenges


class TooManyChecks(Exception):
    """`CHECKING_MAX` passwords of an address are being checked."""


class Authorization:
    """Finds the user of a request in the access file of `guard`."""

    def __init__(self, guard: Guard) -> None:
        self._guard: Final = guard
        self._checking: Counter[str] = Counter()  # passwords, by address

    async def principal_of(self, request: Request) -> Principal:
        """Return the user that sends a request. Raises `Unauthorized` and `TooManyChecks`."""
        credential = await self._credential_of(request)
        client = request.client
        peer_name = "http" if client is None else f"http://{client.host}:{client.port}"
        try:
            return self._guard.identify(credential, peer_name, None)
        except CredentialsRefused:
            if credential is None:
                raise self._refusal("send Authorization") from None
            raise self._refusal("no user has this token or password") from None

    async def _credential_of(self, request: Request) -> Credential | None:
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
        proof = await self._check(address, user, password)
        if proof is None:
            raise self._refusal("a wrong password, or an unknown user")
        return proof

    async def _check(self, address: str, user: str, password: str) -> Credential | None:
        if self._checking[address] >= CHECKING_MAX:
            raise TooManyChecks("too many passwords are being checked")
        self._checking[address] += 1
        try:
            return await _proof(self._guard, user, password)
        finally:
            self._checking[address] -= 1
            self._checking += Counter()  # drops what is 0

    def _refusal(self, text: str) -> Unauthorized:
        return Unauthorized(text, _WAYS if self._guard.access.has_passwords else _WAYS[:1])


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
