"""Typed services under faults, in simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.typed.shop import Calls, Order, OutOfStock, Quote, Shop

import requite
from requite import ConfigurationError, Dedup
from requite.testing import SimulatedWorld, SimulationFailed, simulate
from requite.testing.simulated_world import FAULTS


@simulate(seeds=3, faults=FAULTS, faults_per_s=0.1)
async def test_typed_calls_survive_faults(world: SimulatedWorld) -> None:
    world.broker()
    world.worker(lambda: Shop().service, count=2)
    async with world.client("orders") as client:
        orders = client.bind(Calls)
        for number in range(1, 20):
            quote = await orders.price(Order("a", 2 * number), timeout=120)
            assert quote == Quote(number)  # type: ignore[arg-type]
            with pytest.raises(OutOfStock):
                await orders.price(Order("none", 1), timeout=120)


def test_a_durable_dedup_is_refused(tmp_path: Path) -> None:
    service = requite.Service("once")

    @service.method(idempotent=Dedup(tmp_path))
    async def add(number: int) -> int:
        return number

    @simulate(seeds=1)
    async def run(world: SimulatedWorld) -> None:
        world.broker()
        world.worker(service)
        async with world.client("once.add") as client:
            await client.call(b"1", timeout=5)

    with pytest.raises((ConfigurationError, SimulationFailed), match=r"once\.add"):
        run()
