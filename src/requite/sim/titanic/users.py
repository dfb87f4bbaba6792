"""Users that submit, wait and close, over a network that loses or delays messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.errors import RemoteViolation
from requite.protocols.titanic.wire import (
    CLOSE,
    ERASE,
    LIST,
    REPLY,
    REQUEST,
    SERVICES,
    decode_answer,
    decode_status,
)
from requite.sim.titanic.exchange import UNLUCKY
from requite.sim.titanic.ledger import IssuedTicket, UserRequest

if TYPE_CHECKING:
    from random import Random

    from requite.sim.kernel.world import World
    from requite.sim.titanic.knobs import TitanicKnobs
    from requite.sim.titanic.ledger import Ledger
    from requite.sim.titanic.process import TitanicProcess

_PATIENCE_S: Final = 1.0
_POLL_S: Final = 0.2
LATE_S: Final = 2.0
"""The longest delay of a message."""


class Network:
    """The network between users and Titanic. `is_well`: it neither loses nor delays messages any
    more."""

    def __init__(
        self, world: World, knobs: TitanicKnobs, ledger: Ledger, process: TitanicProcess
    ) -> None:
        self.world = world
        self.knobs = knobs
        self.ledger = ledger
        self.is_well = False
        self.rng = world.rng("users")
        self._process = process

    def ask(
        self,
        service: str,
        frames: Sequence[bytes],
        key: bytes,
        owner: bytes,
        answer: Callable[..., None],
    ) -> None:
        """Carry a request and its reply. During faults either may be lost, and the request may
        arrive twice."""
        if self._is_lost():
            return
        self._carry(self._latency_s(), service, frames, key, owner, answer)
        if not self.is_well and self.rng.random() < self.knobs.late_p:
            self._carry(LATE_S * self.rng.random(), service, frames, key, owner, answer)

    def _carry(
        self,
        delay_s: float,
        service: str,
        frames: Sequence[bytes],
        key: bytes,
        owner: bytes,
        answer: Callable[..., None],
    ) -> None:
        def back(answered: Sequence[bytes]) -> None:
            if not self._is_lost():
                self.world.after(self._latency_s(), answer, answered)

        self.world.after(delay_s, self._process.ask, service, frames, key, owner, back)

    def _is_lost(self) -> bool:
        return not self.is_well and self.rng.random() < self.knobs.loss_p

    def _latency_s(self) -> float:
        return self.knobs.latency_s * self.rng.random()


class User:
    """A user that runs a workflow: it sends requests, and retries those without a reply.

    A workflow is a generator. It yields the next request (service, frames, key, and a callback for
    every reply) and receives the reply's frames; or it yields a pause in seconds. `owner` is the
    principal of the user.
    """

    def __init__(self, network: Network, workflow: Any, name: str, owner: bytes = b"") -> None:
        self.is_done = False
        self.name = name
        self._owner = owner
        self._network = network
        self._workflow = workflow
        self._asked = 0
        self._question: Any = None

    def begin(self) -> None:
        """Start the workflow."""
        self._go_on(None)

    def _go_on(self, answer: Sequence[bytes] | None) -> None:
        try:
            self._question = self._workflow.send(answer)
        except StopIteration:
            self.is_done = True
            return
        if isinstance(self._question, float):  # a pause
            self._network.world.after(self._question, self._go_on, None)
        else:
            self._ask()

    def _ask(self) -> None:
        self._asked += 1
        asked = self._asked

        def answer(frames: Sequence[bytes]) -> None:
            if asked == self._asked and not self.is_done:
                self._asked += 1
                self._go_on(frames)

        def give_up() -> None:
            if asked == self._asked and not self.is_done:
                self._ask()

        service, frames, key, on_reply = self._question

        def heard(answered: Sequence[bytes]) -> None:
            on_reply(answered)
            answer(answered)

        self._network.ask(service, frames, key, self._owner, heard)
        self._network.world.after(_PATIENCE_S, give_up)


class TitanicCall(NamedTuple):
    """A request that a user submits at `at_s`, and the user's next steps.

    `filling`: the bytes of padding in its body; `unlucky`: see `UserRequest`. With `closes_early`
    the user does not wait for the reply. Otherwise it collects the reply, again after
    `again_after_s` (None: only once), and may then close the request.
    """

    number: int
    at_s: float
    service: str
    filling: int
    keyed: bool
    unlucky: bool
    closes_early: bool
    again_after_s: float | None
    closes: bool

    def request(self, owners: int) -> UserRequest:
        """Return the request that this call submits. Each key is used by every owner, if there are
        any."""
        mark = UNLUCKY if self.unlucky else b""
        body = b"%d %s%s" % (self.number, mark, b"x" * self.filling)
        key = b"key-%d" % (self.number // (owners or 1)) if self.keyed else b""
        owner = b"owner-%d" % (self.number % owners) if owners else b""
        return UserRequest(self.number, self.service, body, key, self.unlucky, owner)


def draw_call(number: int, knobs: TitanicKnobs, rng: Random) -> TitanicCall:
    """Draw a request, and its user's steps."""
    unlucky = rng.random() < knobs.poison_p
    filling = rng.randrange(knobs.body_size_max)
    keyed = rng.random() < knobs.keyed_p
    service = rng.choice(knobs.services)
    return TitanicCall(
        number=number,
        at_s=rng.uniform(0, knobs.faulty_s),
        service=service,
        filling=filling,
        keyed=keyed,
        unlucky=unlucky,
        closes_early=rng.random() < knobs.close_early_p,
        again_after_s=2.0 * rng.random() if rng.random() < knobs.again_p else None,
        closes=rng.random() < knobs.close_p,
    )


def full_lifecycle(ledger: Ledger, request: UserRequest, call: TitanicCall) -> Any:
    """Submit a request and collect its reply, perhaps twice; perhaps close it. With `closes_early`,
    close it instead of collecting."""
    issued = yield from submit(ledger, request)
    if call.closes_early:
        yield from close(ledger, issued)
        request.ended = "closed early"
        return
    status = yield from collect(ledger, issued)
    if call.again_after_s is not None:
        yield call.again_after_s
        yield from collect(ledger, issued)
    request.ended = "poisoned" if status.is_poisoned else "collected"
    if call.closes:
        yield from close(ledger, issued)
        yield from collect(ledger, issued)
        request.ended += " and closed"


def submit(ledger: Ledger, request: UserRequest) -> Any:
    """Submit a request until Titanic accepts it; return the ticket."""

    def on_reply(frames: Sequence[bytes]) -> None:
        if frames[0] == b"200":
            ledger.acknowledged(request, frames[1])

    while True:
        question = [request.service.encode(), request.body]
        frames = yield REQUEST, question, request.key, on_reply
        status = decode_status(frames[0])
        if status.code == 200:
            return ledger.ticket_received(request, frames[1])
        if status.code != 500:
            ledger.history.violate("I3", f"request {request.number} is refused: {status.text}")
        yield _POLL_S


def collect(ledger: Ledger, issued: IssuedTicket) -> Any:
    """Poll for the reply until its status is final; return the status."""
    while True:
        ticket = issued.ticket if issued.request.number % 2 else issued.ticket.lower()
        frames = yield REPLY, [ticket], b"", _nothing
        status = decode_answer(frames)
        ledger.collected(issued, status, b"".join(frames[1:]))
        if status.code in (200, 400):
            return status
        yield _POLL_S


def close(ledger: Ledger, issued: IssuedTicket) -> Any:
    """Close a request; retry until Titanic confirms."""
    issued.close_sent = True
    while True:
        frames = yield CLOSE, [issued.ticket], b"", _nothing
        if frames[0] == b"200":
            issued.closed = True
            return
        yield _POLL_S


def try_all(ledger: Ledger) -> Any:
    """Try to collect and to close each request that has a ticket, as a stranger: a ticket of
    another owner is unknown, and closing it changes nothing."""
    for issued in list(ledger.tickets.values()):
        frames = yield REPLY, [issued.ticket], b"", _nothing
        ledger.tried(issued, frames)
        yield CLOSE, [issued.ticket], b"", _nothing


def erase_all(ledger: Ledger, owner: bytes) -> Any:
    """Erase all requests of an owner, page by page."""
    cursor, is_complete = b"", False
    while not is_complete:
        frames = yield ERASE, [owner, cursor], b"", _nothing
        if frames[0] == b"200":
            cursor = frames[2]
            is_complete = not cursor
        else:
            yield _POLL_S


def close_all(ledger: Ledger) -> Any:
    """Close all listed requests, page by page, until the list is empty."""
    while True:
        cursor, seen = b"", 0
        while True:
            frames = yield LIST, [cursor, b"7"], b"", _nothing
            lines = frames[1].splitlines()
            seen += len(lines)
            for line in lines:
                ticket = line.partition(b'"ticket":"')[2][:32]
                issued = ledger.tickets.get(ticket) or IssuedTicket(
                    ticket, UserRequest(0, "", b"", b"", False)
                )
                yield from close(ledger, issued)
            cursor = frames[2]
            if not cursor:
                break
        if not seen:
            return
        yield _POLL_S


def garbage(ledger: Ledger, rng: Random) -> Any:
    """Send an invalid request; check that the answer is a status. There is none for ERASE: any
    frame is the name of an owner."""
    junk = (b"", b"../../etc/passwd", b"A" * 31, b"G" * 32, b"0" * 32, b"\xff" * 32, b"f" * 5000)
    frames = [rng.choice(junk) for _ in range(rng.randrange(4))]
    services = [service for service in SERVICES if service not in (REQUEST, ERASE)]
    answered = yield rng.choice(services), frames, b"", _nothing
    try:
        decode_status(answered[0])
    except RemoteViolation as violation:
        ledger.history.violate("I13", f"garbage was answered with {violation}")


def _nothing(_frames: Sequence[bytes]) -> None:
    """Ignore a reply."""
