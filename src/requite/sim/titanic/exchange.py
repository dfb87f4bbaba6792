"""The broker and its services, as Titanic sees them: every submitted request ends somehow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import Cancel, Finished, Input, Submit
from requite.errors import (
    CallError,
    CallTimeout,
    NoService,
    RemoteFailure,
    TransportError,
    WorkerLost,
)
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.wire import MMI_SERVICE
from requite.request import Reply
from requite.shell import clock
from requite.sim.titanic.knobs import Fate
from requite.sim.titanic.ledger import is_refused

if TYPE_CHECKING:
    from requite.sim.kernel.world import World
    from requite.sim.titanic.knobs import TitanicKnobs
    from requite.sim.titanic.ledger import Ledger
    from requite.titanic.services import Take

Answer = Callable[[Sequence[bytes]], None]

UNLUCKY = b"unlucky"
"""A request that contains this fails every time, as long as there are faults."""


class Exchange:
    """Accepts the requests of Titanic, and calls `answered` with each outcome. It forgets the
    requests of a process that was killed."""

    def __init__(
        self,
        world: World,
        knobs: TitanicKnobs,
        ledger: Ledger,
        answered: Callable[[Answered], object],
    ) -> None:
        self.down: set[str] = set()
        self.broker_is_down = False
        self.is_well = False
        self._world = world
        self._knobs = knobs
        self._ledger = ledger
        self._answered = answered
        self._rng = world.rng("exchange")
        self._out: dict[Any, Submit] = {}

    def submit(self, effect: Submit, timeout_s: float) -> None:
        """Accept a request of Titanic."""
        self._out[effect.token] = effect
        self._world.after(timeout_s, self._time_out, effect)
        if effect.service == MMI_SERVICE:
            self._asked_for(effect)
            return
        of_service = Counter(one.service for one in self._out.values())
        requests = sum(n for service, n in of_service.items() if service != MMI_SERVICE)
        self._ledger.out(requests, of_service[effect.service])
        self._ledger.sent(effect.idempotency_key, tuple(effect.frames), effect.principal)
        if not self.broker_is_down:
            self._world.after(self._latency_s(), self._arrive, effect)

    def cancel(self, token: Any) -> None:
        """Cancel a request."""
        self._out.pop(token, None)

    def forget(self) -> None:
        """Forget all requests: the process was killed."""
        self._out.clear()

    def _asked_for(self, effect: Submit) -> None:
        service = effect.frames[0].decode()
        self._ledger.asked_for(service)
        if not self.broker_is_down:
            found = b"404" if service in self.down else b"200"
            self._world.after(self._latency_s(), self._end, effect, Reply([found]))

    def _arrive(self, effect: Submit) -> None:
        """Draw the outcome of a request that has reached the broker."""
        if effect.service in self.down:
            text = f"nobody serves {effect.service}"
            self._end(effect, NoService(text, may_have_executed=False))
            return
        delay_s = self._knobs.service_s * self._rng.random() + self._latency_s()
        outcome = self._outcome(effect)
        if outcome is not None:
            self._world.after(delay_s, self._end, effect, outcome)

    def _outcome(self, effect: Submit) -> Reply | CallError | None:
        body = b"".join(effect.frames)
        fate = self._rng.choices(self._knobs.fates, self._knobs.weights)[0]
        if self.is_well or (fate is Fate.ANSWER and UNLUCKY not in body):
            return _answer(b"re:" + body, is_refused=is_refused(body))
        if fate is Fate.LOSE_REPLY:
            return None
        if fate is Fate.LOSE_REQUEST:
            return TransportError("the connection broke", may_have_executed=False)
        if fate is Fate.DIE:
            return WorkerLost("the worker died")
        return RemoteFailure("the handler failed")

    def _time_out(self, effect: Submit) -> None:
        self._end(effect, CallTimeout("no reply came"))

    def _end(self, effect: Submit, outcome: Reply | CallError) -> None:
        if self._out.get(effect.token) is not effect:
            return  # ended already, or from a process that was killed
        del self._out[effect.token]
        if effect.service != MMI_SERVICE:
            self._note(effect.idempotency_key, outcome)
        self._answered(Answered(effect.token, outcome))

    def _note(self, ticket: bytes, outcome: Reply | CallError) -> None:
        if isinstance(outcome, Reply) or (isinstance(outcome, RemoteFailure) and outcome.is_final):
            self._ledger.answered(ticket)
        elif outcome.may_have_executed:
            self._ledger.counted(ticket)

    def _latency_s(self) -> float:
        return self._knobs.latency_s * self._rng.random()


def _answer(body: bytes, *, is_refused: bool) -> Reply | CallError:
    if not is_refused:
        return Reply([body])
    failure = RemoteFailure(body.decode())
    failure.is_final = True
    return failure


class ExchangeLinks:
    """Links a Titanic to the exchange, and its services to users; see `requite.titanic.services`.

    `is_open`: it accepts requests of users. `take` gets the inputs of the engine.
    """

    def __init__(self, exchange: Exchange, take: Take) -> None:
        self.is_open = False
        self.take = take
        self._exchange = exchange

    def start(self) -> None:
        """Accept requests of users."""
        self.is_open = True

    @property
    def trouble(self) -> str:
        """Why requests cannot arrive; "" if they can."""
        return "" if self.is_open else "it is being drained"

    def call(self, effect: Submit | Cancel) -> None:
        """Submit a request to the exchange, or cancel one."""
        if isinstance(effect, Submit):
            self._exchange.submit(effect, effect.deadline - clock.now())
        else:
            self._exchange.cancel(effect.token)

    def ask(
        self, service: str, frames: Sequence[bytes], key: bytes, owner: bytes, answer: Answer
    ) -> None:
        """Pass on the request of a user."""
        self.take(Asked((self, answer), service, frames, key, owner))

    def answer_all(self, answers: Sequence[Input]) -> None:
        """Pass answers back to users; see `TitanicService.answer_all`."""
        for finished in answers:
            assert isinstance(finished, Finished)
            finished.token(finished.frames)

    def drain_services(self) -> None:
        """Accept no more requests of users."""
        self.is_open = False

    async def until_drained(self) -> None:
        """Return: all accepted requests are answered by now."""

    async def close(self) -> None:
        """Do nothing: there are no connections."""
