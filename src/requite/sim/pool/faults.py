"""Faults of managers, workers, RabbitMQ and the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.wire import EVENT
from requite.sim.kernel.fault_injection import FaultAction, Injector, choose, spare
from requite.sim.kernel.faults import Fault, FaultKind

if TYPE_CHECKING:
    from requite.sim.kernel.faults import Fault
    from requite.sim.pool.callers import Caller
    from requite.sim.pool.driver import SimDriver
    from requite.sim.pool.manager import Manager
    from requite.sim.pool.member import Member
    from requite.sim.pool.stage import PoolStage

_SLOW_S: Final = 3.0

# Percent-encoded, it exceeds the maximum length of an AMQP name.
_LONG_KEY: Final = "/" * 200


class PoolFaults(Injector):
    """Injects faults into managers, workers, callers, RabbitMQ and the driver."""

    def __init__(
        self,
        stage: PoolStage,
        driver: SimDriver,
        managers: Sequence[Manager],
        callers: Sequence[Caller],
    ) -> None:
        self._stage = stage
        self._driver = driver
        self._managers = managers
        self._callers = callers
        super().__init__()

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the action of each kind of fault."""
        return {
            FaultKind.CRASH_MANAGER: self._crash_manager,
            FaultKind.DRAIN_MANAGER: self._drain_manager,
            FaultKind.CUT_MANAGER: lambda fault: self._cut(self._managers, fault),
            FaultKind.CRASH_WORKER: self._crash_worker,
            FaultKind.CUT_WORKER: lambda fault: self._cut(self._driver.workers, fault),
            FaultKind.CUT_CALLER: lambda fault: self._cut(self._callers, fault),
            FaultKind.RESTART_RABBIT: self._restart_rabbit,
            FaultKind.API_FAILS: self._fail_api,
            FaultKind.API_SLOW: self._slow_api,
            FaultKind.DRIVER_FAILS: self._fail_driver,
            FaultKind.DRIVER_SLOW: self._slow_driver,
            FaultKind.REFUSE: self._refuse,
            FaultKind.MEDDLE: self._meddle,
            FaultKind.GARBAGE: self._send_garbage,
        }

    def end(self) -> None:
        """End all faults, cancel the planned ones, and restart dead managers."""
        super().end()
        stage = self._stage
        stage.rabbit.start()
        stage.api.fails, stage.api.slow_s = 0, 0.0
        stage.store.forbidden.clear()
        self._driver.fails, self._driver.slow_s = 0, 0.0
        for manager in self._managers:
            if not manager.is_leaving:
                manager.start()

    def _later(self, fault: Fault, act: Callable[[], object]) -> None:
        self._stage.world.after(fault.duration_s, lambda: None if self._over else act())

    # --- processes --------------------------------------------------------------------------------
    def _crash_manager(self, fault: Fault) -> None:
        manager = choose(self._managers, fault.lot)
        manager.kill(self._notice_s(fault))
        self._stage.world.after(fault.duration_s, manager.start)

    def _drain_manager(self, fault: Fault) -> None:
        """Drain a manager, and restart it once it has exited."""
        manager = choose(self._managers, fault.lot)
        manager.leave(stop_groups=spare(fault.lot) < 0.5)
        self._restart(manager, fault.duration_s)

    def _restart(self, manager: Manager, after_s: float) -> None:
        def look() -> None:
            if manager.alive and manager.is_leaving:
                self._restart(manager, after_s)
            else:
                manager.start()

        self._stage.world.after(after_s, look)

    def _crash_worker(self, fault: Fault) -> None:
        workers = self._driver.workers
        if workers:
            choose(workers, fault.lot).kill(self._notice_s(fault))

    def _cut(self, members: Sequence[Member], fault: Fault) -> None:
        """Break a connection; each end detects that after its own delay."""
        if members:
            client_delay_s = spare(fault.lot) * self._stage.knobs.notice_s
            choose(members, fault.lot).cut(client_delay_s, self._notice_s(fault))

    def _notice_s(self, fault: Fault) -> float:
        return spare(spare(fault.lot)) * self._stage.knobs.notice_s

    # --- RabbitMQ ---------------------------------------------------------------------------------
    def _restart_rabbit(self, fault: Fault) -> None:
        self._stage.rabbit.crash()
        self._stage.world.after(fault.duration_s, self._stage.rabbit.start)

    def _fail_api(self, fault: Fault) -> None:
        api = self._stage.api
        api.fails += 1

        def mend() -> None:
            api.fails -= 1

        self._later(fault, mend)

    def _slow_api(self, fault: Fault) -> None:
        self._stage.api.slow_s = _SLOW_S

        def mend() -> None:
            self._stage.api.slow_s = 0.0

        self._later(fault, mend)

    def _refuse(self, fault: Fault) -> None:
        """Make RabbitMQ refuse all operations on the queue of one key."""
        key = f"key-{int(spare(fault.lot) * self._stage.knobs.keys)}"
        self._stage.store.refuse(key)
        self._later(fault, lambda: self._stage.store.allow(key))

    def _meddle(self, fault: Fault) -> None:
        """Unbind a queue, as an operator would; delete it if it is empty."""
        store = self._stage.store
        found = [name for name in store.queues if store.names.key_of(name) is not None]
        if not found or not self._stage.rabbit.alive:
            return
        name = choose(sorted(found), fault.lot)
        key = store.names.key_of(name) or ""
        store.exchanges.unbind(store.names.requests_exchange, name, key)
        if not store.queues[name].messages:
            store.delete(name).close()

    # --- the driver -------------------------------------------------------------------------------
    def _fail_driver(self, fault: Fault) -> None:
        driver = self._driver
        driver.fails += 1

        def mend() -> None:
            driver.fails -= 1

        self._later(fault, mend)

    def _slow_driver(self, fault: Fault) -> None:
        self._driver.slow_s = _SLOW_S

        def mend() -> None:
            self._driver.slow_s = 0.0

        self._later(fault, mend)

    # --- intruders --------------------------------------------------------------------------------
    def _send_garbage(self, fault: Fault) -> None:
        """Publish an invalid message to an exchange of the pool."""
        rabbit, names = self._stage.rabbit, self._stage.store.names
        headers = {
            EVENT: b"\xff",
            "x-first-death-reason": {"no": "text"},
            "x-delivery-count": "many",
        }
        exchanges = (
            names.activity_exchange,
            names.dead_letter_exchange,
            names.orphan_exchange,
            names.requests_exchange,
        )
        key = choose(("", _LONG_KEY, "key-0", "%/\x00"), spare(fault.lot))
        if rabbit.alive and names.requests_exchange in self._stage.store.exchanges:
            header = encode_properties(Properties(headers=headers), 0)
            exchange = choose(exchanges, fault.lot)
            rabbit.perform(lambda: rabbit.hub.publishing.inject(key, header, b"", exchange))
