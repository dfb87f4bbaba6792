"""A Titanic engine at work on an event loop, between its posts, its store and its dispatching.

All that comes in during a turn of the loop is fed to the engine at once, at the end of the turn:
submissions of a turn share one `Store`, and the store's thread one sync among all that waits.
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
    raise LocalViolation(f"there is no replica to be told: {effect!r:.200}")


class Desk:
    """Feeds the engine and performs its effects. `take` works from `start` to `close`."""

    engine: TitanicEngine

    def __init__(self, note: Callable[[Note], None]) -> None:
        self.stopped = asyncio.Event()
        self.failed = asyncio.Event()  # the store takes nothing any more
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
        """Begin, on the running loop. `perform` has the store write and read, and the store gives
        what comes of it to `take`; `call` and `replicate` get what is to be asked."""
        self.engine = engine
        self._call = call
        self._replicate = replicate or _no_replica
        self._perform_other |= {Store: perform, Load: perform, Cancel: call}
        self._loop = asyncio.get_running_loop()
        self.take(Wake())

    def use(self, perform: Callable[[Store | Load], None]) -> None:
        """Have another one write and read from now on; all that the one before has done is known
        to the engine then, and that it has failed is over."""
        self._turn()
        self._perform_other |= {Store: perform, Load: perform}
        if self.engine.failure is None:
            self.failed.clear()
            self.take(Wake())

    def take(self, event: Input) -> None:
        """Feed the engine by the end of this turn; on the loop only."""
        inbox = self._inbox
        inbox.append(event)
        if len(inbox) == 1 and self._loop is not None:
            self._loop.call_soon(self._turn)

    def take_all(self, events: list[Input]) -> None:
        """Feed the engine what the store has done, at once."""
        self._inbox += events
        if len(self._inbox) == len(events) and self._loop is not None:
            self._turn()

    def close(self) -> None:
        """Do nothing more by itself."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    # --- a turn -----------------------------------------------------------------------------------
    def _turn(self) -> None:
        events, self._inbox = self._inbox, []
        if self._loop is None or not events:  # closed, or fed already
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
            if effect.__class__ is Finished:  # one per request that came in
                service, job = effect.token
                finished = Finished(job, effect.frames, effect.status)
                answers.setdefault(service, []).append(finished)
            elif effect.__class__ is Submit:  # one per request that goes out
                is_copy = effect.service == REPLICATE
                (self._replicate if is_copy else self._call)(effect)
            else:
                self._perform_other[effect.__class__](effect)
        for (
            service
        ) in answers:  # at once, which saves the turn of the loop that each by itself took
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
