"""A backup of a store under load: no acknowledged request is lost, and no effect happens twice."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from tests.cli.command import requite as command
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.once import Ledger

import requite

pytestmark = pytest.mark.e2e

BACKUPS = 3
SMALL_STORE = ("--titanic-disk-max", "16m")  # segments of 2 MiB, which are soon compacted
PADDING = "x" * 8000
AT_A_TIME = 8


class Load:
    """Clients that submit requests, and fetch and forget every second one."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[str, str] = {}
        self.closing: set[str] = set()
        self._url = url
        self._stopping = False

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = Thread(target=lambda: asyncio.run(self._run()))
        thread.start()
        try:
            yield
        finally:
            self._stopping = True
            thread.join()

    async def _run(self) -> None:
        async with requite.AsyncClient(self._url, service="once", timeout=30) as client:
            await asyncio.gather(*(self._submit(client) for _ in range(AT_A_TIME)))

    async def _submit(self, client: requite.AsyncClient) -> None:
        while not self._stopping:
            body = uuid4().hex + PADDING
            ticket = await client.submit(body.encode())
            self.acknowledged[ticket] = body
            if len(self.acknowledged) % 2:
                await client.result(ticket)
                self.closing.add(ticket)
                await client.forget(ticket)


def removed_segments(url: str) -> int:
    """Return how many segments compaction has removed."""
    ended = command("titanic", "stats", url, "--json")
    told: dict[str, Any] = json.loads(ended.out)
    return int(told["store"]["removed_segments"])


@pytest.mark.timeout(300)
def test_a_backup_under_load_loses_no_acknowledged_request_and_repeats_no_effect(
    tmp_path: Path, processes: list[Process]
) -> None:
    kept, ledger = tmp_path / "kept", Ledger(tmp_path)
    broker = BrokerProcess("--titanic", str(kept), *SMALL_STORE)
    processes.append(broker)
    worker = ledger.worker(broker.url)
    processes.append(worker)
    worker.await_start()
    load = Load(broker.url)
    expected: dict[str, str] = {}
    with load.running():
        for number in range(BACKUPS):
            before = removed_segments(broker.url)
            eventually(
                lambda before=before: removed_segments(broker.url) > before,  # type: ignore[misc]
                "a segment is compacted",
                60,
            )
            due = dict(load.acknowledged)
            made = command("titanic", "backup", str(kept), str(tmp_path / f"backup-{number}"))
            assert (made.code, made.err) == (0, "")
            expected = {ticket: due[ticket] for ticket in due.keys() - load.closing}
    broker.forget_observer()
    broker.kill()
    worker.signal(signal.SIGTERM)
    assert worker.ended()[0] == 0

    shutil.copytree(tmp_path / f"backup-{BACKUPS - 1}", tmp_path / "restored")
    broker = BrokerProcess("--titanic", str(tmp_path / "restored"), *SMALL_STORE)
    processes.append(broker)
    worker = ledger.worker(broker.url)
    processes.append(worker)
    worker.await_start()
    assert len(expected) > AT_A_TIME
    with requite.Client(broker.url, timeout=60) as client:
        replies = {ticket: client.result(ticket).body.decode() for ticket in expected}
    effects = ledger.effects()
    for ticket, body in expected.items():
        assert effects[body] == [replies[ticket]]
    assert all(len(ids) == 1 for ids in effects.values())


def test_requests_that_were_answered_after_the_backup_get_the_same_reply(
    tmp_path: Path, processes: list[Process]
) -> None:
    kept, ledger = tmp_path / "kept", Ledger(tmp_path)
    broker = BrokerProcess("--titanic", str(kept))
    processes.append(broker)
    worker = ledger.worker(broker.url, service="gated")
    processes.append(worker)
    worker.await_start()
    with requite.Client(broker.url, service="gated", timeout=60) as client:
        ticket = client.submit(b"pay")
        eventually(lambda: ledger.effects().get("pay"), "the handler runs")
        assert command("titanic", "backup", str(kept), str(tmp_path / "backup")).code == 0
        (tmp_path / "open").touch()
        reply = client.result(ticket).body
    broker.forget_observer()
    broker.kill()
    worker.signal(signal.SIGTERM)
    assert worker.ended()[0] == 0

    broker = BrokerProcess("--titanic", str(tmp_path / "backup"))
    processes.append(broker)
    worker = ledger.worker(broker.url, service="gated")
    processes.append(worker)
    worker.await_start()
    with requite.Client(broker.url, timeout=60) as client:
        assert client.result(ticket).body == reply
    assert ledger.effects() == {"pay": [reply.decode()]}
