"""Dialling without an event loop: one attempt at a time per address list.

Unlike the dialler in `aio_dialler`, it has no task that could sleep, so it publishes the instant of
its next action.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from requite.errors import TransportError
from requite.shell import clock
from requite.shell.connections import AddressList, Opened
from requite.transport.address import Address
from requite.transport.blocking import Attempt, Poll
from requite.transport.tls import TlsSettings


class Dialler:
    """Dials until every wanted connection is up, without limit; `opened` gets each stream.

    `at` is when to call `act`, to begin an attempt or to time out the current one (`inf`: never).
    `planned` is called whenever `at` has changed.
    """

    def __init__(
        self,
        poll: Poll,
        planned: Callable[[], None],
        addresses: AddressList,
        opened: Opened,
        tls: TlsSettings | None,
    ) -> None:
        self.at = inf
        self._addresses = addresses
        self._poll = poll
        self._opened = opened
        self._planned = planned
        self._tls = tls
        self._attempt: Attempt | None = None
        self._timeout_s = inf  # of that attempt

    def go_on(self) -> None:
        """Schedule an attempt if a connection is wanted and none is being dialled."""
        if self._addresses.wanted and self._attempt is None and self.at == inf:
            self.at = clock.now() + self._addresses.pause_s()
        self._planned()

    def close(self, reason: str) -> None:
        """Stop dialling and cancel the current attempt."""
        self._addresses.stop()
        self._addresses.wanted = 0
        if self._attempt is not None:
            self._attempt.give_up(reason)

    def act(self) -> None:
        """Begin an attempt, or time out the current one."""
        if self._attempt is not None:
            self._attempt.give_up(f"no answer within {self._timeout_s:g} s")
            return
        self._timeout_s = self._addresses.timeout_s()
        self.at = clock.now() + self._timeout_s
        self._attempt = Attempt(
            self._addresses.current, self._poll, self._dialled, self._failed, self._tls
        )
        self._planned()

    def _dialled(self, address: Address, stream: Any) -> None:
        self._attempt = None
        self.at = inf
        self._addresses.opened(address, self._opened(stream))
        self.go_on()

    def _failed(self, address: Address, error: TransportError) -> None:
        self._attempt = None
        self.at = inf
        self._addresses.failed(address, error)
        self.go_on()
