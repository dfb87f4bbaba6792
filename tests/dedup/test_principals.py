"""Keys and stored replies belong to principals; the replies to one principal can be erased."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.dedup.cluster import Cluster, CountingHandlers
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
from requite.errors import ConfigurationError, LogLocked, RemoteFailure
from requite.request import Status
from requite.storage import Log

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


def test_an_erasure_of_an_encrypted_log_encrypts_all_with_the_first_key(tmp_path: Path) -> None:
    key = encode_key(b"pay", b"1", b"ann", is_call=False)
    outcome = Outcome(Status.OK, (), (b"a secret",))
    folder, key_file = tmp_path / "replies", write_keys(tmp_path / "key", "1" * 64)
    with Log.open(folder, purpose=b"DEDU") as log:
        log.commit([encode(DedupRecord(Kind.ENDED, 2, key, b"D" * 16, outcome))])
    assert erase(folder, "bob", key_file) == (0, 0)
    assert b"a secret" not in b"".join(file.read_bytes() for file in folder.iterdir())
    assert erase(folder, "ann", key_file) == (1, 1)


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
