"""A process that can crash, with at most one connection to RabbitMQ, which can break."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from requite.sim.pool.rabbit import Connection
    from requite.sim.pool.stage import PoolStage

_RECONNECT_S: Final = 0.3


class Node:
    """A process. Callbacks from before a restart, or of an earlier connection, are void."""

    def __init__(self, name: str, stage: PoolStage) -> None:
        self.name = name
        self.stage = stage
        self.life = 0
        self.alive = False
        self.connection: Connection | None = None
        self.connections = 0  # number of connections since it was created
        self.rng = stage.world.rng(name)

    # --- for subclasses ---------------------------------------------------------------------------
    def begun(self) -> None:
        """Initialize the state of a new start."""

    def connected(self, connection: Connection) -> None:
        """Use a new connection."""
        raise NotImplementedError

    def disconnected(self) -> None:
        """React to the loss of the connection."""

    # --- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start with empty memory, unless the process is alive."""
        if not self.alive:
            self.alive = True
            self.life += 1
            self.stage.remark(self.name, "starts")
            self.act(self.begun)
            self.connect()

    def end(self, what: str, server_delay_s: float = 0.0) -> None:
        """Crash or exit; RabbitMQ detects it after `server_delay_s`."""
        if self.alive:
            self.alive = False
            self.life += 1
            self.stage.remark(self.name, what)
            if self.connection is not None:
                self.connection.cut(0.0, server_delay_s)
                self.connection = None

    def later(self, delay_s: float, act: Callable[..., Any], *args: Any) -> None:
        """Call `act` after `delay_s`, unless the process has ended or restarted by then."""
        self.stage.world.after(delay_s, self._later, self.life, act, args)

    def _later(self, life: int, act: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if life == self.life:
            self.act(act, *args)

    def act(self, act: Callable[..., Any], *args: Any) -> None:
        """Call `act`. An exception ends the process, and is a violation (I13)."""
        try:
            act(*args)
        except Exception:
            self.stage.history.violate("I13", f"{self.name}: {traceback.format_exc()}")
            self.end("fails")
            self.stage.world.after(1.0, self.start)

    # --- the connection ---------------------------------------------------------------------------
    def connect(self) -> None:
        """Connect to RabbitMQ; retry until it accepts."""
        if not self.alive or self.connection is not None:
            return
        life = self.life
        connection = self.stage.rabbit.connect(lambda _why: self._lost(life, connection))
        if connection is None:
            self.later(_RECONNECT_S, self.connect)
            return
        self.connection = connection
        self.connections += 1
        self.act(self.connected, connection)

    def ask(
        self, act: Callable[[], Any], tell: Callable[[Any], Any] = lambda _answer: None
    ) -> None:
        """Call `act` in the server; pass the result to `tell`, unless process or connection ended
        meanwhile."""
        connection, life = self.connection, self.life
        if connection is not None:
            connection.ask(act, lambda answer: self._told(life, connection, tell, answer))

    def _told(
        self, life: int, connection: Connection | None, tell: Callable[[Any], Any], answer: Any
    ) -> None:
        if life == self.life and connection is self.connection:
            self.act(tell, answer)

    def _lost(self, life: int, connection: Connection | None) -> None:
        if life == self.life and connection is self.connection:
            self.connection = None
            self.act(self.disconnected)
            self.later(_RECONNECT_S, self.connect)

    def cut(self, client_delay_s: float, server_delay_s: float) -> None:
        """Break the connection; the two ends detect it after these delays."""
        if self.connection is not None:
            self.connection.cut(client_delay_s, server_delay_s)
