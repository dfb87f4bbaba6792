"""Programs with a real client, and their users, which make each call in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from requite.client.aio import AsyncClient
from requite.client.call_arguments import deadline
from requite.core.liveness import HeartbeatPolicy
from requite.errors import CallError, Cancelled
from requite.request import Reply, RetryPolicy
from requite.shell.signals import StopSignals
from requite.sim.kernel.history import Call
from requite.sim.kernel.process import Ending
from requite.sim.kernel.user import BaseUser
from requite.sim.kernel.workload import CallPlan
from requite.sim.shells.knobs import ShellClientSpec, Transport
from requite.sim.shells.stage import FRONT, Member, ShellStage, brokers

FETCH_S: Final = 60.0


class ShellClient(Member):
    """A client, and its user."""

    client: AsyncClient

    def __init__(self, spec: ShellClientSpec, stage: ShellStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        self.user = ShellUser(self, stage)
        self.is_open = False

    async def main(self) -> None:
        """Keep a client open until SIGTERM."""
        with StopSignals() as signals:
            async with self._make_client() as self.client:
                self.is_open = True
                await signals.first_or(_for_ever())
                self.is_open = False

    def _make_client(self) -> AsyncClient:
        knobs, spec = self.stage.knobs, self.spec
        workers = ",".join(f"{worker.name}:{FRONT}" for worker in knobs.workers)
        url = {
            Transport.QUEUE: f"pirate://queue:{FRONT}",
            Transport.DEVICE: f"sp+tcp://device:{FRONT}",
            Transport.SP: f"sp+tcp://{workers}",
            Transport.FREELANCE: f"flp://{workers}",
        }.get(knobs.transport, f"mdp://{brokers(knobs)}")
        settings: dict[str, Any] = {
            "retry": RetryPolicy(
                attempts=spec.tries,
                attempt_timeout=spec.attempt_timeout_s if knobs.retries else None,
            ),
            "slots": spec.slots,
        }
        if knobs.tells:
            settings["heartbeat"] = HeartbeatPolicy(knobs.interval_s, knobs.liveness)
        return self.stage.parts.client(url, **settings)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.is_open = False
        self.stage.history.client_died(self.name)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class ShellUser(BaseUser):
    """The user of a client; it makes each call in a task."""

    _process: ShellClient

    def __init__(self, client: ShellClient, stage: ShellStage) -> None:
        super().__init__(
            client,
            stage.history,
            stage.transcript,
            tries_max=client.spec.tries,
            carries_idempotency=stage.knobs.tells,
            has_keys=stage.knobs.is_live,
        )
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def call(self, plan: CallPlan) -> None:
        """Make a call in a later turn, if the client is open then."""
        process = self._process
        if process.alive:
            process.later(0.0, self._submit_if_open, plan)

    def _submit_if_open(self, plan: CallPlan) -> None:
        if self._process.is_open:
            self._submit(plan)

    def submit(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        """Start a task that makes the call."""
        at = f" {plan.service}" if plan.service else ""
        self._process.say(f"makes call {call.number}{at}: {plan.behaviour}, {timeout_s:.3g} s")
        self._tasks[call] = self._process.loop.create_task(self._make(call, plan, timeout_s))

    def cancel(self, call: Call) -> None:
        """Cancel the task of a call."""
        if call.ended_at is None:
            self._history.cancelled(call)
            self._tasks[call].cancel()

    async def _make(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        try:
            outcome: Reply | CallError = await self._outcome(call, plan, timeout_s)
        except CallError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = Cancelled("the task of the call was cancelled", may_have_executed=True)
        del self._tasks[call]
        if self._process.alive:
            self.end(call, outcome)

    async def _outcome(self, call: Call, plan: CallPlan, timeout_s: float) -> Reply:
        options: dict[str, Any] = {"timeout": None if timeout_s == inf else timeout_s}
        if self._carries_idempotency:
            options["idempotent"] = plan.idempotent
        knobs = self._process.stage.knobs
        body = b"\n".join(plan.frames)
        if knobs.is_durable:
            return await self._durable(call, plan.service, body, timeout_s)
        if knobs.has_services:
            options |= {"service": plan.service, "idempotency_key": call.key}
        client = self._process.client
        if not plan.wants_partials:
            return _read(await client.call(body, **options))
        final = b""
        async for reply in client.stream(body, **options):
            if isinstance(reply, Reply):
                return reply._replace(frames=_split([final]))
            if reply.frames[0].startswith(b"part "):
                self._history.delivered(call, reply)
            else:
                final = reply.frames[0]
        raise AssertionError(f"{call} had no final reply")

    async def _durable(self, call: Call, service: str, body: bytes, timeout_s: float) -> Reply:
        client, tickets = self._process.client, self._process.stage.tickets
        until = deadline(timeout_s)
        ticket = await client.submit(body, service=service, timeout=until)
        tickets[ticket] = call
        self._process.say(f"has ticket {ticket[:4]} for call {call.number}")
        return _read(await client.result(ticket, timeout=until))

    async def fetch_all(self, broker: str, promotes: bool) -> dict[str, Reply | CallError]:
        """Fetch the replies of all tickets, and forget them at the server; return the outcome for
        each ticket."""
        found = dict[str, Reply | CallError]()
        async with AsyncClient(f"mdp://{broker}", timeout=FETCH_S) as client:
            if promotes:
                await client.call(b"", service="titanic.promote")
            for ticket in self._process.stage.tickets:
                try:
                    found[ticket] = _read(await client.result(ticket))
                    await client.forget(ticket)
                except CallError as error:
                    found[ticket] = error
        return found


def _read(reply: Reply) -> Reply:
    """Return a reply in the form that the checkers expect: a generator's reply ends with an empty
    frame, which is removed."""
    frames = [*reply.frames]
    if len(frames) > 1 and not frames[-1]:
        frames.pop()
    return reply._replace(frames=_split(frames))


def _split(frames: Sequence[bytes]) -> list[bytes]:
    """Split the last frame into label and payload."""
    *parts, final = frames
    label, _, payload = final.partition(b"\n")
    return [*parts, label, payload]
