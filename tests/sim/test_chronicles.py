"""Chronicles of MDP engines are consistent in runs full of faults.

The audit trusts the journal. So an engine that was not killed must record exactly one start and one
end per request, even under faults.
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
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.majordomo.scenarios import MDP_SCENARIOS as SCENARIOS
from requite.sim.run import Options, run

SEEDS = range(4)


class RecordedEngines:
    """Every engine of a run, with its chronicle."""

    def __init__(self) -> None:
        self._names = count(1)
        self.brokers: list[tuple[Engine, Chronicle]] = []
        self.clients: list[tuple[Engine, Chronicle]] = []
        self.workers: list[tuple[Engine, Chronicle]] = []

    @property
    def parts(self) -> MajordomoParts:
        return MajordomoParts(self._broker, self._client, self._worker)

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
def test_every_request_has_one_start_and_one_end(name: str) -> None:
    for seed in SEEDS:
        engines = RecordedEngines()
        found = run(seed, name, Options(parts=(engines.parts,)))
        # I9 fails: nothing takes the rows here, and the timer that flushes them stays set.
        assert {each.invariant for each in found.violations} <= {"I9"}, found.replay
        for engine, chronicle in [*engines.clients, *engines.brokers]:
            check_ends(engine, chronicle)
        for _, chronicle in engines.clients:
            assert set(begun_and_ended(chronicle)[0].values()) <= {1}  # one start per call id
        for _, chronicle in [*engines.brokers, *engines.clients]:
            check_order(chronicle)  # a worker may hold a request twice and records each in turn
        for _, chronicle in engines.brokers:
            check_ownership(chronicle)


def check_ends(engine: Engine, chronicle: Chronicle) -> None:
    """Check that every started request has ended, unless the process was killed."""
    begun, ended = begun_and_ended(chronicle)
    assert ended <= begun
    if has_stopped(engine):
        assert begun == ended


def check_ownership(chronicle: Chronicle) -> None:
    """Check that a broker dispatches only requests that it has accepted and not yet answered.

    It may accept a request more than once: a client that lost its connection resends over a new
    one,
    perhaps before the broker has detected the loss.
    """
    for event_rows in by_request(chronicle).values():
        accepted = 0
        for each in event_rows:
            accepted += (each.kind == Kind.ACCEPTED) - (each.kind in ENDS)
            assert accepted >= 0
            if each.kind in (Kind.DISPATCHED, Kind.REDELIVERED, Kind.PARTIAL):
                assert accepted >= 1
