"""A pool: groups of workers on a RabbitMQ, each for one country, started by demand."""

from __future__ import annotations

from itertools import chain

from requite.cli.show.faults import milestones, spread
from requite.cli.show.pattern import Fault, Flow, Plot
from requite.cli.show.pool_stage import PoolStage
from requite.cli.show.screen import Screen
from requite.cli.show.upsets import Upsets


class Pool(PoolStage):
    """What is asked of a pool, and what goes wrong with it."""

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        self._schedule = schedule(plot)

    def asked(self) -> list[str]:
        """Return the airport of each request; the sleeper's country is left alone from the first
        fault until it is to be woken."""
        itinerary, asked = self.itinerary, self.plot.requests
        requests = itinerary.airports if asked is None else asked
        at = milestones(len(self._schedule), requests)
        return itinerary.codes(requests, range(at[0], at[self._schedule.index("wake")]))

    def faults(self, screen: Screen, flow: Flow) -> list[Fault]:
        """Kill workers, RabbitMQ and the manager, stop a worker; in the middle a group falls asleep
        and is woken."""
        upsets = Upsets(self, screen, flow)
        return [getattr(upsets, name) for name in self._schedule]


def schedule(plot: Plot) -> list[str]:
    """Return the names of what happens, in order: methods of `Upsets`."""
    kills = spread(
        (["kill_worker"], plot.worker_kills),
        (["kill_manager"], plot.broker_kills),
        (["settle", "kill_rabbit"], plot.broker_kills),
        (["stop_worker"], plot.stops),
    )
    middle = len(kills) // 2
    return [*chain(*kills[:middle]), "doze", "wake", *chain(*kills[middle:])]
