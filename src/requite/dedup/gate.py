"""The gate between a service's worker and its handler: finds keys and routes effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, Protocol

from requite.dedup.engine import KEY_REUSED
from requite.dedup.inputs import Asked, GivenUp, Interrupted
from requite.dedup.records import DIGEST_SIZE, NO_DIGEST, encode_key
from requite.engine import CancelHandler, Deliver, Finished, Input
from requite.request import FINAL, Request, Status

_new: Final = tuple.__new__  # half the cost of calling a NamedTuple's class

CallId = Callable[[Any], bytes]
"""Returns the call id for the token of a request; empty if unknown."""


class Handlers(Protocol):
    """The interface of the runner of handlers."""

    def deliver(self, token: Any, request: Request) -> None:
        """Run the handler."""

    def abandon(self, token: Any, reason: str) -> None:
        """Cancel the handler, if it has not started."""


class Gate:
    """One service at one store. The store's engine gets tokens as pairs: the gate, the token.

    `feed` takes inputs for the store's engine. `handlers`, and `tell` for the worker's engine, are
    set when the three are connected. `key_reused` is sent instead of the engine's own reason to a
    request with the key of another one.
    """

    handlers: Handlers
    tell: Callable[[Input], None]
    key_reused: bytes | None = None

    def __init__(self, service: str, call_id: CallId, feed: Callable[[Input], None]) -> None:
        self._service = service.encode()
        self._call_id = call_id
        self._feed = feed
        self._open: dict[Any, None] = {}  # unanswered tokens, and those of running handlers
        self.idle = asyncio.Event()
        """Set while no caller waits and no handler runs."""
        self.idle.set()

    def close(self) -> None:
        """Report to the engine that the handlers have been stopped."""
        tokens = [(self, token) for token in self._open]
        self._open.clear()
        self.idle.set()
        self._feed(Interrupted(tokens))

    # --- for the worker's shell -------------------------------------------------------------------
    def ask(self, token: Any, request: Request) -> None:
        """Submit a request to the engine."""
        key, digest = self._key_of(token, request)
        if not self._open:
            self.idle.clear()
        self._open[token] = None
        self._feed(_new(Asked, ((self, token), request, key, digest)))

    def ask_all(self, pairs: Iterable[tuple[Any, Request]]) -> None:
        """Submit several requests to the engine."""
        for token, request in pairs:
            self.ask(token, request)

    def give_up(self, token: Any, reason: str) -> None:
        """Report to the engine that the caller does not wait any more."""
        self._feed(GivenUp((self, token), reason))

    # --- for the handlers -------------------------------------------------------------------------
    def hear(self, event: Any) -> None:
        """Pass a handler's input to the engine."""
        self._feed(replace(event, token=(self, event.token)))

    # --- for the store ----------------------------------------------------------------------------
    def perform(self, effect: Any) -> None:
        """Perform an effect of the engine on one of our tokens."""
        token, kind = effect.token[1], effect.__class__
        if kind is Deliver:
            self.handlers.deliver(token, effect.what)
        elif kind is CancelHandler:
            self.handlers.abandon(token, effect.reason)
        else:
            if kind is Finished:
                self._open.pop(token, None)
                if not self._open:
                    self.idle.set()
                if self.key_reused is not None and _is_key_reused(effect):
                    effect = replace(effect, frames=(self.key_reused, FINAL))
            self.tell(replace(effect, token=token))

    def _key_of(self, token: Any, request: Request) -> tuple[bytes, bytes]:
        """Return the key of a request, which belongs to its principal, and the digest of its
        body."""
        identifier, is_call = request.idempotency_key, False
        if not identifier:
            identifier, is_call = self._call_id(token), True
            if not identifier:
                return b"", NO_DIGEST
            request.idempotency_key = identifier  # for the handler, which may pass it on
        principal = request.principal.encode()
        key = encode_key(self._service, identifier, principal, is_call=is_call)
        return key, digest_of(request.frames)


def _is_key_reused(end: Finished) -> bool:
    return end.status is Status.FAILED and end.frames[0] == KEY_REUSED


def digest_of(frames: Iterable[bytes]) -> bytes:
    """Return a digest of a request's body."""
    digest = blake2b(digest_size=DIGEST_SIZE)
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame)
    return digest.digest()
