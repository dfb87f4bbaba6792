"""How much work peers that are read in turn may start: as much as is finished."""

from __future__ import annotations

import pytest
from tests.shell.fair_bench import Bench

from requite.engine import ReadInTurn


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_turns_in_which_nothing_is_finished_start_nothing() -> None:
    bench = Bench(burst=128)
    clients = [bench.join(f"client {n}")[0] for n in range(32)]
    worker, _ = bench.join("worker")
    other, _ = bench.join("worker that is idle")
    started = 0
    for turn in range(400):
        for client in clients:
            if client.share is not None and not client.share.messages:
                bench.send(client, 16)
        if turn % 4 == 3:
            bench.send(worker, 100, b"done")
        bench.send(other, 1, b"heartbeat")
        started += sum(len(each.messages) for each in bench.batches() if each.peer in clients)
        bench.turn(0.001)
    assert abs(started - 100 * 100) < 2 * 128


def test_while_there_is_nothing_to_do_what_takes_long_does_not_delay_other_work() -> None:
    bench = Bench(burst=128)
    links = [bench.join(f"client {n}")[0] for n in range(32)]
    started = 0
    for _ in range(1000):
        for link in links:
            if link.share is not None and not link.share.messages:
                bench.send(link, 16)
        started += sum(len(each.messages) for each in bench.batches())
        for _ in range(10):
            bench.turn(0.0001)
    assert started > 8000


def test_what_ends_without_a_message_makes_room() -> None:
    bench = Bench(burst=512)
    for link in [bench.join(f"client {n}")[0] for n in range(32)]:
        bench.send(link, 16)
        bench.send(link, 16)
    assert len(bench.batches()) == 32
    bench.pending = 32  # of 512; the others have expired
    bench.turn()
    for _ in range(10):
        bench.turn(0.000001)
    assert sum(len(each.messages) for each in bench.batches()) == 512 - 32


def test_the_first_messages_of_a_peer_start_work() -> None:
    bench = Bench(burst=2)
    newcomers = [bench.join(f"w{n}")[0] for n in range(2)]
    bench.engine.script = lambda event: [
        *bench.script(event),
        ReadInTurn(event.peer, 0.5, bench.unfinished),
    ]
    bench.send(newcomers[0], 240)
    bench.send(newcomers[1], 1)
    bench.send(newcomers[1], 1)
    assert len(bench.batches()) == 2
    bench.turn()
    assert not bench.batches()


def test_as_much_is_started_as_others_finish(bench: Bench) -> None:
    client, _ = bench.join("client")
    worker, _ = bench.join("worker")
    bench.send(client, 40)
    bench.send(client, 1)
    bench.send(worker, 40, b"done")
    assert [batch.peer for batch in bench.batches()] == [client, worker]
    bench.turn()
    assert [batch.peer for batch in bench.batches()] == [client]
