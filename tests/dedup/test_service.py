"""Deduplicating services end to end: client, broker, worker and handlers in one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.dedup.cluster import Cluster, CountingHandlers
from tests.storage.test_cipher import write_keys

import requite
from requite import Dedup, Request
from requite.dedup.erasing import erase
from requite.errors import ConfigurationError, LogLocked, LogMismatch
from requite.storage import Log


@pytest.mark.parametrize("kind", ["coroutine", "function", "async-generator", "generator"])
async def test_each_kind_of_handler_runs_once(
    cluster: Cluster, store: Path | None, kind: str
) -> None:
    counting = CountingHandlers(Dedup(store))
    await cluster.serve(*counting.services)
    client = cluster.client(kind)
    seen = [
        [part.frames async for part in client.stream(b"x", idempotency_key=b"k")] for _ in range(3)
    ]
    assert seen[0] == seen[1] == seen[2]
    assert counting.runs == [b"x"]


async def test_calls_without_a_key_are_distinct(cluster: Cluster, store: Path | None) -> None:
    counting = CountingHandlers(Dedup(store))
    await cluster.serve(*counting.services)
    client, other = cluster.client("coroutine"), cluster.client("coroutine")
    replies = [(await each.call(b"x")).body for each in (client, client, other)]
    assert replies == [b"1", b"2", b"3"]


async def time_out_while_running(client: requite.AsyncClient, counting: CountingHandlers) -> None:
    """Call with a short timeout until a call has timed out while its handler runs."""
    while not counting.runs:
        with pytest.raises(requite.CallTimeout):
            await client.call(b"x", timeout=0.3, idempotency_key=b"k")


async def test_a_timed_out_call_does_not_interrupt_its_handler(
    cluster: Cluster, store: Path | None
) -> None:
    counting = CountingHandlers(Dedup(store))
    await cluster.serve(*counting.services)
    client = cluster.client("gated")
    await time_out_while_running(client, counting)
    assert not counting.ended.is_set()
    again = asyncio.create_task(client.call(b"x", idempotency_key=b"k"))
    await asyncio.sleep(0)
    counting.gate.set()
    assert (await again).body == b"1"
    assert counting.runs == [b"x"]


async def test_a_draining_worker_waits_for_its_handlers(
    cluster: Cluster, store: Path | None
) -> None:
    counting = CountingHandlers(Dedup(store))
    worker = await cluster.serve(*counting.services)
    await time_out_while_running(cluster.client("gated"), counting)
    draining = asyncio.create_task(worker.drain())
    await asyncio.sleep(0.3)  # longer than the 0.25 s for which a request may be in flight
    assert not draining.done()
    counting.gate.set()
    await draining
    await cluster.serve(*counting.services)
    reply = await cluster.client("gated").call(b"x", idempotency_key=b"k")
    assert (reply.body, counting.runs) == (b"1", [b"x"])


async def test_a_closing_worker_leaves_its_handlers_in_doubt(
    cluster: Cluster, store: Path | None
) -> None:
    counting = CountingHandlers(Dedup(store))
    worker = await cluster.serve(*counting.services)
    call = asyncio.create_task(cluster.client("gated").call(b"x", idempotency_key=b"k"))
    while not counting.runs:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    await worker.close()
    assert counting.ended.is_set()
    await cluster.serve(*counting.services)
    with pytest.raises(requite.RemoteFailure, match="may have run"):
        await call
    assert counting.runs == [b"x"]


async def test_an_old_client_is_refused_or_runs(cluster: Cluster) -> None:
    strict, lax = CountingHandlers(Dedup()), CountingHandlers(Dedup(unkeyed="run"))
    refused = requite.service("refused", idempotent=Dedup())(strict.coroutine)
    runs = requite.service("runs", idempotent=Dedup(unkeyed="run"))(lax.coroutine)
    await cluster.serve(refused, runs)
    reply = await cluster.client("refused", dialect="0.2").call(b"x")
    assert reply.frames[0].startswith(b"requite-error")
    assert strict.runs == []
    for expected in (b"1", b"2"):
        assert (await cluster.client("runs", dialect="0.2").call(b"x")).body == expected


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        ({"bind": "sp+tcp://127.0.0.1:0"}, {}),
        ({"bind": "pirate://127.0.0.1:0"}, {}),
        ({"url": "mdp://127.0.0.1:1"}, {"dialect": "0.2"}),
    ],
)
def test_protocols_without_keys_are_refused(where: dict[str, str], settings: Any) -> None:
    counting = CountingHandlers(Dedup())
    url = where.get("url", ())
    with pytest.raises(
        requite.ConfigurationError, match=r"(SP|PIRATE|MDP before 0\.3) has neither"
    ):
        requite.Worker(url, counting.services[0], bind=where.get("bind", ()), **settings)
    lax = requite.service("lax", idempotent=Dedup(unkeyed="run"))(counting.coroutine)
    requite.Worker(url, lax, bind=where.get("bind", ()), **settings)


async def test_one_store_serves_several_services(cluster: Cluster, store: Path | None) -> None:
    dedup = Dedup(store)
    counting = CountingHandlers(dedup)
    await cluster.serve(*counting.services)
    for name in ("coroutine", "function"):
        await cluster.client(name).call(b"x", idempotency_key=b"the same")
    assert counting.runs == [b"x", b"x"]
    assert dedup.stats.kept == 2


async def test_concurrent_calls_run_once_per_key(cluster: Cluster, store: Path | None) -> None:
    dedup = Dedup(store)
    counting = CountingHandlers(dedup)
    await cluster.serve(*counting.services, capacity=64)
    client = cluster.client("coroutine")
    keys = [b"%d" % (number % 100) for number in range(500)]
    replies = await asyncio.gather(*(client.call(key, idempotency_key=key) for key in keys))
    by_key: dict[bytes, set[bytes]] = {}
    for key, reply in zip(keys, replies, strict=True):
        by_key.setdefault(key, set()).add(reply.body)
    assert all(len(bodies) == 1 for bodies in by_key.values())
    assert sorted(counting.runs) == sorted(set(keys))
    assert dedup.stats.replayed == 400


async def test_titanic_tickets_are_idempotency_keys(tmp_path: Path) -> None:
    """A request that Titanic resends after an unconfirmed run does not run again."""
    counting = CountingHandlers(Dedup(tmp_path / "replies"))
    broker = requite.Broker("tcp://127.0.0.1:0", titanic=tmp_path / "requests")
    async with broker:
        cluster = Cluster(broker)
        await cluster.serve(*counting.services)
        client = cluster.client("coroutine")
        ticket = await client.submit(b"x")
        kept = await client.result(ticket)
        again = await client.call(b"x", idempotency_key=ticket.encode())
        assert (kept.body, again.body, counting.runs) == (b"1", b"1", [b"x"])
        await cluster.close()


async def test_a_folder_has_one_worker(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.serve(*CountingHandlers(Dedup(tmp_path)).services)
    with pytest.raises(LogLocked):
        await cluster.serve(*CountingHandlers(Dedup(tmp_path)).services)


async def test_a_log_of_a_newer_version_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with Log.open(tmp_path, purpose=b"DEDU") as log:
        log.commit([b"\x03" + bytes(40)])
    for _ in range(2):  # a failed start must not leave the folder locked
        with pytest.raises(LogMismatch, match="version 3"):
            await cluster.serve(*CountingHandlers(Dedup(tmp_path)).services)


async def test_a_handler_receives_the_idempotency_key(cluster: Cluster) -> None:
    seen: list[bytes] = []

    @requite.service("keyed", idempotent=Dedup())
    async def keyed(request: Request) -> bytes:
        seen.append(request.idempotency_key)
        return request.body

    await cluster.serve(keyed)
    client = cluster.client("keyed")
    await client.call(b"x", idempotency_key=b"given")
    for _ in range(2):
        await client.call(b"x")
    assert seen[0] == b"given"
    assert [len(key) for key in seen[1:]] == [16, 16]
    assert seen[1] != seen[2]


async def test_a_log_for_another_purpose_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with Log.open(tmp_path, purpose=b"TEST") as log:
        log.commit([b"something else"])
    with pytest.raises(LogMismatch):
        await cluster.serve(*CountingHandlers(Dedup(tmp_path)).services)


async def test_a_damaged_record_is_reported_and_the_rest_served(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counting = CountingHandlers(Dedup(tmp_path))
    worker = await cluster.serve(*counting.services)
    client = cluster.client("coroutine")
    for key in (b"first", b"second"):
        await client.call(key, idempotency_key=key)
    await worker.drain()
    damage(tmp_path, b"first")
    await cluster.serve(*counting.services)
    assert "the log of replies is damaged" in caplog.text
    assert (await client.call(b"second", idempotency_key=b"second")).body == b"2"
    assert counting.runs == [b"first", b"second"]


def damage(folder: Path, what: bytes) -> None:
    """Flip two bits of a record, which cannot be corrected."""
    [segment] = folder.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(what)] ^= 3
    segment.write_bytes(data)


async def test_stored_replies_are_encrypted(cluster: Cluster, tmp_path: Path) -> None:
    folder, keys = (
        tmp_path / "replies",
        [write_keys(tmp_path / f"{n}", f"{n:064x}") for n in (1, 2)],
    )

    async def secret(request: Request) -> bytes:
        return b"a secret"

    def service(key_file: Path | None) -> Any:
        dedup = Dedup(folder, key_file=key_file)
        return requite.service("coroutine", idempotent=dedup)(secret)

    worker = await cluster.serve(service(keys[0]))
    client = cluster.client("coroutine")
    await client.call(b"x", idempotency_key=b"my own key")
    await worker.close()
    files = b"".join(file.read_bytes() for file in folder.iterdir())
    assert (b"a secret" in files, b"my own key" in files) == (False, False)
    with pytest.raises(LogMismatch, match=r"encrypted; give its key file \(key_file, --key-file\)"):
        await cluster.serve(service(None))
    with pytest.raises(LogMismatch, match="encrypted with a key that is not in the key file"):
        await cluster.serve(service(keys[1]))
    with pytest.raises(LogMismatch, match="encrypted"):
        erase(folder, "")
    await cluster.serve(service(keys[0]))
    assert (await client.call(b"x", idempotency_key=b"my own key")).body == b"a secret"


def test_memory_is_not_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="memory is not encrypted"):
        Dedup(key_file=tmp_path / "key")
