"""Stand between a host and its engine, and observe every input and effect.

This is for engines of clients and workers; `watch_broker.py` has the broker's.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from requite.engine import Engine, Received, Send
from requite.sim.kernel.history import History
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.transcript import name_of
from requite.sim.kernel.workload import Task, parse_task

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process


class Pulse:
    """The time of the last message on each connection, to detect a silence that was too long.

    The time that the process was frozen does not count.
    """

    def __init__(self, process: Process, history: History) -> None:
        self._process = process
        self._history = history
        self._spoke: dict[Any, float] = {}

    def begin(self, peer: Any) -> None:
        """Start measuring the silence of a connection."""
        self._spoke[peer] = self._now()

    def end(self, peer: Any) -> None:
        """Stop measuring it."""
        self._spoke.pop(peer, None)

    def spoke(self, peer: Any) -> None:
        """Record a message, and report the silence before it."""
        before = self._spoke.get(peer)
        if before is not None:
            now = self._spoke[peer] = self._now()
            self._history.tell("spoke", self._process.name, name_of(peer), now - before)

    def _now(self) -> float:
        return self._process.world.now - self._process.frozen_s


class PeerHub(Hub):
    """The engine of a client or worker, under observation: how long its broker is silent."""

    def __init__(self, engine: Engine, process: Any) -> None:
        super().__init__(engine, process)
        self._has_heard: set[Any] = set()  # connections whose broker has sent a message

    def task_of(self, message: Any) -> Task | None:
        """See `Hub.task_of`."""
        return parse_task(message[-2:])

    def _received(self, event: Received) -> None:
        self._has_heard.add(event.peer)
        super()._received(event)

    def silent_s(self, peer: Any) -> float:
        """Return how long the broker has been silent; `inf` if it has sent nothing yet, when no
        heartbeat interval is negotiated."""
        return self._world.now - self.heard_at[peer] if peer in self._has_heard else inf

    def _lost(self, peer: Any) -> None:
        super()._lost(peer)
        self._has_heard.discard(peer)


class WorkerHub(PeerHub):
    """A worker's engine: after READY it must send at least once per interval."""

    def __init__(self, engine: Engine, process: Any) -> None:
        super().__init__(engine, process)
        self._pulse = Pulse(process, self._history)

    def _sent(self, effect: Send) -> None:
        super()._sent(effect)
        if effect.peer not in self._has_heard:  # no interval is negotiated before the broker sends
            self._pulse.begin(effect.peer)
        self._pulse.spoke(effect.peer)

    def _lost(self, peer: Any) -> None:
        super()._lost(peer)
        self._pulse.end(peer)
