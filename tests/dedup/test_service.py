"""Deduplicating services end to end: client, broker, worker and handlers in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.storage.test_cipher import write_keys

import requite
from requite import Dedup, Request
from requite.dedup.erasing import erase
from requite.dedup.gate import Gate
from requite.dedup.inputs import Asked
from requite.dedup.records import (
    NO_DIGEST,
    DedupRecord,
    Kind,
    Outcome,
    decode,
    encode,
    encode_key,
)
from requite.dedup.store import read_log
from requite.errors import ConfigurationError, LogLocked, LogMismatch, RemoteFailure
from requite.request import Status
from requite.storage import Log

WAIT_S = 20.0
_TELLING = requite.BrokerPolicy(tell_old_clients=True)


class Cluster:
    """A broker with its workers and clients, which are closed together."""

    def __init__(self, broker: requite.Broker) -> None:
        self.url = broker.endpoints[0].replace("tcp://", "mdp://")
        self._open: list[Any] = []

    async def serve(self, *services: Any, **settings: Any) -> requite.Worker:
        worker = requite.Worker(self.url, *services, **settings)
        await worker.start()
        self._open.append(worker)
        return worker

    def client(self, service: str, **settings: Any) -> requite.AsyncClient:
        client = requite.AsyncClient(self.url, service=service, timeout=WAIT_S, **settings)
        self._open.append(client)
        return client

    async def close(self) -> None:
        for each in self._open:
            await each.close()


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with requite.Broker("tcp://127.0.0.1:0", policy=_TELLING) as broker:
        cluster = Cluster(broker)
        yield cluster
        await cluster.close()


@pytest.fixture(params=["memory", "log"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "replies" if request.param == "log" else None


class CountingHandlers:
    """Handlers of all four kinds that count their runs, and one that waits for `gate`."""

    def __init__(self, dedup: Dedup) -> None:
        self.runs: list[bytes] = []
        self.gate = asyncio.Event()
        self.ended = asyncio.Event()
        self.services = [
            requite.service("coroutine", idempotent=dedup)(self.coroutine),
            requite.service("function", idempotent=dedup)(self.function),
            requite.service("async-generator", idempotent=dedup)(self.async_generator),
            requite.service("generator", idempotent=dedup)(self.generator),
            requite.service("gated", idempotent=dedup)(self.gated),
        ]

    async def coroutine(self, request: Request) -> bytes:
        self.runs.append(request.body)
        return b"%d" % len(self.runs)

    def function(self, request: Request) -> list[bytes]:
        self.runs.append(request.body)
        return [b"run", b"%d" % len(self.runs)]

    async def async_generator(self, request: Request) -> AsyncIterator[bytes]:
        self.runs.append(request.body)
        for number in range(3):
            yield b"%d of %d" % (number, len(self.runs))

    def generator(self, request: Request) -> Iterator[bytes]:
        self.runs.append(request.body)
        yield b"1 of %d" % len(self.runs)
        return b"end of %d" % len(self.runs)

    async def gated(self, request: Request) -> bytes:
        self.runs.append(request.body)
        try:
            await self.gate.wait()
        finally:
            self.ended.set()
        return b"%d" % len(self.runs)


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


# --- principals -----------------------------------------------------------------------------------
USERS = {"ann": "1", "eve": "2", "bot": "3"}


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[Cluster]:
    """A cluster whose broker knows its users."""
    async with requite.Broker("tcp://127.0.0.1:0", users=USERS) as broker:
        cluster = Cluster(broker)
        cluster.url = cluster.url.replace("mdp://", "mdp://bot:3@")
        yield cluster
        await cluster.close()


def client_of(cluster: Cluster, name: str) -> requite.AsyncClient:
    url, cluster.url = cluster.url, cluster.url.replace("bot:3@", f"{name}:{USERS[name]}@")
    try:
        return cluster.client("coroutine")
    finally:
        cluster.url = url


async def test_a_key_of_another_principal_is_another_key(
    guarded: Cluster, store: Path | None
) -> None:
    counting = CountingHandlers(Dedup(store))
    await guarded.serve(*counting.services)
    ann, eve = client_of(guarded, "ann"), client_of(guarded, "eve")
    bodies = [
        (await client.call(b"pay", idempotency_key=b"4711")).body
        for client in (ann, eve, ann, eve, client_of(guarded, "ann"))
    ]
    assert bodies == [b"1", b"2", b"1", b"2", b"1"]


async def test_a_key_of_another_principal_is_another_key_after_a_restart(
    guarded: Cluster, tmp_path: Path
) -> None:
    counting = CountingHandlers(Dedup(tmp_path / "replies"))
    worker = await guarded.serve(*counting.services)
    ann, eve = client_of(guarded, "ann"), client_of(guarded, "eve")
    assert (await ann.call(b"pay", idempotency_key=b"4711")).body == b"1"
    await worker.close()
    again = CountingHandlers(Dedup(tmp_path / "replies"))
    await guarded.serve(*again.services)
    assert (await ann.call(b"pay", idempotency_key=b"4711")).body == b"1"
    assert again.runs == []
    await eve.call(b"steal", idempotency_key=b"4711")
    assert again.runs == [b"steal"]


async def test_the_replies_to_one_principal_are_erased(guarded: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "replies"

    async def secret(request: Request) -> bytes:
        return b"a secret for " + request.principal.encode()

    def service() -> Any:
        return requite.service("coroutine", idempotent=Dedup(folder))(secret)

    worker = await guarded.serve(service())
    ann, eve = client_of(guarded, "ann"), client_of(guarded, "eve")
    for client in (ann, eve):
        await client.call(b"x", idempotency_key=b"4711")
        await client.call(b"y")
    with pytest.raises(LogLocked):
        erase(folder, "plain:ann")
    await worker.close()
    assert erase(folder, "plain:ann") == (2, 2)
    files = b"".join(file.read_bytes() for file in folder.iterdir())
    assert (b"a secret for plain:ann" in files, b"a secret for plain:eve" in files) == (False, True)
    await guarded.serve(service())
    with pytest.raises(RemoteFailure, match="has run, and its reply is not stored: it was too"):
        await ann.call(b"x", idempotency_key=b"4711")
    reply = await eve.call(b"x", idempotency_key=b"4711")
    assert reply.body == b"a secret for plain:eve"


def test_an_erasure_keeps_the_states_of_all_requests(tmp_path: Path) -> None:
    """Twice, since the copies of the first erasure are the records of the second."""
    ann, bob = (encode_key(b"pay", b"%d", b"%s" % name, is_call=False) for name in (b"ann", b"bob"))
    outcome = Outcome(Status.OK, (), (b"a secret",))
    records = [
        DedupRecord(Kind.BEGUN, 1, ann + b"1", b"D" * 16),
        DedupRecord(Kind.ENDED, 2, ann + b"1", b"D" * 16, outcome),
        DedupRecord(Kind.BEGUN, 3, ann + b"2", b"D" * 16),
        DedupRecord(Kind.ENDED, 4, bob + b"1", b"D" * 16, outcome),
        DedupRecord(Kind.BEGUN, 5, bob + b"2", b"D" * 16),
        DedupRecord(Kind.BEGUN, 6, bob + b"3", b"D" * 16),
        DedupRecord(Kind.DROPPED, 7, bob + b"3", b"D" * 16),
    ]
    with Log.open(tmp_path, purpose=b"DEDU") as log:
        log.commit([encode(record) for record in records])
    assert [erase(tmp_path, "ann") for _ in range(2)] == [(2, 1), (2, 0)]
    assert erase(tmp_path, "") == (0, 0)
    with Log.open(tmp_path, purpose=b"DEDU") as log:
        left = [decode(log.read_at(found.position)) for found in read_log(log)]
    assert left == [
        DedupRecord(Kind.UNKEPT, 2, ann + b"1"),
        DedupRecord(Kind.BEGUN, 3, ann + b"2"),
        DedupRecord(Kind.ENDED, 4, bob + b"1", b"D" * 16, outcome),
        DedupRecord(Kind.BEGUN, 5, bob + b"2", b"D" * 16),
    ]


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


def test_an_erasure_of_an_encrypted_log_encrypts_all_with_the_first_key(tmp_path: Path) -> None:
    key = encode_key(b"pay", b"1", b"ann", is_call=False)
    outcome = Outcome(Status.OK, (), (b"a secret",))
    folder, key_file = tmp_path / "replies", write_keys(tmp_path / "key", "1" * 64)
    with Log.open(folder, purpose=b"DEDU") as log:
        log.commit([encode(DedupRecord(Kind.ENDED, 2, key, b"D" * 16, outcome))])
    assert erase(folder, "bob", key_file) == (0, 0)
    assert b"a secret" not in b"".join(file.read_bytes() for file in folder.iterdir())
    assert erase(folder, "ann", key_file) == (1, 1)


def test_memory_is_not_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="memory is not encrypted"):
        Dedup(key_file=tmp_path / "key")


def test_an_erasure_needs_a_log_of_replies(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for folder in (missing, tmp_path):
        with pytest.raises(ConfigurationError, match="has no log of replies"):
            erase(folder, "ann")
    assert not missing.exists()


class Replayed:
    """An engine's token and a call id that an attacker has seen in a log."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.gate = Gate("pay", lambda _token: bytes(16), self.asked.append)

    def key(self, principal: str, body: bytes) -> tuple[bytes, bytes]:
        self.gate.ask(object(), Request("pay", [body], principal=principal))
        return self.asked[-1].key, self.asked[-1].digest


def test_a_call_id_belongs_to_its_principal_and_bodies_are_compared() -> None:
    replayed = Replayed()
    key, digest = replayed.key("ann", b"1 euro")
    assert replayed.key("ann", b"1 euro") == (key, digest)
    assert replayed.key("eve", b"1 euro")[0] != key
    assert replayed.key("", b"1 euro")[0] != key
    assert replayed.key("ann", b"9 euro")[0] == key
    assert replayed.key("ann", b"9 euro")[1] not in (digest, NO_DIGEST)
