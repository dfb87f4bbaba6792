"""The base of engines: a handler per kind of input, and a list of effects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from requite.engine import Effect, Input, RightsChanged
from requite.errors import LocalViolation

Handlers: TypeAlias = Mapping[type, Callable[[Any, float], None]]


class Machine(ABC):
    """An engine with a table of handlers (`_handlers`), which append effects to `_out`.

    While `_draining` is set, `_maybe_stop` runs after each input.
    """

    _kind: ClassVar = "an engine"  # its name in errors

    def __init__(self) -> None:
        self._draining = self._stopped = False
        self._out: list[Effect] = []
        # Only listeners with rights of their own look at them again.
        self._inputs = {RightsChanged: ignore_input, **self._handlers()}

    @abstractmethod
    def _handlers(self) -> Handlers:
        """Return the handler of each input type. Any other input is a `LocalViolation`."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        This inlines `_feed`, which saves 0.1 us per input (CPython 3.11).
        """
        inputs = self._inputs
        refused: LocalViolation | None = None
        for event in events:
            handler = inputs.get(event.__class__)
            try:
                if handler is None:
                    raise self._unhandled(event)
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
        """Handle an input; return the violation if it was refused."""
        handler = self._inputs.get(event.__class__)
        refused: LocalViolation | None = None
        try:
            if handler is None:
                raise self._unhandled(event)
            handler(event, now)
        except LocalViolation as violation:
            refused = violation
        if self._draining:
            self._maybe_stop(now)
        return refused

    def _unhandled(self, event: Input) -> LocalViolation:
        return LocalViolation(f"{self._kind} does not handle the input {event!r}")

    def _maybe_stop(self, now: float) -> None:
        """Stop if nothing is left to do; called while draining."""
        return


def ignore_input(_event: object, _now: float) -> None:
    """Ignore an input."""
