"""Workers that run each request once: the real engine of `requite.dedup`, on a simulated disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from requite.dedup.engine import DedupEngine
from requite.dedup.inputs import Asked, Discard, GivenUp
from requite.engine import CancelHandler, Deliver, Finished, Input, Load, Started, Store, Wake, Warn
from requite.protocols.majordomo.jobs import clients_call_id
from requite.request import Request, Status
from requite.shell.feeder import Feeder
from requite.sim.dedup.disk import SimDisk
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.dedup.store import SimStore
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.workload import Task
from requite.sim.majordomo.workers import WorkerProcess

if TYPE_CHECKING:
    from requite.shell.host import Host
    from requite.sim.majordomo.knobs import WorkerSpec
    from requite.sim.majordomo.roles import Stage

# A handler may wait for a thread before it starts.
_WAITS_P: Final = 0.3
_WAITS_S_MAX: Final = 0.05


class DedupWorker(WorkerProcess):
    """A worker with its stored replies, and a disk that survives its crashes."""

    dedup: DedupEngine

    def __init__(self, spec: WorkerSpec, stage: Stage) -> None:
        super().__init__(spec, stage)
        assert isinstance(stage.knobs, DedupKnobs)
        self._knobs = stage.knobs
        self._disk = SimDisk()
        self._store: SimStore | None = None
        # Without a disk, replies are lost with the process: each start has its own keys.
        self._scope = b""

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host whose engine starts with the replies on the disk."""
        knobs = self._knobs
        self._unstarted: dict[Any, Request] = {}
        self._keys: dict[Any, bytes] = {}
        found = []
        if knobs.durable:
            self._store = SimStore(self, self._disk, knobs.segment_size, knobs.disk_s, self._feed)
            found = self._store.found
        else:
            self._scope = b"life %d " % self.life
        now = self.clock()
        self.dedup = self._stage.parts.dedup(
            knobs.dedup_policy, epoch_s=self.world.now - now, found=found, now=now
        )
        self._feeder = Feeder(self.dedup, self.clock, self._perform)
        return super().make_host()

    def _end(self, what: str) -> None:
        super()._end(what)
        if self._store is not None and what == "exits":
            self._store.close()
        elif what == "loses power":
            self._disk = self._disk.after_power_cut(self.rng)
            return
        self._disk = self._disk.after_death()

    # --- between the worker's engine and the handlers ---------------------------------------------
    def deliver(self, token: Any, what: Any) -> None:
        """Deliver a request to the dedup engine."""
        request: Request = what
        key = request.idempotency_key
        call_id = clients_call_id(token)
        name = b"k" + key if key else b"c" + call_id
        self._keys[token] = self._scope + self.spec.service.encode() + b" " + name
        self._feed(Asked(token, request, name if key or call_id else b""))

    def abandon(self, token: Any, reason: str) -> None:
        """Report that no caller waits for a request."""
        self._feed(GivenUp(token, reason))

    def run(self, token: Any, task: Task, payload: bytes) -> None:
        """Run a handler; one that hangs ends after `hang_s`, as nothing interrupts it."""
        if task.behaviour is Behaviour.HANG:
            self.later(self.hang_s, self.finish, token, task, payload)
        else:
            super().run(token, task, payload)

    def say(self, event: Input) -> None:
        """Handle an event of a handler."""
        if isinstance(event, Finished):
            self._stage.history.tell("effect_ended", event.token, event.status)
        self._feed(event)

    def _feed(self, *events: Input) -> None:
        if refused := self._feeder.feed(events):
            raise refused

    def _perform(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Store | Load | Discard):
                assert self._store is not None
                self._store.perform(effect)
            elif isinstance(effect, Deliver):
                self._prepare(effect.token, effect.what)
            elif isinstance(effect, CancelHandler):
                if self._unstarted.pop(effect.token, None) is not None:
                    self.later(0.0, self._feed, Finished(effect.token, (b"",), Status.CANCELLED))
            elif not isinstance(effect, Warn):
                if isinstance(effect, Finished):
                    self._keys.pop(effect.token, None)
                self.host.submit(effect)

    def _prepare(self, token: Any, request: Request) -> None:
        self._unstarted[token] = request
        if self.rng.random() < _WAITS_P:
            self.later(self.rng.random() * _WAITS_S_MAX, self._start, token)
        else:
            self._start(token)

    def _start(self, token: Any) -> None:
        request = self._unstarted.pop(token, None)
        if request is None:  # abandoned
            return
        self._feed(Started(token))
        self._stage.history.tell("effect_began", token, self._keys[token], self)
        super().deliver(token, request)

    def look(self) -> None:
        """Pass a `Wake` to the engine."""
        self._feed(Wake())
