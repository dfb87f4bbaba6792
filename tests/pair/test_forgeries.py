"""Forged heartbeats do not make a server fail. Attack 5 of the security design failed both servers
of a pair."""

from __future__ import annotations

import pytest
from tests.pair.bench import Bench

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
def test_a_forged_heartbeat_never_fails_a_server(state: State, forged: str) -> None:
    own = PairRole.BACKUP if state is State.BACKUP else PairRole.PRIMARY
    bench = Bench(own)
    bench.bring_into(state)
    bench.join("stranger", dialled=False)
    said, jump = FORGED[forged]
    rest = {"role": own} if forged == "in its own role" else {}
    epoch = min(bench.engine.epoch + jump, EPOCH_MAX)
    bench.receive_heartbeat(said, epoch, link="stranger", instance=77, **rest)
    assert bench.state is not State.FAILED
    assert bench.engine.epoch <= bench.engine.policy.role + EPOCH_JUMP_MAX
    bench.receive_heartbeat(State.PASSIVE, bench.engine.epoch + 1)
    assert bench.state is not State.FAILED


def test_an_impossible_heartbeat_only_closes_its_connection() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.bring_into(State.ACTIVE)
    before = bench.engine.snapshot()
    bench.join("stranger", dialled=False)
    bench.receive_heartbeat(State.ACTIVE, bench.engine.epoch, link="stranger", instance=77)
    assert bench.closed == ["stranger"]
    assert "check which hosts can reach this address" in bench.warnings[-1]
    assert (bench.engine.epoch, bench.engine.snapshot().word) == (before.epoch, before.word)
    assert bench.serves


def test_an_epoch_too_far_ahead_closes_even_a_dialled_connection() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.receive_heartbeat(State.ACTIVE, EPOCH_JUMP_MAX + 1)
    assert bench.closed == ["peer"]
    assert bench.engine.epoch == 0
    assert f"epoch {EPOCH_JUMP_MAX + 1}, too far ahead of 0" in bench.warnings[-1]
    bench.join()
    bench.receive_heartbeat(State.ACTIVE, EPOCH_JUMP_MAX - 1)
    assert bench.state is State.PASSIVE


def test_a_contradictory_heartbeat_over_a_dialled_connection_fails_the_server() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.bring_into(State.ACTIVE)
    bench.receive_heartbeat(State.ACTIVE, bench.engine.epoch)
    assert bench.state is State.FAILED
