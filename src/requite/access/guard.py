"""`Guard`: lets the users of an access file connect to a listener, and follows the file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from requite.access.authentication import Answer, Ask, Authenticate, Authentication
from requite.access.authenticator import Authenticator
from requite.access.file import AccessFile
from requite.access.table import Access
from requite.chronicle import Kind
from requite.errors import ConfigurationError, RemoteViolation
from requite.framing.base import CredentialsRefused, Login
from requite.principal import INSIDE, Credential, Principal, Verb

_LOOK_EVERY_S: Final = 1.0  # at the file
_NAMED_MAX: Final = 20  # users in one warning
_log = logging.getLogger("requite.access")

AccessOption: TypeAlias = Access | str | Path
"""The users of a listener, or the path of their access file."""

AuthenticateOption: TypeAlias = Authenticate | Authenticator
"""A hook that is asked about each peer that the access file admits."""


_WRONG: Final = {
    "plain": "a wrong password, or an unknown user",
    "curve": "no user has this key",
}


def _nothing() -> None:
    """Withdraw nothing."""


Lacks: TypeAlias = Callable[[Principal, Any], str]
"""Returns which right a user lacks to connect at a place (`Link.place`), in words; "": none."""


def _allow(_principal: Principal, _place: Any) -> str:
    """Let every user connect."""
    return ""


def lacks_any(principal: Principal, verb: Verb) -> str:
    """Return that a user has no right of this verb, for a listener that knows no names of services;
    "" if it has one."""
    if principal.may_any(verb):
        return ""
    return f"{principal} has no right to {verb} any service ({verb} = [...] in the access file)"


def _forget(_kind: Kind, _principal: str, _reason: str) -> None:
    """Keep no record."""


class Guard:
    """Decides who may connect.

    `changed` is called on the event loop when users or rights have changed. `lacks` says who may
    not connect at all, and why. `record` is called with each decision: its kind, the principal or
    credential, and a sentence. `authenticator` is asked about each peer that the file admits. A
    listener that does not count requests (`counts_requests`) warns of quotas that limit them.
    """

    def __init__(
        self,
        access: AccessOption,
        changed: Callable[[], object],
        lacks: Lacks = _allow,
        record: Callable[[Kind, str, str], object] = _forget,
        authenticator: Authenticator | None = None,
        counts_requests: bool = False,
    ) -> None:
        self.access = access if isinstance(access, Access) else Access.read(access)
        self._changed = changed
        self._lacks = lacks
        self._record = record
        self._authenticator = authenticator
        self._counts_requests = counts_requests
        # One thread: floods of wrong passwords get a part of one core, at most.
        self._hashing = ThreadPoolExecutor(1, "check-password")
        self._following: asyncio.Task[None] | None = None
        self._is_closed = False
        self._reading = asyncio.Lock()  # an older content must not be applied after a newer one

    def identify(self, credential: Credential | None, peer_name: str, place: Any) -> Principal:
        """Return the owner of a connection. Raises `CredentialsRefused`."""
        try:
            principal = self.access.identify(credential, peer_name)
            if denied := self._lacks(principal, place):
                raise CredentialsRefused(denied)
        except CredentialsRefused as refusal:
            self._record(Kind.DENIED, str(credential or ""), str(refusal))
            raise
        return principal

    def identified(
        self, principal: Principal, credential: Credential | None, peer_name: str, refusal: str
    ) -> None:
        """Record whether the owner of a new connection is admitted, or why not. If there is a
        hook, it decides later."""
        if refusal:
            self._record(Kind.DENIED, principal.name, refusal)
        elif principal is not INSIDE and self._authenticator is None:
            self._record(Kind.ADMITTED, principal.name, _how(credential, peer_name))

    @property
    def ask(self) -> Ask | None:
        """Asks the hook about a peer that the file admits, and records the answer; None without a
        hook."""
        return None if self._authenticator is None else partial(self._ask, self._authenticator)

    def _ask(
        self, authenticator: Authenticator, peer: Authentication, answer: Answer
    ) -> Callable[[], object]:
        def record(refusal: RemoteViolation | None) -> None:
            if refusal is None:
                how = _how(peer.credential, peer.address)
                self._record(Kind.ADMITTED, peer.user, f"{how}, by the authenticate hook, too")
            else:
                self._record(Kind.DENIED, peer.user, str(refusal))
            answer(refusal)

        return authenticator.ask(peer, record)

    def verify(self, login: Login, decided: Callable[[], object]) -> Callable[[], object]:
        """See `requite.shell.admission.Verify`. A password that is not remembered is checked on a
        thread, since a hash takes as long as thousands of requests."""
        known = self.access.recall_password(login.user, login.password)
        if known is not None:
            login.decide(known)
            decided()
            return _nothing
        if self._is_closed:  # the connection waits until its listener closes, too
            return _nothing
        hashing = self._hashing.submit(login.check, login.user, login.password)
        checking = asyncio.wrap_future(hashing)

        def checked(check: asyncio.Future[Credential | None]) -> None:
            if check.cancelled():
                return
            if error := check.exception():
                _log.error("cannot check the password of %r: %s", login.user, error)
            login.decide(None if error else check.result())
            decided()

        def withdraw() -> None:
            hashing.cancel()  # if it has not begun; otherwise its result is ignored
            checking.cancel()

        checking.add_done_callback(checked)
        return withdraw

    def login_refused(self, peer_name: str, refusal: CredentialsRefused) -> None:
        """Record that the handshake of a peer was refused, with the credential that it showed."""
        shown = refusal.shown
        why = str(refusal) if shown is None else _WRONG.get(shown.kind, str(refusal))
        self._record(Kind.DENIED, str(shown or ""), f"{why}, from {peer_name}")

    def start(self) -> None:
        """Begin to follow the file, on the running event loop."""
        self._warn_of_quotas()
        self._following = asyncio.create_task(self._follow(), name="access-file")

    async def close(self) -> None:
        """Follow the file no more, and withdraw the questions to the hook."""
        self._is_closed = True
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        if self._authenticator is not None:
            await self._authenticator.close()
        self._hashing.shutdown(wait=False, cancel_futures=True)

    async def read_again(self) -> None:
        """Read the file now. Raises `ConfigurationError` for a bad one, and keeps the users."""
        await self._read(anyway=True)

    async def _follow(self) -> None:
        """Read the file whenever it changes."""
        told = ""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self._read()
                told = ""
            except ConfigurationError as error:
                if str(error) != told:  # a file that cannot be read is tried again each time
                    told = str(error)
                    _log.warning("the users and their rights remain as they were: %s", error)
            except Exception:  # whatever it is, later changes must count
                _log.exception("cannot apply the access file; it is read again when it changes")

    async def _read(self, *, anyway: bool = False) -> None:
        async with self._reading:
            self._apply(await asyncio.to_thread(self.access.changed_file, anyway=anyway))

    def _apply(self, file: AccessFile | None) -> None:
        if file is None:
            return
        changed = self.access.load(file)
        for name in changed:
            self._record(Kind.RIGHTS, name, "changed" if name in file.users else "removed")
        self._changed()
        names = ", ".join(changed) or "none"
        _log.info("read %s: %d users; changed: %s", file.path, len(file.users), names)
        self._warn_of_quotas()

    def _warn_of_quotas(self) -> None:
        """Warn of the limits of quotas that the listener does not enforce."""
        if self._counts_requests:
            return
        limited = [(user.name, user.quota.limits_of_requests) for user in self.access.users]
        ignored = [f"{name} ({', '.join(keys)})" for name, keys in limited if keys]
        if ignored:
            more = f"; and {len(ignored) - _NAMED_MAX} more" if len(ignored) > _NAMED_MAX else ""
            users = "; ".join(ignored[:_NAMED_MAX]) + more
            _log.warning("only a broker enforces these limits of requests of users: %s", users)


def make_guard(
    access: AccessOption | None,
    authenticate: AuthenticateOption | None,
    changed: Callable[[], object],
    lacks: Lacks = _allow,
    record: Callable[[Kind, str, str], object] = _forget,
    counts_requests: bool = False,
) -> Guard | None:
    """Return the guard of a listener; None without an access file. Raises `ConfigurationError` for
    a hook without a file, which says who the users are."""
    if access is None:
        if authenticate is not None:
            raise ConfigurationError(
                "`authenticate` needs an access file (`access=`): the hook is asked only about"
                " peers that the file admits"
            )
        return None
    if authenticate is not None and not isinstance(authenticate, Authenticator):
        authenticate = Authenticator(authenticate)
    return Guard(access, changed, lacks, record, authenticate, counts_requests)


def _how(credential: Credential | None, peer_name: str) -> str:
    return f"{credential or 'no credential'} from {peer_name}"
