"""A run of services that run each request once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from random import Random
from typing import Any, Final

from requite.sim.dedup.checkers import DEDUP_CHECKERS
from requite.sim.dedup.clients import DedupClient
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.dedup.workers import DedupWorker
from requite.sim.kernel import virtual
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.workload import CallPlan
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.simulation import MajordomoSimulation

_HANDLERS_S: Final = 30.0
_SOON_P: Final = 0.5
_SOON_S: Final = 0.3


class DedupCast(MajordomoCast):
    """All processes of a run, not yet started."""

    make_client = DedupClient
    make_worker = DedupWorker


class DedupSimulation(MajordomoSimulation):
    """A run with one broker, workers that store replies, and clients that repeat calls."""

    knobs_type = DedupKnobs
    checkers = DEDUP_CHECKERS
    knobs: DedupKnobs

    def run(self) -> None:
        """Run all phases without the shell's warnings."""
        with virtual.quiet():
            super().run()

    def make_cast(self) -> MajordomoCast:
        """Create all processes."""
        return DedupCast(self.make_stage())

    @classmethod
    def draw_calls(cls, knobs: Any, luck: Luck) -> Iterable[CallPlan]:
        """Draw calls, and repetitions of some by any client, at the same time or later."""
        plans = list(super().draw_calls(knobs, luck))
        repeated = list(_repetitions(plans, knobs, luck("repetitions")))
        keys = {plan.key for plan in repeated}
        return [*(_with_key(plan, keys) for plan in plans), *repeated]

    def phases(self) -> Iterable[Phase]:
        """Return the phases; handlers end before the processes drain."""
        settle, probe, send_clients_home, send_workers_home = super().phases()
        return (settle, probe, send_clients_home, self._forget, send_workers_home)

    def _forget(self) -> bool:
        """Check I9: once all handlers and windows have ended, workers remember no keys."""
        workers = [each for each in self.cast.workers if isinstance(each, DedupWorker)]
        self.wait(lambda: not any(w.dedup.stats.running for w in workers), _HANDLERS_S)
        self.world.run(self.world.now + self.knobs.window_s + 1.0)
        left = []
        for worker in workers:
            worker.dedup.look()
            stats, engine = worker.dedup.stats, worker.dedup.engine
            counts = (stats.running, stats.kept, stats.in_doubt, len(engine._entries))
            if any(counts) or engine._tokens or engine._loads:
                left.append(f"{worker.name} still has keys: {stats}")
        for what in left:
            self.history.violate("I9", what)
        return not left


def _repetitions(plans: Iterable[CallPlan], knobs: DedupKnobs, rng: Random) -> Iterator[CallPlan]:
    numbers = count(knobs.calls + 1)
    for plan in plans:
        while rng.random() < knobs.repeat_p:
            after_s = rng.random() * (_SOON_S if rng.random() < _SOON_P else knobs.faulty_s)
            yield plan._replace(
                number=next(numbers),
                at_s=min(knobs.faulty_s, plan.at_s + after_s),
                client=rng.choice(knobs.clients).name,
                follows=None,
                key=_key_of(plan),
            )


def _with_key(plan: CallPlan, keys: set[str]) -> CallPlan:
    """Give a repeated call the key of its repetitions."""
    return plan._replace(key=_key_of(plan)) if _key_of(plan) in keys else plan


def _key_of(plan: CallPlan) -> str:
    return f"key-{plan.number}"
