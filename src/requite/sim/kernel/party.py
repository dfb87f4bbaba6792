"""Processes of protocols in which any party may listen, dial, and stay connected to others.

They use the host, the `AddressList` and the `PersistentConnection` of `requite.shell` on the
simulated network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from requite.backoff import Backoff
from requite.engine import Engine
from requite.errors import CallError, RemoteViolation
from requite.framing import Limits, SocketType, Zmtp
from requite.framing.base import Framing, Message
from requite.request import Request, Status
from requite.shell.connections import AddressList, Endpoint, PersistentConnection, no_framing
from requite.shell.host import Host
from requite.shell.link import Link
from requite.sim.kernel.dialler import SimDialler
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.handlers import Handling
from requite.sim.kernel.history import Call, History
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.process import Ending
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.user import User
from requite.sim.kernel.workload import CallPlan, Task, parse_task
from requite.transport.address import Address, InprocAddress

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

MESSAGE_SIZE_MAX: Final = 1 << 20

StageT = TypeVar("StageT", bound=RunStage[Any, Any])


# --- framings -------------------------------------------------------------------------------------
class _WatchedFraming:
    """Passes everything on to a framing, and reports refusals.

    It does not inherit, since a compiled class has no interpreted subclasses.
    """

    def __init__(self, framing: Framing, stream: SimStream, history: History) -> None:
        self._framing = framing
        self._stream = stream
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._framing, name)

    def receive(self, chunk: bytes) -> list[Message]:
        try:
            return self._framing.receive(chunk)
        except RemoteViolation as violation:
            self._history.tell("expelled", self._stream.other.process, str(violation))
            raise


def watched(framing: Framing, stream: SimStream, history: History) -> Framing:
    """Return a framing that reports to the history if it refuses an honest peer's bytes."""
    return cast(Framing, _WatchedFraming(framing, stream, history))


def watched_zmtp(
    kind: SocketType, stream: SimStream, history: History, identity: bytes = b""
) -> Framing:
    """Return ZMTP for one connection; it reports honest peers whose bytes it refuses."""
    limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
    return watched(Zmtp(kind, identity=identity, limits=limits), stream, history)


# --- parties --------------------------------------------------------------------------------------
class Party(EngineProcess, Generic[StageT]):
    """A process of a run.

    `listens`: its ports, each with the place that its engine gets. `keeps`: the addresses to which
    it stays connected, each with its place. `dials`: the addresses to one of which it connects
    whenever its engine asks. `observer` observes its engine. `in_hand`: the counts of a snapshot
    that add up to its requests in hand, of which it may have `in_hand_max`; a connection may have
    `queue_max` requests in its queue.
    """

    kind: str
    hub: Engine  # its engine under observation; a new one after each start
    observer: ClassVar[type[Hub]] = Hub
    listens: Sequence[tuple[str, Any]] = ()
    keeps: Sequence[tuple[str, Any]] = ()
    dials: Sequence[Address] = ()
    in_hand: Sequence[str] = ()
    in_hand_max = 0
    queue_max = 0

    def __init__(self, name: str, stage: StageT) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage = stage
        self._kept: dict[PersistentConnection, SimDialler] = {}

    # --- for subclasses ---------------------------------------------------------------------------
    @abstractmethod
    def make_engine(self) -> Engine:
        """Return a new engine."""

    @abstractmethod
    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return the framing of a connection from or to `place`, as the engine knows it."""

    def asks(self, place: Any) -> bool:
        """Whether the engine sends requests over the connections of a place."""
        return False

    def deliver(self, token: Any, what: Any) -> None:
        """Handle a delivery of the engine."""
        raise AssertionError(f"{self.name} was delivered {what!r}")

    def fail(self, token: Any, error: CallError) -> None:
        """Handle a failure that the engine reports."""
        raise AssertionError(f"{self.name} was told {error!r}")

    def abandon(self, token: Any, reason: str) -> None:
        """Abandon a handler."""
        raise AssertionError(f"{self.name} was told to give up: {reason}")

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new engine in its observer."""
        self._kept = {}
        self._addresses = AddressList(self.dials, Backoff(self.rng.random), self.clock)
        dialler = SimDialler(self, self._addresses, self._dialled)
        self.hub = self.observer(self.make_engine(), self)
        return self.host_of_hub(connect=dialler.connect, ended=self._link_ended)

    def started(self) -> None:
        """Listen, and connect to the peers to stay connected to; called after each start."""
        self.stage.history.tell("hub_started", self.hub)
        for port, place in self.listens:
            self.take_connections(port, place)
        for address, place in self.keeps:
            self._keep(address, place)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self.stage.history.tell("hub_ended", self.hub)

    def has_stopped(self) -> None:
        """Accept no more connections, and exit."""
        self.network.listen_no_more(self)
        super().has_stopped()

    def host_of_hub(self, **options: Any) -> Host:
        """Return a host of the observed engine."""
        return self.host_of(
            self.hub,
            self.stage.knobs.limits,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            **options,
        )

    # --- connections ------------------------------------------------------------------------------
    def take_connections(self, port: str = "", place: Any = None) -> None:
        """Listen, at a port if one is given."""

        def accept(stream: SimStream) -> None:
            framing = self.make_framing(stream, place, accepted=True)
            options: dict[str, Any] = {"accepted": True, "framing": framing, "place": place}
            self.adopt(stream, lambda: self.host.opened(stream, **options))

        self.network.listen(self, port, accept)

    def _keep(self, address: str, place: Any) -> None:
        endpoint = Endpoint(InprocAddress(address), no_framing, place)
        kept = PersistentConnection(endpoint, Backoff(self.rng.random), self.clock)
        self._kept[kept] = dialler = SimDialler(self, kept, partial(self._opened, place))
        dialler.go_on()

    def _opened(self, place: Any, stream: SimStream) -> Link:
        framing = self.make_framing(stream, place, accepted=False)
        return self.host.opened(stream, kept=True, framing=framing, place=place)

    def _dialled(self, stream: SimStream) -> Link:
        framing = self.make_framing(stream, None, accepted=False)
        return self.host.opened(stream, framing=framing)

    def _link_ended(self, link: Link, reason: str) -> None:
        self._addresses.ended(link, reason)
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.go_on()


class ClientParty(Party[StageT]):
    """A client, and its user: `tries_max` and `options` are those of `User`."""

    kind = "client"
    hub: Hub
    in_hand = ("held", "sent")

    def __init__(
        self,
        spec: Any,
        stage: StageT,
        *,
        tries_max: int,
        frames_of: Callable[[CallPlan], list[bytes]] = attrgetter("frames"),
        carries_idempotency: bool = True,
        has_keys: bool = False,
        soon: bool = False,
    ) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            frames_of,
            tries_max=tries_max,
            carries_idempotency=carries_idempotency,
            has_keys=has_keys,
            soon=soon,
        )

    def asks(self, place: Any) -> bool:
        """Return True: a client sends all its requests."""
        return True

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply to the user."""
        self.user.deliver(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Give an error to the user."""
        self.user.fail(token, error)


class ServingParty(Handling, Party[StageT]):
    """A server or worker, and its handlers."""

    hub: Hub
    in_hand: Sequence[str] = ("running", "abandoned")

    def __init__(self, spec: Any, stage: StageT) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec

    def make_host(self) -> Host:
        """Return a host with a new engine; forget handlers from before a restart."""
        self.forget_handlers()
        return super().make_host()

    # --- for subclasses ---------------------------------------------------------------------------
    def read_request(self, frames: Sequence[bytes]) -> tuple[Task, bytes] | None:
        """Parse a request's body into task and payload; None for an intruder's request."""
        task = parse_task(frames)
        return None if task is None else (task, frames[1])

    def key_of(self, request: Request, call: Call) -> bytes:
        """Return the idempotency key that the request has; by default, the protocol has none."""
        return b""

    # --- requests ---------------------------------------------------------------------------------
    def deliver(self, token: Any, what: Any) -> None:
        """Start the handler of a request."""
        request: Request = what
        history = self.stage.history
        read = self.read_request(request.frames)
        call = None if read is None else history.calls.get(read[0].number)
        if read is None or call is None:
            self.later(0.0, self.answer, token, Status.OK, list(request.frames))
            return
        task, payload = read
        execution = history.started(call, self.name, payload, self.key_of(request, call))
        self.begin(token, execution, task, payload)
