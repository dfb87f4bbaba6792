"""Forged heartbeats do not end a server: attack 5 of the security design ended both of a pair."""

from __future__ import annotations

import pytest
from tests.pair.hand import Bench

from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import EPOCH_JUMP_MAX, EPOCH_MAX

FORGED = {
    "active in the same epoch": (State.ACTIVE, 0),
    "passive in the same epoch": (State.PASSIVE, 0),
    "suspended in the same epoch": (State.SUSPENDED, 0),
    "in its own role": (State.ACTIVE, 0),
    "the last epoch": (State.ACTIVE, EPOCH_MAX),
    "an epoch far ahead": (State.PASSIVE, EPOCH_JUMP_MAX + 2),
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("state", [s for s in State if s is not State.FAILED])
def test_a_forged_heartbeat_never_ends_a_server(state: State, forged: str) -> None:
    own = PairRole.BACKUP if state is State.BACKUP else PairRole.PRIMARY
    bench = Bench(own)
    bench.become(state)
    bench.join("stranger", dialled=False)
    said, jump = FORGED[forged]
    rest = {"role": own} if forged == "in its own role" else {}
    epoch = min(bench.engine.epoch + jump, EPOCH_MAX)
    bench.hear(said, epoch, link="stranger", instance=77, **rest)
    assert bench.state is not State.FAILED
    assert bench.engine.epoch <= bench.engine.policy.role + EPOCH_JUMP_MAX
    bench.hear(State.PASSIVE, bench.engine.epoch + 1)
    assert bench.state is not State.FAILED


def test_a_heartbeat_that_cannot_be_costs_its_connection_and_changes_nothing() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.become(State.ACTIVE)
    before = bench.engine.snapshot()
    bench.join("stranger", dialled=False)
    bench.hear(State.ACTIVE, bench.engine.epoch, link="stranger", instance=77)
    assert bench.closed == ["stranger"]
    assert "check which hosts can reach this address" in bench.warnings[-1]
    assert (bench.engine.epoch, bench.engine.snapshot().word) == (before.epoch, before.word)
    assert bench.serves


def test_an_epoch_far_ahead_is_refused_over_each_connection() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.hear(State.ACTIVE, EPOCH_JUMP_MAX + 1)
    assert bench.closed == ["peer"]
    assert bench.engine.epoch == 0
    assert f"epoch {EPOCH_JUMP_MAX + 1}, too far ahead of 0" in bench.warnings[-1]
    bench.join()
    bench.hear(State.ACTIVE, EPOCH_JUMP_MAX - 1)
    assert bench.state is State.PASSIVE


def test_a_contradiction_of_the_configured_peer_fails() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.become(State.ACTIVE)
    bench.hear(State.ACTIVE, bench.engine.epoch)
    assert bench.state is State.FAILED
