"""What engines write down, compared with itself, in runs full of faults.

The audit believes the journal, so the journal has to be right where the protocols are strained:
whoever lived to the end has told of each request exactly one beginning and exactly one end.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from tests.sim.chronicles import begun_and_ended, by_request, check_order

from requite.chronicle import ENDS, Chronicle, Kind
from requite.engine import Engine
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.sim.majordomo_scenarios import MDP_SCENARIOS as SCENARIOS
from requite.sim.roles import Parts
from requite.sim.run import Options, run

SEEDS = range(4)


class Lives:
    """Every engine of a run, with its chronicle."""

    def __init__(self) -> None:
        self._names = count(1)
        self.brokers: list[tuple[Engine, Chronicle]] = []
        self.clients: list[tuple[Engine, Chronicle]] = []
        self.workers: list[tuple[Engine, Chronicle]] = []

    @property
    def parts(self) -> Parts:
        return Parts(self._broker, self._client, self._worker)

    def _broker(self, *arguments: Any, **options: Any) -> Engine:
        chronicle = Chronicle()
        name = next(self._names).to_bytes(4, "big").ljust(8, b"b")
        engine = MajordomoBroker(*arguments, **options, origin=name, chronicle=chronicle)
        self.brokers.append((engine, chronicle))
        return engine

    def _client(self, *arguments: Any, **options: Any) -> Engine:
        chronicle = Chronicle()
        name = next(self._names).to_bytes(8, "big")
        engine = client_engine(*arguments, **options, origin=name, chronicle=chronicle)
        self.clients.append((engine, chronicle))
        return engine

    def _worker(self, *arguments: Any, **options: Any) -> Engine:
        chronicle = Chronicle()
        name = next(self._names).to_bytes(8, "big")
        engine = MajordomoWorker(*arguments, **options, instance=name, chronicle=chronicle)
        self.workers.append((engine, chronicle))
        return engine


def has_stopped(engine: Engine) -> bool:
    return bool(
        engine.stopped if isinstance(engine, MajordomoBroker) else engine.snapshot().stopped
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_whoever_lives_to_the_end_tells_of_all_beginnings_and_ends(name: str) -> None:
    for seed in SEEDS:
        lives = Lives()
        found = run(seed, name, Options(parts=lives.parts))
        # I9 finds the rows, which nobody takes here, and the timer that has them written.
        assert {each.invariant for each in found.violations} <= {"I9"}, found.replay
        for engine, chronicle in [*lives.clients, *lives.brokers]:
            check_ends(engine, chronicle)
        for _, chronicle in lives.clients:
            assert set(begun_and_ended(chronicle)[0].values()) <= {1}  # by one id each
        for _, chronicle in [*lives.brokers, *lives.clients]:
            check_order(chronicle)  # a worker may hold a request twice, and tells of each in turn
        for _, chronicle in lives.brokers:
            check_ownership(chronicle)


def check_ends(engine: Engine, chronicle: Chronicle) -> None:
    """What began has ended, unless the process was killed."""
    begun, ended = begun_and_ended(chronicle)
    assert ended <= begun
    if has_stopped(engine):
        assert begun == ended


def check_ownership(chronicle: Chronicle) -> None:
    """A broker hands out only what it has accepted, and has not answered yet.

    It may have accepted a request more than once: a client that lost its connection sends again
    over a new one, perhaps before the broker knows that the old one is gone.
    """
    for event_rows in by_request(chronicle).values():
        accepted = 0
        for each in event_rows:
            accepted += (each.kind == Kind.ACCEPTED) - (each.kind in ENDS)
            assert accepted >= 0
            if each.kind in (Kind.DISPATCHED, Kind.REDELIVERED, Kind.PARTIAL):
                assert accepted >= 1
