"""Workers that run each request once: the real `requite.dedup`, on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from requite.dedup import Dedup
from requite.dedup.engine import DedupEngine
from requite.dedup.gate import CallId, Gate, digest_of
from requite.dedup.records import NO_DIGEST
from requite.engine import Finished, Input, Started, Wake
from requite.protocols.majordomo.jobs import clients_call_id
from requite.request import Request, Status
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.dedup.store import SimStore
from requite.sim.kernel.disk import SimDisk
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.process import Ending
from requite.sim.kernel.workload import Task
from requite.sim.majordomo.parties import WorkerProcess

if TYPE_CHECKING:
    from requite.shell.host import Host
    from requite.sim.majordomo.knobs import WorkerSpec
    from requite.sim.majordomo.parties import Stage

# A handler may wait for a thread before it starts.
_WAITS_P: Final = 0.3
_WAITS_S_MAX: Final = 0.05


class SimGate(Gate):
    """A gate for requests whose first frame names the call, so that repetitions differ in it."""

    def _key_of(self, token: Any, request: Request) -> tuple[bytes, bytes]:
        key, digest = super()._key_of(token, request)
        return key, digest if digest == NO_DIGEST else digest_of(request.frames[1:])


class SimDedup(Dedup):
    """The setting of a worker's service, on the worker's disk and clock."""

    def __init__(self, process: DedupWorker, make_engine: Callable[..., DedupEngine]) -> None:
        knobs, now = process.knobs, process.clock()
        super().__init__(
            "replies" if knobs.durable else None,
            window=knobs.window_s,
            in_doubt=knobs.in_doubt,
            store_failures=knobs.store_failures,
        )
        self.log = SimStore(process, process.disk, knobs, self._feed) if knobs.durable else None
        self._store = self.log  # type: ignore[assignment]
        found = [] if self.log is None else self.log.found
        epoch_s = process.world.now - now
        self._use(make_engine(self._policy, epoch_s=epoch_s, found=found, now=now), process.clock)

    def gate(self, service: str, call_id: CallId) -> Gate:
        """See `Dedup.gate`."""
        return SimGate(service, call_id, self._feed)

    @property
    def engine(self) -> DedupEngine:
        """The engine."""
        return self._engine

    def look(self) -> None:
        """Pass a `Wake` to the engine."""
        self._feed(Wake())


class DedupWorker(WorkerProcess):
    """A worker with its stored replies, and a disk that survives its crashes."""

    spec: WorkerSpec
    dedup: SimDedup

    def __init__(self, spec: WorkerSpec, stage: Stage) -> None:
        super().__init__(spec, stage)
        assert isinstance(stage.knobs, DedupKnobs)
        self.knobs = stage.knobs
        self.disk = SimDisk()

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host whose engine starts with the replies on the disk."""
        self._unstarted: dict[Any, Request] = {}
        self.dedup = SimDedup(self, self.stage.parts.dedup)
        self._gate: Gate = self.dedup.gate(self.spec.service, clients_call_id)
        handlers: Any = SimpleNamespace(deliver=self.prepare, abandon=self.cancel)
        self._gate.handlers = handlers
        self._gate.tell = self._tell
        return super().make_host()

    def _tell(self, event: Input) -> None:
        self.host.submit(event)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        log = self.dedup.log
        if log is not None and what is Ending.EXIT:
            log.close()
        elif log is not None:
            log.die()
        cut = what is Ending.POWER_LOSS
        self.disk = self.disk.after_power_cut(self.rng) if cut else self.disk.after_death()

    # --- between the worker's engine and the handlers ---------------------------------------------
    def deliver(self, token: Any, what: Any) -> None:
        """Deliver a request to the gate."""
        self._gate.ask(token, what)

    def abandon(self, token: Any, reason: str) -> None:
        """Report that no caller waits for a request."""
        self._gate.give_up(token, reason)

    def run(self, token: Any, task: Task, payload: bytes) -> None:
        """Run a handler; one that hangs ends after `hang_s`, as nothing interrupts it."""
        if task.behaviour is Behaviour.HANG:
            self.later(self.hang_s, self.finish, token, task, payload)
        else:
            super().run(token, task, payload)

    def say(self, event: Input) -> None:
        """Handle an event of a handler."""
        if isinstance(event, Finished):
            self.stage.history.tell("effect_ended", event.token, event.status)
        self._gate.hear(event)

    def prepare(self, token: Any, request: Request) -> None:
        """Start a handler, now or a little later."""
        self._unstarted[token] = request
        if self.rng.random() < _WAITS_P:
            self.later(self.rng.random() * _WAITS_S_MAX, self._start, token)
        else:
            self._start(token)

    def cancel(self, token: Any, _reason: str) -> None:
        """Cancel a handler that has not started."""
        if self._unstarted.pop(token, None) is not None:
            self.later(0.0, self._gate.hear, Finished(token, (b"",), Status.CANCELLED))

    def _start(self, token: Any) -> None:
        request = self._unstarted.pop(token, None)
        if request is None:  # abandoned
            return
        self._gate.hear(Started(token))
        self.stage.history.tell("effect_began", token, self._key(request), self)
        if request.idempotency_key == clients_call_id(token):
            request.idempotency_key = b""  # the gate has made it up
        super().deliver(token, request)

    def _key(self, request: Request) -> bytes:
        """Return a key that is unique in the run. Without a disk, replies are lost with the
        process: each start has its own keys."""
        scope = b"" if self.knobs.durable else b"life %d " % self.life
        return scope + self.spec.service.encode() + b" " + request.idempotency_key
