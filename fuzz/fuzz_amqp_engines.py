"""Feed the engines of RPC over AMQP messages of RabbitMQ, in any order and at any time.

    python -m fuzz.drive fuzz_amqp_engines DIRECTORY [libFuzzer options]

An input is a byte that chooses the engine, caller or responder, and its settings, and a list of
steps. A step is a byte: three bits choose the channel, the others the event: a method (by number,
with arguments and content), a call or the end of a handler, passing time, a new or lost connection.
Checks for each input: no exception is raised; nothing is sent on a lost connection; the engine
does not request wake-ups endlessly; each call ends once; at the end all tables are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

from requite.engine import (
    Cancel,
    CancelHandler,
    Deliver,
    Disconnect,
    Drain,
    Engine,
    Fail,
    Finished,
    Message,
    PeerJoined,
    PeerLost,
    Produced,
    Received,
    Send,
    Stopped,
    Submit,
    Wake,
)
from requite.protocols.amqp import methods
from requite.protocols.amqp.assignment import pool_assignment, service_assignment
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.fields import short
from requite.protocols.amqp.methods import CONNECTION
from requite.protocols.amqp.policy import CallerPolicy, ResponderPolicy
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.responder import AmqpResponder
from requite.protocols.amqp.topology import Destination, Pool
from requite.request import Partial, Reply, RetryPolicy, Status

CHANNELS: Final = 4
STEPS_MAX: Final = 200
TICK_S: Final = 0.05  # seconds per unit of a step that advances the clock
WAKES_MAX: Final = 2000
FOR_EVER_S: Final = 120.0
CALLS_MAX: Final = 8

METHOD, PASS_TIME, ACT, CANCEL, CONNECT, DISCONNECT, DRAIN = range(7)
_KINDS: Final = (METHOD,) * 40 + (PASS_TIME,) * 8 + (ACT,) * 8 + (CANCEL,) * 2 + (CONNECT,) * 3
_ALL_KINDS: Final = (*_KINDS, DISCONNECT, DISCONNECT, DRAIN)
_METHODS: Final = (
    methods.BASIC_DELIVER,
    methods.BASIC_RETURN,
    methods.BASIC_ACK,
    methods.BASIC_NACK,
    methods.BASIC_CANCEL,
    methods.BASIC_CANCEL_OK,
    methods.BASIC_CONSUME_OK,
    methods.QUEUE_DECLARE_OK,
    methods.EXCHANGE_DECLARE_OK,
    methods.CHANNEL_CLOSE,
    methods.CONNECTION_CLOSE,
    methods.CONNECTION_BLOCKED,
    methods.CONNECTION_TUNE_OK,
)


class World:
    """An engine and its connection. `jobs` have a running handler; `ended` counts the ends of each
    call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 100.0
        self.peer: object | None = None
        self.jobs: list[Any] = []
        self.calls = 0
        self.ended: dict[int, int] = {}
        self.stopped = False

    # --- inputs -----------------------------------------------------------------------------------
    def step(self, kind: int, channel: int, message: Message) -> None:
        """Perform a step."""
        argument = message[1][4] if len(message[1]) > 4 else 0
        match kind:
            case 0 if self.peer is not None:
                self.feed(Received(self.peer, [message]))
            case 1:
                self.pass_time(argument * TICK_S)
            case 2:
                self._act(argument)
            case 3 if self.calls and isinstance(self.engine, AmqpCaller):
                self.feed(Cancel(argument % self.calls))
            case 4 if self.peer is None:
                self.connect()
            case 5 if self.peer is not None:
                self.disconnect()
            case 6:
                self.feed(Drain())

    def connect(self) -> None:
        """Connect, and negotiate heartbeats."""
        self.peer = object()
        self.feed(PeerJoined(self.peer))
        self.feed(Received(self.peer, [[CONNECTION, methods.tune_ok(16, 131_072, 10)]]))

    def disconnect(self) -> None:
        """Report that the connection was lost."""
        peer, self.peer = self.peer, None
        self.feed(PeerLost(peer, "lost"))

    def _act(self, argument: int) -> None:
        """Submit a call to a caller; let a responder's handler end or yield a partial reply."""
        if isinstance(self.engine, AmqpCaller):
            deadline = self.now + argument if argument else inf
            partials, idempotent = bool(argument & 1), bool(argument & 2)
            self.feed(Submit(self.calls, "k", [b"body"], deadline, idempotent, b"", partials))
            self.calls += 1
        elif self.jobs:
            job = self.jobs[argument % len(self.jobs)]
            if argument & 64:
                self.feed(Produced(job, [b"part"]))
            else:
                self.jobs.remove(job)
                self.feed(Finished(job, [b"reply"], Status.FAILED if argument & 128 else Status.OK))

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the engine."""
        end = self.now + seconds
        for _ in range(WAKES_MAX):
            at = self.engine.deadline()
            if at is None or at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            self.feed(Wake())
        raise AssertionError(f"{WAKES_MAX} wake-ups within {seconds} s")

    def check_end(self) -> None:
        """Assert that no state remains (I9), and that each call has ended once (I1)."""
        for job in list(self.jobs):
            self.feed(Finished(job, [b""]))
        if self.peer is not None:
            self.disconnect()
        self.feed(Drain())
        state = self.engine.snapshot()
        assert state.stopped, "the engine does not stop after a drain"
        assert all(count == 1 for count in self.ended.values()), "a call ended twice"
        if isinstance(self.engine, AmqpCaller):
            assert len(self.ended) == self.calls, "a call has no end"
            assert (state.held, state.sent, state.unconfirmed) == (0, 0, 0), state
        else:
            assert (state.running, state.abandoned, state.unconfirmed) == (0, 0, 0), state

    # --- effects ----------------------------------------------------------------------------------
    def feed(self, event: tuple[Any, ...]) -> None:
        """Feed the engine one input, and check its effects."""
        for effect in self.engine.handle([event], self.now):
            self._perform(effect)

    def _perform(self, effect: Any) -> None:
        match effect:
            case Send(peer=peer, message=message):
                assert peer is self.peer, "something is sent on a connection that is gone"
                assert peer is not None
                assert all(isinstance(part, bytes) for part in message)
            case Disconnect(peer=peer) if peer is self.peer:
                self.peer = None
            case Deliver(token=token, what=Reply()) | Fail(token=token):
                self.ended[token] = self.ended.get(token, 0) + 1
            case Deliver(token=token, what=Partial()):
                assert token not in self.ended, "a partial reply follows the end"
            case Deliver(token=job):
                self.jobs.append(job)
            case CancelHandler(token=job):
                assert job in self.jobs, "nobody has what is abandoned"
            case Stopped():
                self.stopped = True


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if not data:
        return
    world = World(_engine(data[0]))
    world.connect()
    for kind, channel, message in steps(data[1:]):
        if kind == ACT and world.calls >= CALLS_MAX:
            continue
        world.step(kind, channel, message)
        if world.stopped:
            break
    world.check_end()


def _engine(choice: int) -> Engine:
    pool = Pool("core")
    if choice & 1:
        policy = CallerPolicy(
            slots=4,
            retry=RetryPolicy(attempts=1 + choice % 3, attempt_timeout=1.0 if choice & 4 else None),
            confirms=bool(choice & 8),
            direct_reply=bool(choice & 16),
        )
        return AmqpCaller(policy, pool.destination if choice & 2 else Destination())
    assignment = pool_assignment(pool, "k", "w") if choice & 2 else service_assignment("k", "w")
    return AmqpResponder(assignment, ResponderPolicy(prefetch=4, cancels_max=4), service="k")


def steps(data: bytes) -> Iterator[tuple[int, int, Message]]:
    """Split an input into steps: kind, channel, message."""
    at = 0
    for _ in range(STEPS_MAX):
        if at + 1 >= len(data):
            return
        kind = _ALL_KINDS[data[at] // CHANNELS % len(_ALL_KINDS)]
        channel = data[at] % CHANNELS
        number, size = data[at + 1], data[at + 2] if at + 2 < len(data) else 0
        arguments = data[at + 3 : at + 3 + size]
        at += 3 + size
        method = _METHODS[number % len(_METHODS)]
        message = [methods.channel(channel), method + arguments]
        if kind == METHOD and method in methods.HAS_CONTENT:
            size = data[at] if at < len(data) else 0
            message.append(data[at + 1 : at + 1 + size])
            at += 1 + size
            if number < 128:  # otherwise a message whose body was too large
                message.append(b"body")
        yield kind, channel, message


def step(kind: int, channel: int = 1, number: int = 0, arguments: bytes = b"") -> bytes:
    """Return the bytes of a step: the inverse of `steps`."""
    head = bytes((_ALL_KINDS.index(kind) * CHANNELS + channel, number, len(arguments)))
    return head + arguments


def _method_step(
    method: bytes, arguments: bytes, header: bytes | None = None, channel: int = 1
) -> bytes:
    content = b"" if header is None else bytes((len(header),)) + header
    return step(METHOD, channel, _METHODS.index(method), arguments) + content


def corpus() -> Iterator[bytes]:
    """Yield inputs with complete calls, and inputs with complete requests."""
    names = Properties("0000000000000001", "replies", "00" * 16, "1000", {"x-status": "ok"})
    partial = names._replace(headers={"x-partial": 0, "x-run": 1})
    cancel = names._replace(headers={"x-control": "cancel"})
    tag = bytes(7) + b"\1"
    deliver = short("c") + tag + b"\0" + short("") + short("k")
    consuming = _method_step(methods.BASIC_CONSUME_OK, short("requests"))
    declared = _method_step(methods.QUEUE_DECLARE_OK, short("k") + bytes(8))
    ready = consuming + _method_step(methods.EXCHANGE_DECLARE_OK, b"", None, 2)
    act, pause = step(ACT, 1, 0, b"\x09"), step(PASS_TIME, 1, 0, b"\x30")
    part = _method_step(methods.BASIC_DELIVER, deliver, encode_properties(partial, 4))
    final = _method_step(methods.BASIC_DELIVER, deliver, encode_properties(names, 4))
    back = b"\1\x38" + short("NO_ROUTE") + short("") + short("k")
    returned = _method_step(methods.BASIC_RETURN, back, encode_properties(names, 4))
    closed = _method_step(
        methods.CHANNEL_CLOSE, b"\1\x94" + short("NOT_FOUND") + methods.QUEUE_DECLARE
    )
    confirm = _method_step(methods.BASIC_ACK, tag + b"\1")
    lost = step(DISCONNECT) + step(CONNECT)
    cancelled = _method_step(methods.BASIC_DELIVER, deliver, encode_properties(cancel, 0), 2)
    for choice in (1, 3, 13, 31):
        yield bytes((choice,)) + ready + act + part + final + act + returned + confirm + pause
        yield bytes((choice,)) + act + lost + ready + act + closed + ready + step(CANCEL) + pause
    for choice in (0, 2):
        served = declared + consuming + final + act + confirm + cancelled + final
        yield bytes((choice,)) + served + pause
        yield bytes((choice,)) + closed + pause + declared + consuming + final + lost + step(DRAIN)


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
