"""`Authenticator`: runs the hook of the user, with a time limit, and a few at a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Final

from requite.access.authentication import (
    Answer,
    Authenticate,
    Authentication,
    AuthenticationUnavailable,
)
from requite.errors import ConfigurationError, RemoteViolation
from requite.framing.base import CredentialsRefused

_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 64
# The part of `at_once` that one user may have, so that its connections do not delay others.
_SHARE: Final = 4


class Authenticator:
    """Asks a hook about each peer that the access file admits.

    - `hook`: returns True to admit a peer. False refuses it, and so does an exception: a
      `CredentialsRefused` with the reason, and any other one as a failure of the hook.
    - `timeout`: seconds for the hook; a peer without an answer is refused.
    - `at_once`: maximum number of peers asked about at a time, a quarter of them of one user;
      others wait.

    A peer that the hook does not want is told so (ERROR 400 of ZMTP), and tries no more. One that
    is refused because the hook failed or is late is disconnected without a word, so that it tries
    again. Raises `ConfigurationError` for limits that are not positive.
    """

    def __init__(
        self, hook: Authenticate, *, timeout: float = _TIMEOUT_S, at_once: int = _AT_ONCE
    ) -> None:
        if not (timeout > 0 and at_once > 0):
            raise ConfigurationError(
                f"timeout and at_once of an authenticator must be positive, not {timeout:g} and"
                f" {at_once}"
            )
        self._hook = hook
        self._timeout_s = timeout
        self._turn = asyncio.Semaphore(at_once)
        self._turn_of_user: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max(1, at_once // _SHARE))
        )
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, peer: Authentication, answer: Answer) -> Callable[[], object]:
        """Ask the hook on the running event loop; see `Ask`."""
        task = asyncio.create_task(self._ask(peer, answer), name="authenticate")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task.cancel

    async def close(self) -> None:
        """Withdraw all questions."""
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, peer: Authentication, answer: Answer) -> None:
        async with self._turn_of_user[peer.user], self._turn:
            refusal = await self._refusal(peer)
        answer(refusal)

    async def _refusal(self, peer: Authentication) -> RemoteViolation | None:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                admitted = await self._hook(peer)
        except (CredentialsRefused, AuthenticationUnavailable) as refusal:
            return refusal
        except Exception as error:
            if limit.expired():
                return AuthenticationUnavailable(
                    f"the authenticate hook did not answer within {self._timeout_s:g} s"
                )
            return AuthenticationUnavailable(f"the authenticate hook raised {_told(error)}")
        # A hook that forgets to return something admits nobody.
        return None if admitted is True else CredentialsRefused("the authenticate hook refuses it")


def _told(error: Exception) -> str:
    """Return the type of an error and its place. Its text may contain secrets."""
    frame = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
