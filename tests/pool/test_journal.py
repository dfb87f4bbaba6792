"""The journal of a pool manager at a real RabbitMQ: groups, orphans and dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pool.live import RabbitTestbed, until

from requite import CallTimeout
from requite.journal.reader import events
from requite.pool.config import DriverSection, Lifetime, Limits
from requite.pool.manager.carrier import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def test_groups_and_orphans_are_in_the_journal(
    testbed: RabbitTestbed, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    config = testbed.config(lifetime=Lifetime(0.4, 0.4, 0.1))
    manager = await testbed.manager(config, journal=folder)
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    client = await testbed.client("é", journal=folder)
    await client.call(b"hi")
    await until(lambda: not testbed.workers(), "the end of the idle group")
    await until(lambda: not manager.snapshot().groups.running, "the manager knows it")
    await manager.close()
    await client.close()
    recorded = list(events(folder))
    by_manager = [event for event in recorded if event.role == "manager"]
    assert {event.service for event in by_manager if event.service} == {"é"}
    seen = [event.kind for event in by_manager]
    for kind in ("required", "worker_joined", "queued", "released", "worker_drained"):
        assert kind in seen, seen
    assert (seen[0], seen[-1]) == ("opened", "closed")
    [orphan] = {event.request_id for event in by_manager if event.kind == "queued"}
    assert orphan is not None
    assert {event.role for event in recorded if event.request_id == orphan} == {"manager", "client"}


async def test_a_dead_letter_is_in_the_journal(testbed: RabbitTestbed, tmp_path: Path) -> None:
    config = testbed.config(
        driver=DriverSection("noop", 20.0, {}), limits=Limits(message_ttl_s=0.3)
    )
    manager = await testbed.manager(config, journal=tmp_path / "journal")
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    client = await testbed.client()
    with pytest.raises(CallTimeout, match="expired"):
        await client.call(b"hi")
    await until(lambda: not manager.snapshot().dead_letters.in_hand, "its acknowledgement")
    await manager.close()
    [expired] = [e for e in events(tmp_path / "journal") if e.kind == "expired"]
    assert (expired.outcome, expired.error_class) == ("EXPIRED", "CallTimeout")
    assert (expired.service, expired.reason) == ("42", "expired")
    assert expired.request_id is not None
