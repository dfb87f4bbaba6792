"""What an operator does with a pair from outside: look at it, and switch it."""

from __future__ import annotations

import asyncio
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

_LOOK_EVERY_S: Final = 0.05
_SETTLED: Final = (State.ACTIVE, State.PASSIVE)


class Operator:
    """A connection to one server of a pair, at the address where it listens for the other one.

        async with Operator("tcp://10.0.0.1:5560") as operator:
            print(await operator.look())

    `timeout`: seconds for each question. Raises `ConfigurationError` for an address that cannot be
    read.
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

    async def look(self) -> PairView:
        """Return what the server knows. Raises `CallTimeout`."""
        return await self._ask(Ask())

    async def switch(self) -> PairView:
        """Let the other server of the two be active, and return what this one says when it is done.

        Raises `RemoteFailure` where the server refuses, or where the switch has been undone, and
        `CallTimeout` where it takes too long.
        """
        before = await self.look()
        view = await self._ask(Switch(before.epoch))
        try:
            async with asyncio.timeout(self._timeout_s):
                while view.epoch == before.epoch or view.state not in _SETTLED:
                    await asyncio.sleep(_LOOK_EVERY_S)
                    view = await self.look()
        except TimeoutError:
            raise CallTimeout(
                f"after {self._timeout_s:g} s {self._address} is still {word_for(view.state)}:"
                " the other server has not changed places with it; ask both for their status"
            ) from None
        wanted = State.PASSIVE if before.state is State.ACTIVE else State.ACTIVE
        if view.state is not wanted:
            raise RemoteFailure(
                f"{self._address} is {word_for(view.state)} again, in epoch {view.epoch}: either"
                " the other server did not take over, or somebody has switched back",
                attempts=1,
            )
        return view

    async def _ask(self, question: Ask | Switch) -> PairView:
        while not self._answers.empty():  # too late for the question before
            self._answers.get_nowait()
        self._shell.submit(question)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answers.get()
        except TimeoutError:
            trouble = self._shell.trouble or f"{self._address} does not answer"
            raise CallTimeout(
                f"nothing heard for {self._timeout_s:g} s: {trouble}; see that a server of a pair"
                " runs, and listens there for the other one (--pair-bind)",
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
