"""What engines have in common, whatever they are for: a handler for each kind of input, and effects
that gather until the input has been handled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from requite.engine import Effect, Input
from requite.errors import LocalViolation

Handlers: TypeAlias = Mapping[type, Callable[[Any, float], None]]


class Machine(ABC):
    """An engine that says in `_handlers` what it does with its inputs, and puts effects in `_out`.

    One that drains sets `_draining`, and decides after each input whether it stops.
    """

    _kind: ClassVar = "an engine"  # for those who misuse it

    def __init__(self) -> None:
        self._draining = self._stopped = False
        self._out: list[Effect] = []
        self._inputs = self._handlers()

    @abstractmethod
    def _handlers(self) -> Handlers:
        """Return who handles what. An input that is not there is a `LocalViolation`."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        This is `_feed` for each in one piece, which saves 0.1 us per input (CPython 3.11).
        """
        inputs = self._inputs
        refused: LocalViolation | None = None
        for event in events:
            handler = inputs.get(event.__class__)
            try:
                if handler is None:
                    raise self._has_no_use_for(event)
                handler(event, now)
            except LocalViolation as violation:
                refused = refused or violation
            if self._draining:
                self._maybe_stop(now)
        if refused is not None:
            raise refused
        out = self._out
        if out:
            self._out = []
        return out

    def _feed(self, event: Input, now: float) -> LocalViolation | None:
        """Have an input handled; return why it was refused, if it was."""
        handler = self._inputs.get(event.__class__)
        refused: LocalViolation | None = None
        try:
            if handler is None:
                raise self._has_no_use_for(event)
            handler(event, now)
        except LocalViolation as violation:
            refused = violation
        if self._draining:
            self._maybe_stop(now)
        return refused

    def _has_no_use_for(self, event: Input) -> LocalViolation:
        return LocalViolation(f"{self._kind} has no use for {event!r}")

    def _maybe_stop(self, now: float) -> None:
        """Stop, if everything is done that is still to be done."""
        return


def take_no_notice(_event: object, _now: float) -> None:
    """Do nothing about an input."""
