"""The programs between clients and workers: real brokers, queues, devices, Titanics and
managers."""

from __future__ import annotations

from typing import Any, Final

from requite.core.liveness import HeartbeatPolicy
from requite.pair import Pair
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.pirate.policy import QueuePolicy
from requite.protocols.titanic.policy import TitanicPolicy
from requite.shell.daemon import Daemon
from requite.sim.kernel.disk import SimDisk
from requite.sim.kernel.process import Ending
from requite.sim.shells.knobs import MIDDLE, Transport
from requite.sim.shells.pool import Platform, PlatformDriver, config_of
from requite.sim.shells.stage import BACK, FRONT, Member, ShellStage, brokers, tcp
from requite.sim.titanic.store import SimDiskSettings
from requite.titanic.store import StoreSettings
from requite.titanic.titanic import Titanic

PAIR_PORT: Final = 5560


class Middle(Member):
    """The program of a broker, queue, device, Titanic or manager: `daemon` while it runs."""

    daemon: Daemon | None = None
    platform: Platform | None = None  # of a manager

    def __init__(self, name: str, stage: ShellStage) -> None:
        super().__init__(name, stage)
        self.disk = SimDisk()

    async def main(self) -> None:
        """Run the daemon."""
        self.daemon = self.make_daemon()
        await self.daemon.serve()

    def make_daemon(self) -> Daemon:
        """Return a new daemon for this process and the transport of the run."""
        parts, knobs = self.stage.parts, self.stage.knobs
        if self.name == "titanic":
            return self._make_titanic()
        if self.platform is not None:
            driver = PlatformDriver(self.platform, self.rng)
            return parts.manager(config_of(knobs), driver=driver)
        match knobs.transport:
            case Transport.QUEUE:
                policy = QueuePolicy(
                    heartbeat=HeartbeatPolicy(knobs.interval_s, knobs.liveness),
                    drain_timeout_s=knobs.drain_timeout_s,
                )
                return parts.queue(tcp(FRONT), tcp(BACK), policy=policy)
            case Transport.DEVICE:
                return parts.device(front=f"sp+{tcp(FRONT)}", back=f"sp+{tcp(BACK)}")
        titanic = self._replicating() if knobs.transport is Transport.REPLICA else None
        return parts.broker(
            tcp(FRONT), policy=self._broker_policy(), pair=self._pair(), titanic=titanic
        )

    def _make_titanic(self) -> Titanic:
        parts, knobs = self.stage.parts, self.stage.knobs
        heartbeat = HeartbeatPolicy(knobs.interval_s, knobs.liveness)
        return parts.titanic(f"mdp://{brokers(knobs)}", self._on_disk(), heartbeat=heartbeat)

    def _replicating(self) -> SimDiskSettings:
        _, other = MIDDLE[Transport.REPLICA]
        if self.name == other:
            return self._on_disk(standby=True)
        return self._on_disk(replica=f"mdp://{other}:{FRONT}", sync=True)

    def _on_disk(self, **settings: Any) -> SimDiskSettings:
        policy = TitanicPolicy(
            attempt_timeout_s=5.0,
            backoff_s=0.1,
            backoff_s_max=2.0,
            drain_timeout_s=self.stage.knobs.drain_timeout_s,
            cache_bytes_max=0,
        )
        store = StoreSettings(disk_bytes_max=8 << 20, segment_size_bytes=256 << 10)
        return SimDiskSettings(policy=policy, store=store, machine=self, **settings)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        disk, cut = self.disk, what is Ending.POWER_LOSS
        self.disk = disk.after_power_cut(self.rng) if cut else disk.after_death()

    def _broker_policy(self) -> BrokerPolicy:
        knobs = self.stage.knobs
        return BrokerPolicy(
            heartbeat=HeartbeatPolicy(knobs.interval_s, knobs.liveness),
            attempts_max=knobs.attempts_max,
            service_grace_s=knobs.service_grace_s,
            drain_timeout_s=knobs.drain_timeout_s,
        )

    def _pair(self) -> Pair | None:
        if self.stage.knobs.transport is not Transport.PAIR:
            return None
        one, other = MIDDLE[Transport.PAIR]
        peer = other if self.name == one else one
        return Pair(
            "primary" if self.name == one else "backup",
            bind=tcp(PAIR_PORT),
            peer=f"tcp://{peer}:{PAIR_PORT}",
            heartbeat=self.stage.knobs.interval_s,
        )
