"""Journals of clients, workers and devices over SP: which events they have after calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.sp import WAIT_S, Echo, Serving

from requite.client import AsyncClient, Client
from requite.errors import CallTimeout, ConfigurationError
from requite.journal.event import Event
from requite.journal.reader import events
from requite.sp import Device
from requite.worker import Worker

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.close()


def requests_of(folder: Path, role: str) -> list[list[Event]]:
    """Return the events of each request that a role has recorded, in order."""
    found: dict[str, list[Event]] = defaultdict(list)
    for each in sorted(events(folder), key=lambda event: (event.ts, event.seq)):
        if each.role == role and each.request_id:
            found[each.request_id].append(each)
    return list(found.values())


def kinds(found: list[Event]) -> list[str | None]:
    return [each.kind for each in found]


async def test_a_request_is_recorded_by_client_and_worker(folder: Path) -> None:
    async with (
        Worker(Echo().service, bind=TCP, journal=folder) as worker,
        AsyncClient(worker.addresses, journal=folder, timeout=20) as client,
    ):
        await client.call(b"hello")
    [at_client] = requests_of(folder, "client")
    assert kinds(at_client) == ["accepted", "sent", "answered"]
    assert (at_client[-1].outcome, at_client[0].bytes, at_client[-1].bytes) == ("OK", 5, 5)
    [at_worker] = requests_of(folder, "worker")
    assert kinds(at_worker) == ["delivered", "started", "finished"]
    assert at_worker[0].service == "echo"


def test_the_blocking_client_records_its_requests(folder: Path, serving: Serving) -> None:
    with Client(serving.start(Echo(), bind=TCP), journal=folder, timeout=WAIT_S) as client:
        for _ in range(3):
            client.call(b"x")
    assert [kinds(each) for each in requests_of(folder, "client")] == [
        ["accepted", "sent", "answered"]
    ] * 3


async def test_a_failure_and_a_timeout_are_recorded(folder: Path) -> None:
    async with (
        Worker(Echo().service, bind=TCP, journal=folder) as worker,
        AsyncClient(worker.addresses, journal=folder) as client,
    ):
        with pytest.raises(CallTimeout):
            await client.call(b"refuse", timeout=1.5)
    [at_client] = requests_of(folder, "client")
    assert kinds(at_client) == ["accepted", "sent", "expired"]
    [at_worker] = requests_of(folder, "worker")
    assert (at_worker[-1].outcome, at_worker[-1].reason) == ("FAILED", "not today")


async def test_a_second_attempt_is_recorded(folder: Path) -> None:
    held = Echo(hold=True)
    worker = Worker(held.service, bind=TCP, journal=folder)
    await worker.start()
    [url] = worker.addresses
    async with AsyncClient(url, journal=folder, timeout=20) as client:
        call = asyncio.create_task(client.call(b"x"))
        await held.until(lambda: bool(held.seen))
        await worker.close()
        async with Worker(Echo().service, bind=url, journal=folder):
            assert (await call).attempts == 2
    [at_client] = requests_of(folder, "client")
    assert kinds(at_client) == ["accepted", "sent", "redelivered", "sent", "answered"]
    lost, done = sorted(requests_of(folder, "worker"), key=lambda found: found[0].ts)
    assert kinds(lost)[:2] == ["delivered", "started"]
    assert kinds(done) == ["delivered", "started", "finished"]


async def test_a_device_records_its_channels_and_the_requests_passed_on(folder: Path) -> None:
    async with (
        Device(TCP, TCP, journal=folder) as device,
        Worker(device.back_addresses, Echo().service),
        AsyncClient(device.front_addresses, timeout=20) as client,
    ):
        await asyncio.gather(*(client.call(b"%d" % n) for n in range(7)))
    recorded = [each for each in events(folder) if each.role == "device"]
    reasons = [each.reason for each in recorded if each.reason]
    assert sum("a channel to the front" in reason for reason in reasons) >= 1
    assert sum("a channel to the back" in reason for reason in reasons) >= 1
    passed = [int(reason.split()[1]) for reason in reasons if reason.startswith("forwarded")]
    assert sum(passed) == 7


async def test_an_unusable_journal_folder_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(ConfigurationError):
        await Worker(Echo().service, bind=TCP, journal=blocked).start()
    with pytest.raises(ConfigurationError):
        await Device(TCP, TCP, journal=blocked).start()
    with pytest.raises(ConfigurationError):
        Client(bind=TCP, journal=blocked)
