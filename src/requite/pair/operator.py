"""`Operator`: view and switch a pair over its link."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any, Final, Self

from requite.errors import CallTimeout, RemoteFailure
from requite.pair.ends import stay_connected_to
from requite.protocols.binarystar.operator import BinaryStarOperator
from requite.protocols.binarystar.reasons import word_for
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.view import PairView, view_from_wire
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View
from requite.shell.aio import AioShell
from requite.shell.connections import Connections

_POLL_S: Final = 0.05
_SETTLED: Final = (State.ACTIVE, State.PASSIVE)


class Operator:
    """A connection to one server of a pair, at the address where it listens for the other server.

        async with Operator("tcp://10.0.0.1:5560") as operator:
            print(await operator.view())

    `timeout`: seconds for each request. Raises `ConfigurationError` for an invalid address.
    """

    def __init__(self, address: str, *, timeout: float = 5.0) -> None:
        self._address = address
        self._timeout_s = timeout
        self._answers: asyncio.Queue[View | Refused] = asyncio.Queue()
        self._shell = AioShell(
            BinaryStarOperator(),
            Connections(keep=[stay_connected_to(address)]),
            deliver=self._deliver,
            logger="requite.pair",
        )

    async def view(self) -> PairView:
        """Return the server's view of the pair. Raises `CallTimeout`."""
        return await self._ask(Ask())

    async def look(self) -> PairView:
        """Return `view()`. Deprecated."""
        warnings.warn(
            "Operator.look is deprecated; use Operator.view", DeprecationWarning, stacklevel=2
        )
        return await self.view()

    async def switch(self) -> PairView:
        """Switch the active server, and return this server's view afterwards.

        Raises `RemoteFailure` if the server refuses or the switch has been undone, `CallTimeout` if
        it takes too long.
        """
        before = await self.view()
        view = await self._ask(Switch(before.epoch))
        try:
            async with asyncio.timeout(self._timeout_s):
                while view.epoch == before.epoch or view.state not in _SETTLED:
                    await asyncio.sleep(_POLL_S)
                    view = await self.view()
        except TimeoutError:
            raise CallTimeout(
                f"{self._address} is still {word_for(view.state)} after {self._timeout_s:g} s:"
                " the other server has not taken over; check the status of both servers"
            ) from None
        wanted = State.PASSIVE if before.state is State.ACTIVE else State.ACTIVE
        if view.state is not wanted:
            raise RemoteFailure(
                f"{self._address} is {word_for(view.state)} again, in epoch {view.epoch}: either"
                " the other server did not take over, or an operator has switched back",
                attempts=1,
            )
        return view

    async def _ask(self, question: Ask | Switch) -> PairView:
        while not self._answers.empty():  # late answers to earlier requests
            self._answers.get_nowait()
        self._shell.submit(question)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answers.get()
        except TimeoutError:
            trouble = self._shell.trouble or f"{self._address} does not answer"
            raise CallTimeout(
                f"no answer within {self._timeout_s:g} s: {trouble}; check that a server of a"
                " pair runs, and that this is its --pair-bind address",
                may_have_executed=isinstance(question, Switch),
            ) from None
        if isinstance(answer, Refused):
            raise RemoteFailure(answer.reason, may_have_executed=False, attempts=1)
        return view_from_wire(answer)

    def _deliver(self, _token: Any, answer: View | Refused) -> None:
        self._answers.put_nowait(answer)

    async def __aenter__(self) -> Self:
        self._shell.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._shell.close()
