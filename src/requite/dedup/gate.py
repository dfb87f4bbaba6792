"""Between a service's worker and its handler: who asks, under which key, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, Protocol

from requite.dedup.inputs import Asked, GivenUp, Interrupted
from requite.dedup.records import DIGEST_SIZE, NO_DIGEST
from requite.engine import CancelHandler, Deliver, Finished, Input
from requite.request import Request

_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class

_BY_KEY: Final = b"k"
_BY_CALL: Final = b"c"

CallId = Callable[[Any], bytes]
"""Tells by the token of a request which call of which client it is; empty: nobody knows."""


class Handlers(Protocol):
    """Whoever runs handlers."""

    def deliver(self, token: Any, request: Request) -> None:
        """Run the handler."""

    def abandon(self, token: Any, reason: str) -> None:
        """Do not run it, if it has not started."""


class Gate:
    """One service at one store. Tokens are known to the store as pairs: the gate, the token.

    `feed` takes inputs for the store's engine. `handlers` and `tell`, which takes what is for the
    worker's engine, are set by whoever joins the three.
    """

    handlers: Handlers
    tell: Callable[[Input], None]

    def __init__(self, service: str, call_id: CallId, feed: Callable[[Input], None]) -> None:
        name = service.encode()
        self._prefix = len(name).to_bytes(2, "little") + name
        self._call_id = call_id
        self._feed = feed
        self._open: dict[Any, None] = {}  # tokens without an answer, and of handlers that run
        self.idle = asyncio.Event()
        """Set while nobody waits, and no handler runs, not even one without anybody who waits."""
        self.idle.set()

    def close(self) -> None:
        """Hear that the handlers have been stopped."""
        tokens = [(self, token) for token in self._open]
        self._open.clear()
        self.idle.set()
        self._feed(Interrupted(tokens))

    # --- for the worker's shell -------------------------------------------------------------------
    def ask(self, token: Any, request: Request) -> None:
        """Take a request."""
        key, digest = self._key_of(token, request)
        if not self._open:
            self.idle.clear()
        self._open[token] = None
        self._feed(_new(Asked, ((self, token), request, key, digest)))

    def ask_all(self, pairs: Iterable[tuple[Any, Request]]) -> None:
        """Take several requests."""
        for token, request in pairs:
            self.ask(token, request)

    def give_up(self, token: Any, reason: str) -> None:
        """Hear that nobody waits for a reply any more."""
        self._feed(GivenUp((self, token), reason))

    # --- for the handlers -------------------------------------------------------------------------
    def hear(self, event: Any) -> None:
        """Take what a handler says."""
        self._feed(replace(event, token=(self, event.token)))

    # --- for the store ----------------------------------------------------------------------------
    def perform(self, effect: Any) -> None:
        """Do what the store's engine answers about one of our tokens."""
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
            self.tell(replace(effect, token=token))

    def _key_of(self, token: Any, request: Request) -> tuple[bytes, bytes]:
        """What the request is known by, and, if its caller chose that, the digest of its body."""
        if request.idempotency_key:
            return _BY_KEY + self._prefix + request.idempotency_key, digest_of(request.frames)
        call_id = self._call_id(token)
        if not call_id:
            return b"", NO_DIGEST
        request.idempotency_key = call_id  # for the handler, whose effects may need a key as well
        return _BY_CALL + self._prefix + call_id, NO_DIGEST


def digest_of(frames: Iterable[bytes]) -> bytes:
    """Return what tells the bodies of two requests apart."""
    digest = blake2b(digest_size=DIGEST_SIZE)
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame)
    return digest.digest()
