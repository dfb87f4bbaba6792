"""Dialling without an event loop: one attempt at a time, whenever its owner's poll allows.

The asyncio one is in `aio_dialler`; this one has no task to sleep in, so it names the instant at
which it has something to do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from requite.errors import TransportError
from requite.shell import clock
from requite.shell.connections import Dialable, Opened
from requite.transport.address import Address
from requite.transport.blocking import Attempt, Poll
from requite.transport.tls import TlsSettings

_DIAL_TIMEOUT_S: Final = 10.0


class Dialler:
    """Dials as often as connections are wanted, and gives up never; `opened` gets each stream.

    `at` is when to call `act`: to begin an attempt, or to give the present one up (`inf`: at no
    time). `planned` is called whenever it has changed.
    """

    def __init__(
        self,
        poll: Poll,
        planned: Callable[[], None],
        dialable: Dialable,
        opened: Opened,
        tls: TlsSettings | None,
    ) -> None:
        self.at = inf
        self._dialable = dialable
        self._poll = poll
        self._opened = opened
        self._planned = planned
        self._tls = tls
        self._wanted = 0
        self._stopped = False
        self._attempt: Attempt | None = None
        self._timeout_s = _DIAL_TIMEOUT_S  # of that attempt

    def want(self) -> None:
        """Dial once more, unless dialling has stopped for good."""
        if not self._stopped:
            self._wanted += 1
            self._plan()

    def close(self, reason: str) -> None:
        """Dial no more."""
        self._stopped = True
        self._wanted = 0
        if self._attempt is not None:
            self._attempt.give_up(reason)

    def act(self) -> None:
        """Do what is due."""
        if self._attempt is not None:
            self._attempt.give_up(f"no answer within {self._timeout_s:g} s")
            return
        self._timeout_s = min(_DIAL_TIMEOUT_S, self._dialable.patience_s())
        self.at = clock.now() + self._timeout_s
        self._attempt = Attempt(
            self._dialable.current, self._poll, self._dialled, self._failed, self._tls
        )
        self._planned()

    def _plan(self) -> None:
        """Dial when it is time, if a connection is wanted and none is on its way."""
        if self._wanted and self._attempt is None and self.at == inf:
            self.at = clock.now() + self._dialable.pause_s()
        self._planned()

    def _dialled(self, address: Address, stream: Any) -> None:
        self._attempt = None
        self.at = inf
        self._wanted -= 1
        self._dialable.opened(address, self._opened(stream))
        self._plan()

    def _failed(self, address: Address, error: TransportError) -> None:
        self._attempt = None
        self.at = inf
        self._dialable.failed(address, error)
        self._plan()
