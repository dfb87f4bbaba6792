"""A broker that is offered more than its processor can do: goodput, latency, fairness."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.shell.saturated import CAPACITY_PER_S, Client, World

from requite.engine import Drain

_SECONDS = 10.0


def _run(world: World) -> Counter[str]:
    """Let the load settle, and count how later requests end, relative to the capacity."""
    world.run(2.0)
    world.count(_SECONDS)
    ends = Counter[str]()
    for client in world.clients:
        ends += client.ends
    return ends


def _p99_s(clients: list[Client]) -> float:
    latencies = sorted(latency for client in clients for latency in client.latencies)
    return latencies[len(latencies) * 99 // 100]


# One client alone is read without a pause, so most of its requests have to be refused.
@pytest.mark.parametrize(
    ("clients", "load", "least"),
    [
        (1, 2, 0.85),
        (1, 5, 0.6),
        (2, 5, 0.7),
        (4, 5, 0.9),
        (16, 2, 0.9),
        (16, 5, 0.9),
        (64, 5, 0.9),
        (256, 2, 0.9),
        (256, 5, 0.88),
    ],
)
def test_a_saturated_broker_answers_nearly_as_much_as_it_can(
    clients: int, load: float, least: float
) -> None:
    world = World()
    for _ in range(clients):
        world.client(load / clients)
    ends = _run(world)
    assert ends["OK"] >= least * CAPACITY_PER_S * _SECONDS
    assert ends["late"] + ends["EXPIRED"] < 0.01 * ends["OK"]
    assert _p99_s(world.clients) < 0.9


@pytest.mark.parametrize(
    ("clients", "load", "seconds"), [(2, 3, 40.0), (4, 5, 60.0), (16, 2, 40.0)]
)
def test_clients_that_send_alike_are_served_alike_over_some_rounds(
    clients: int, load: int, seconds: float
) -> None:
    world = World()
    for _ in range(clients):
        world.client(load / clients)
    world.run(2.0)
    world.count(seconds)
    answered = sorted(client.ends["OK"] for client in world.clients)
    assert answered[0] >= 0.8 * answered[-1] > 0


def test_partial_replies_do_not_make_room_for_more_requests() -> None:
    world = World(partials=16)
    for _ in range(8):
        world.client(3 / 8, timeout_s=30.0)
    world.run(6.0)
    assert 0 < world.unfinished < 200


def test_a_client_that_sends_little_is_served_although_others_flood_the_broker() -> None:
    world = World()
    for _ in range(4):
        world.client(1.0)
    modest = [world.client(0.005) for _ in range(4)]
    _run(world)
    for client in modest:
        ends = client.ends
        assert ends["OK"] >= 0.95 * sum(ends.values()) > 0
        assert not ends["OVERLOADED"]
    assert _p99_s(modest) < 0.3


def test_below_its_capacity_a_broker_refuses_nothing() -> None:
    world = World()
    for _ in range(16):
        world.client(0.5 / 16)
    ends = _run(world)
    assert set(ends) == {"OK"}
    assert _p99_s(world.clients) < 0.01


def test_a_draining_broker_answers_requests_that_wait_for_the_turn_of_their_clients() -> None:
    world = World()
    clients = [world.client(1.0) for _ in range(4)]
    world.counts_from = 0.0
    world.run(1.0)
    waiting = {each: len(each.link.share.messages) for each in clients if each.link.paused}
    assert waiting
    assert not any(client.ends["SHUTTING_DOWN"] for client in clients)
    world.host.submit(Drain())
    world.host.flush()
    for client, count in waiting.items():
        assert client.ends["SHUTTING_DOWN"] == count
