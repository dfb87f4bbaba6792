"""`requite.sp.Device` on both event loops and over several transports."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.e2e.sp import TRANSPORTS, Echo, place
from tests.e2e.sp_loop import Run, on_loop

from requite.client import AsyncClient
from requite.errors import (
    ConfigurationError,
    LocalViolation,
    TransportError,
)
from requite.sp import Device
from requite.worker import Worker

__all__ = ["on_loop"]

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"


@pytest.mark.parametrize("back", TRANSPORTS)
@pytest.mark.parametrize("front", TRANSPORTS)
def test_a_device_joins_any_two_transports(
    on_loop: Run, front: str, back: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Device(place(front, tmp_path), place(back, tmp_path)) as device:
            [front_url], [back_url] = device.front_addresses, device.back_addresses
            async with (
                Worker(back_url, Echo().service),
                AsyncClient(front_url, timeout=20) as client,
            ):
                bodies = [b"%d" % n for n in range(50)] + [os.urandom(1 << 20)]
                replies = await asyncio.gather(*map(client.call, bodies))
                assert [reply.body for reply in replies] == bodies
            assert device.snapshot().requests == len(bodies)

    on_loop(scenario())


def test_a_device_may_connect_on_both_sides(on_loop: Run) -> None:
    async def scenario() -> None:
        async with (
            AsyncClient(bind=TCP, timeout=20) as client,
            Worker(Echo().service, bind=TCP) as worker,
            Device(connect_front=client.addresses, connect_back=worker.addresses) as device,
        ):
            assert device.front_addresses == device.back_addresses == []
            assert (await client.call(b"x")).body == b"x"

    on_loop(scenario())


def test_hops_limits_the_length_of_a_chain_of_devices(on_loop: Run) -> None:
    async def scenario() -> None:
        devices = []
        echo = Echo()
        async with Worker(echo.service, bind=TCP) as worker:
            [url] = worker.addresses
            for _ in range(3):
                device = Device(TCP, connect_back=url, hops=3)
                await device.start()
                devices.append(device)
                [url] = device.front_addresses
            two, three = devices[1].front_addresses, devices[2].front_addresses
            async with AsyncClient(two, timeout=20) as client:
                assert (await client.call(b"through two")).body == b"through two"
            async with AsyncClient(three) as client:
                lost = client.start(b"through three", timeout=20)
                while not devices[0].snapshot().dropped:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.005)
                assert not lost.done()
                lost.cancel()
            assert echo.seen == [b"through two"]
            assert devices[0].snapshot().dropped == {"hops": 1}
            for device in devices:
                await device.close()

    on_loop(scenario())


def test_peers_reconnect_to_a_restarted_device(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        device = Device(TCP, TCP)
        await device.start()
        front, back = device.front_addresses, device.back_addresses
        async with Worker(back, held.service), AsyncClient(front, timeout=20) as client:
            calls = [client.start(b"%d" % n) for n in range(5)]
            await held.until(lambda: len(held.seen) == 5)
            await device.close()
            held.gate.set()
            async with Device(front, back):
                replies = await asyncio.gather(*calls)
        assert [reply.body for reply in replies] == [b"%d" % n for n in range(5)]

    on_loop(scenario())


def test_requests_in_a_loop_of_devices_are_dropped_or_answered(on_loop: Run) -> None:
    """Each device forwards to the other; one also has a worker, which answers the requests."""

    async def scenario() -> None:
        async with Device(TCP, TCP) as one, Device(TCP, TCP) as two:
            joins = (
                Device(connect_front=one.back_addresses, connect_back=two.front_addresses),
                Device(connect_front=two.back_addresses, connect_back=one.front_addresses),
            )
            for device in joins:
                await device.start()

            def drops() -> int:
                devices = (one, two, *joins)
                return sum(device.snapshot().dropped.get("hops", 0) for device in devices)

            async with AsyncClient(f"{one.front_addresses[0]}?resend=0.2", timeout=20) as client:
                lost = client.start(b"goes round")
                while not drops():  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.005)
                assert not lost.done()
                lost.cancel()
                async with Worker(two.back_addresses, Echo().service):
                    for n in range(20):
                        assert (await client.call(b"%d" % n)).body == b"%d" % n
            for device in joins:
                await device.close()

    on_loop(scenario())


def test_a_draining_device_forwards_replies(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        device = Device(TCP, TCP)
        await device.start()
        async with (
            Worker(device.back_addresses, held.service),
            AsyncClient(device.front_addresses, timeout=20) as client,
        ):
            call = client.start(b"x")
            await held.until(lambda: bool(held.seen))
            draining = asyncio.create_task(device.drain())
            await asyncio.sleep(0)
            held.gate.set()
            assert (await call).attempts == 1
            await draining

    on_loop(scenario())


def test_invalid_settings_are_refused(on_loop: Run) -> None:
    for arguments, match in (
        ({"front": TCP}, "URL for its back"),
        ({"back": TCP}, "URL for its front"),
        ({"front": "mdp://localhost", "back": TCP}, "listens"),
        ({"front": TCP, "connect_back": "mdp://localhost"}, "not MDP"),
        ({"front": TCP, "back": TCP, "hops": 0}, "hops"),
        ({"front": f"{TCP}?priority=2", "back": TCP}, "'priority' has no effect"),
        ({"front": f"{TCP}?weight=2", "back": TCP}, "'weight' has no effect"),
        ({"front": TCP, "back": f"{TCP}?resend=2"}, "'resend' has no effect"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            Device(**arguments)

    async def scenario() -> None:
        async with Device(TCP, TCP) as device:
            with pytest.raises(LocalViolation, match="only once"):
                await device.start()
            with pytest.raises(TransportError, match="in use"):
                await Device(TCP, device.front_addresses).start()

    on_loop(scenario())
