"""Runs a Titanic engine on an event loop, between its services, its store and its client.

All inputs of a turn of the loop are fed to the engine as one batch at the end of the turn, so that
submissions share one `Store`; the store's thread shares one sync among all waiting `Store`s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final

from requite.engine import (
    Cancel,
    Effect,
    Finished,
    Input,
    Load,
    Note,
    Stopped,
    Store,
    Submit,
    Wake,
    Warn,
)
from requite.errors import LocalViolation
from requite.protocols.titanic.engine import TitanicEngine
from requite.protocols.titanic.wire import REPLICATE
from requite.shell import clock
from requite.shell.warnings import Warnings

_TIMER_LATE_S: Final = 0.001  # uvloop's timers count in whole milliseconds


def _no_replica(effect: Submit | Cancel) -> None:
    raise LocalViolation(f"no replica is configured for {effect!r:.200}")


class Desk:
    """Feeds the engine and performs its effects, from `start` to `close`."""

    engine: TitanicEngine

    def __init__(self, note: Callable[[Note], None]) -> None:
        self.stopped = asyncio.Event()
        self.failed = asyncio.Event()  # the store has failed
        self._warnings = Warnings(logging.getLogger("requite.titanic"), clock.now)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: list[Input] = []
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = inf
        self._perform_other: dict[type, Callable[[Any], None]] = {
            Warn: lambda effect: self._warnings.warn(effect.kind, effect.text),
            Note: note,
            Stopped: lambda _effect: self.stopped.set(),
        }

    def start(
        self,
        engine: TitanicEngine,
        perform: Callable[[Store | Load], None],
        call: Callable[[Submit | Cancel], None],
        replicate: Callable[[Submit | Cancel], None] | None = None,
    ) -> None:
        """Start on the running loop. `perform` submits to the store, whose results must be passed
        to `take_all`; `call` and `replicate` submit calls to the broker and the replica."""
        self.engine = engine
        self._call = call
        self._replicate = replicate or _no_replica
        self._perform_other |= {Store: perform, Load: perform, Cancel: call}
        self._loop = asyncio.get_running_loop()
        self.take(Wake())

    def settle(self) -> None:
        """Feed the engine all inputs until now, and those that follow at once."""
        while self._inbox:
            self._turn()

    def use(self, perform: Callable[[Store | Load], None]) -> None:
        """Switch to another store, after feeding the results of the previous one. Clears `failed`
        if the engine has recovered."""
        self._turn()
        self._perform_other |= {Store: perform, Load: perform}
        if self.engine.failure is None:
            self.failed.clear()
            self.take(Wake())

    def take(self, event: Input) -> None:
        """Feed the engine at the end of this turn; call on the loop only."""
        inbox = self._inbox
        inbox.append(event)
        if len(inbox) == 1 and self._loop is not None:
            self._loop.call_soon(self._turn)

    def take_all(self, events: list[Input]) -> None:
        """Feed the engine the store's results, at once."""
        self._inbox += events
        if len(self._inbox) == len(events) and self._loop is not None:
            self._turn()

    def close(self) -> None:
        """Stop background work; the caller still closes the store."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    # --- a turn -----------------------------------------------------------------------------------
    def _turn(self) -> None:
        events, self._inbox = self._inbox, []
        if self._loop is None or not events:  # closed, or already fed
            return
        self._perform(self.engine.handle(events, clock.now()))
        if self.engine.failure is not None:
            self.failed.set()
        at = self.engine.deadline()
        if at is not None and at < self._armed_at:
            self._arm(at)

    def _perform(self, effects: Any) -> None:
        effect: Effect
        answers: dict[Any, list[Input]] = {}
        for effect in effects:
            if effect.__class__ is Finished:  # one per incoming request
                service, job = effect.token
                finished = Finished(job, effect.frames, effect.status)
                answers.setdefault(service, []).append(finished)
            elif effect.__class__ is Submit:  # one per dispatched request
                is_copy = effect.service == REPLICATE
                (self._replicate if is_copy else self._call)(effect)
            else:
                self._perform_other[effect.__class__](effect)
        for service in answers:  # one submit per service saves a turn of the loop per reply
            service.answer_all(answers[service])

    # --- time -------------------------------------------------------------------------------------
    def _arm(self, at: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = at
        delay_s = max(0.0, at - clock.now()) + _TIMER_LATE_S
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._armed_at = inf
        self.take(Wake())
