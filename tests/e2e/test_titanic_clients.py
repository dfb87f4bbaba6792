"""`submit`, `result` and `forget` of both clients, with a broker that stores durable requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.serving import Serving, eventually
from tests.support.patience import failure, failure_on_loop

import requite
from requite.access import Access
from requite.access.file import parse
from requite.access.passwords import hash_password
from requite.engine import Note
from requite.errors import LogFailed
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.titanic.policy import TitanicPolicy
from requite.shell.aio import new_event_loop
from requite.titanic import Titanic, TitanicSettings

pytestmark = pytest.mark.e2e

QUICK = TitanicPolicy(backoff_s=0.02, backoff_s_max=0.1, check_every_s=0.02, attempts_max=3)
NEVER = "0" * 32


class BlockingSubmitter:
    """The methods of `Client` for durable requests."""

    def __init__(self, url: str, **settings: Any) -> None:
        client = requite.Client(url, **settings)
        self.submit, self.result, self.forget = client.submit, client.result, client.forget
        self.close = client.close


class AsyncSubmitter:
    """The methods of `AsyncClient`, on an event loop that runs only within these methods."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._client = requite.AsyncClient(url, **settings)
        self._loop = new_event_loop()

    def submit(self, body: Any, **options: Any) -> str:
        return self._loop.run_until_complete(self._client.submit(body, **options))

    def result(self, ticket: str, **options: Any) -> requite.Reply:
        return self._loop.run_until_complete(self._client.result(ticket, **options))

    def forget(self, ticket: str, **options: Any) -> None:
        self._loop.run_until_complete(self._client.forget(ticket, **options))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A broker that stores durable requests in a folder, without workers yet."""
    serving = Serving(titanic=TitanicSettings(tmp_path / "kept", QUICK))
    yield serving
    serving.close()


@pytest.fixture(params=[BlockingSubmitter, AsyncSubmitter], ids=["blocking", "async"])
def make_client(request: pytest.FixtureRequest, serving: Serving) -> Iterator[Any]:
    """A function that makes clients of one kind; they are closed after the test."""
    made: list[Any] = []

    def make(service: str = "echo", **settings: Any) -> Any:
        dialect = settings.pop("dialect", "")
        options = f"?dialect={dialect}" if dialect else ""
        made.append(request.param(serving.url(service, options), **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
def test_a_request_waits_for_a_worker_and_its_reply_for_a_client(
    serving: Serving, make_client: Any, dialect: str
) -> None:
    client = make_client(dialect=dialect)
    ticket = client.submit([b"one", b"", b"two"])
    failure(
        requite.CallTimeout, "it is stored", lambda timeout: client.result(ticket, timeout=timeout)
    )
    serving.start_worker()
    assert client.result(ticket, timeout=20).frames == [b"one", b"", b"two"]
    # Another client can fetch the result too, a second time.
    assert make_client().result(ticket.lower()).body == b"onetwo"
    client.forget(ticket)
    client.forget(ticket)
    with pytest.raises(requite.UnknownTicket):
        client.result(ticket)


def test_each_of_many_requests_gets_its_own_reply(serving: Serving, make_client: Any) -> None:
    client = make_client()
    tickets = {client.submit(b"%d" % number): b"%d" % number for number in range(50)}
    assert len(tickets) == 50
    serving.start_worker()
    assert all(client.result(ticket).body == body for ticket, body in tickets.items())


def test_the_service_may_be_given_as_an_option(serving: Serving, make_client: Any) -> None:
    serving.start_worker()
    client = make_client("echo")
    assert client.result(client.submit(b"four", service="size")).body == b"4"


def test_the_same_key_has_the_same_ticket_also_after_a_restart(
    serving: Serving, make_client: Any
) -> None:
    client = make_client()
    ticket = client.submit(b"order", idempotency_key=b"order 7")
    assert make_client().submit(b"order", idempotency_key=b"order 7") == ticket
    serving.stop_broker()
    serving.start_broker()
    assert make_client().submit(b"order", idempotency_key=b"order 7") == ticket
    assert client.submit(b"order") != ticket
    client.forget(ticket)
    assert client.submit(b"order", idempotency_key=b"order 7") == ticket


def test_requests_and_replies_survive_a_restart(serving: Serving, make_client: Any) -> None:
    client = make_client()
    serving.start_worker()
    answered = client.submit(b"answered")
    client.result(answered)
    serving.stop_worker()
    waiting = client.submit(b"waiting")
    forgotten = client.submit(b"forgotten")
    client.forget(forgotten)
    serving.stop_broker()
    serving.start_broker()
    assert client.result(answered, timeout=20).body == b"answered"
    serving.start_worker()
    assert client.result(waiting, timeout=20).body == b"waiting"
    with pytest.raises(requite.UnknownTicket):
        client.result(forgotten)


def test_a_request_that_always_fails_is_poisoned_with_the_reason(
    serving: Serving, make_client: Any
) -> None:
    serving.start_worker()
    client = make_client("fail")
    ticket = client.submit(b"mended")
    with pytest.raises(requite.Poisoned, match="it cannot be mended"):
        client.result(ticket, timeout=20)


def test_submit_without_a_titanic_raises_no_service() -> None:
    plain = Serving()
    try:
        client = requite.Client(plain.url("echo"))
        with pytest.raises(requite.NoService, match=r"titanic\.request"):
            client.submit(b"x", timeout=5)
        client.close()
    finally:
        plain.close()


def test_a_ticket_that_was_never_given_is_unknown(make_client: Any) -> None:
    with pytest.raises(requite.UnknownTicket):
        make_client().result(NEVER)
    make_client().forget(NEVER)


@pytest.mark.parametrize("ticket", ["", "../../etc/passwd", NEVER + "0", "x" * 10_000])
def test_malformed_tickets_are_refused_by_the_client(make_client: Any, ticket: str) -> None:
    with pytest.raises(requite.ConfigurationError, match="32 hex digits"):
        make_client().result(ticket)
    with pytest.raises(requite.ConfigurationError, match="32 hex digits"):
        make_client().forget(ticket)


def test_older_dialects_refuse_a_key(make_client: Any) -> None:
    with pytest.raises(requite.ConfigurationError, match="idempotency"):
        make_client(dialect="0.2").submit(b"x", idempotency_key=b"order 7")


def test_a_protocol_without_service_names_refuses_submit() -> None:
    with (
        requite.Client("sp+tcp://127.0.0.1:1") as client,
        pytest.raises(requite.ConfigurationError, match="MDP"),
    ):
        client.submit(b"x")


def test_at_the_disk_limit_requests_are_refused_and_stored_ones_are_served(tmp_path: Path) -> None:
    from requite.titanic.store import StoreSettings

    small = StoreSettings(segment_size_bytes=1 << 16, disk_bytes_max=1 << 19)
    serving = Serving(titanic=TitanicSettings(tmp_path / "kept", QUICK, small))
    try:
        with requite.Client(serving.url("echo"), timeout=20) as client:
            tickets: list[str] = []

            def submit_many(timeout: float) -> None:
                tickets.extend(client.submit(bytes(10_000), timeout=timeout) for _ in range(1000))

            failure(requite.StoreUnavailable, "disk_bytes_max", submit_many)
            assert len(tickets) >= 5
            serving.start_worker()
            assert client.result(tickets[0]).body == bytes(10_000)
            for ticket in tickets:
                client.forget(ticket)
            eventually(lambda: _is_accepted(client), "there is room again")
    finally:
        serving.close()


def _is_accepted(client: requite.Client) -> bool:
    try:
        client.submit(bytes(10_000), timeout=0.2)
    except requite.CallError:
        return False
    return True


def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    serving = Serving(titanic=TitanicSettings(policy=QUICK))
    try:
        serving.start_worker()
        with requite.Client(serving.url("echo")) as client:
            assert client.result(client.submit(b"x")).body == b"x"
        assert list(tmp_path.iterdir()) == []
    finally:
        serving.close()


def test_a_draining_broker_waits_for_running_requests(serving: Serving, make_client: Any) -> None:
    client = make_client("hold")
    serving.start_worker()
    ticket = client.submit(b"x")
    eventually(lambda: serving.handlers.seen, "the worker has it")
    draining = serving.begin_draining()
    serving.handlers.gate.set()
    draining.result(20)
    seen = len(serving.handlers.seen)
    serving.start_broker()
    assert client.result(ticket, timeout=20).body == b"x"
    assert len(serving.handlers.seen) == seen  # nothing ran twice


def test_notes_and_snapshots_are_available(tmp_path: Path) -> None:
    import asyncio

    notes: list[Note] = []

    async def serve() -> None:
        broker = requite.Broker("tcp://127.0.0.1:0", policy=BrokerPolicy(service_grace_s=5.0))
        async with broker:
            url = broker.endpoints[0].replace("tcp://", "mdp://")
            policy = TitanicPolicy(notes=True)
            settings = TitanicSettings(tmp_path / "kept", policy)
            async with (
                Titanic(url, settings, on_note=notes.append) as titanic,
                requite.AsyncClient(f"{url}/echo") as client,
            ):
                await client.submit(b"x")
                assert titanic.snapshot().requests == 1
                assert titanic.snapshot().waiting == 1

    asyncio.run(serve())
    assert [note.kind for note in notes] == ["submitted"]


def test_a_broker_with_passwords_stores_requests_too(tmp_path: Path) -> None:
    serving = Serving(titanic=TitanicSettings(tmp_path / "kept", QUICK), users={"ann": "secret"})
    try:
        serving.start_worker(credentials="ann:secret@")
        url = serving.url("echo", credentials="ann:secret@")
        with requite.Client(url, timeout=20) as client:
            assert client.result(client.submit(b"x")).body == b"x"
    finally:
        serving.close()


def test_a_request_belongs_to_the_user_that_submitted_it(tmp_path: Path) -> None:
    users = {"ann": "secret", "eve": "terces", "bot": "robot"}
    serving = Serving(titanic=TitanicSettings(tmp_path / "kept", QUICK), users=users)
    urls = [serving.url("echo", credentials=f"{name}:{users[name]}@") for name in ("ann", "eve")]
    try:
        serving.start_worker(credentials="bot:robot@")
        with requite.Client(urls[0], timeout=20) as ann, requite.Client(urls[1], timeout=20) as eve:
            ticket = ann.submit(b"x", idempotency_key=b"k")
            assert ann.result(ticket).body == b"x"
            assert serving.handlers.seen[-1].principal == "plain:ann"
            with pytest.raises(requite.UnknownTicket) as unknown:
                eve.result(NEVER)
            with pytest.raises(requite.UnknownTicket) as of_another:
                eve.result(ticket)
            assert str(of_another.value).replace(ticket, NEVER) == str(unknown.value)
            eve.forget(ticket)
            assert eve.submit(b"x", idempotency_key=b"k") != ticket
            assert ann.result(ticket).body == b"x"
    finally:
        serving.close()


async def test_requests_have_owners_also_in_a_titanic_of_its_own(tmp_path: Path) -> None:
    """Handlers see the user of the Titanic, which the broker cannot tell from its clients."""
    users = {"ann": "1", "eve": "2", "bot": "3", "store": "4"}
    callers: list[str] = []

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        callers.append(request.principal)
        return request.body

    async with requite.Broker("tcp://127.0.0.1:0", users=users) as broker:

        def url(name: str) -> str:
            place = broker.endpoints[0].replace("tcp://", "")
            return f"mdp://{name}:{users[name]}@{place}"

        async with (
            Titanic(url("store"), TitanicSettings(tmp_path / "kept", QUICK)),
            requite.Worker(url("bot"), echo),
            requite.AsyncClient(f"{url('ann')}/echo", timeout=20) as ann,
            requite.AsyncClient(f"{url('eve')}/echo", timeout=20) as eve,
        ):
            ticket = await ann.submit(b"x")
            assert (await ann.result(ticket)).body == b"x"
            with pytest.raises(requite.UnknownTicket):
                await eve.result(ticket)
            assert callers == ["plain:store"]


async def test_a_titanic_of_its_own_acts_for_nobody(tmp_path: Path) -> None:
    """At a broker that knows users, too, its requests need no other right than `call`."""
    callers: list[str] = []

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        callers.append(request.principal)
        return request.body

    rights = {
        "ann": 'titanic = ["submit"]\ncall = ["echo"]',
        "store": 'serve = ["titanic.*"]\ncall = ["echo"]',
        "bot": 'serve = ["echo"]',
    }
    access = "".join(
        f'[user.{name}]\npassword = "{hash_password(name)}"\n{granted}\n'
        for name, granted in rights.items()
    )
    async with requite.Broker("tcp://127.0.0.1:0", access=Access(parse(access.encode()))) as broker:
        place = broker.endpoints[0].replace("tcp://", "")
        async with (
            Titanic(f"mdp://store:store@{place}", TitanicSettings(tmp_path / "kept", QUICK)),
            requite.Worker(f"mdp://bot:bot@{place}", echo),
            requite.AsyncClient(f"mdp://ann:ann@{place}/echo", timeout=20) as ann,
        ):
            assert (await ann.result(await ann.submit(b"x"))).body == b"x"
    assert callers == ["store"]


def test_after_a_disk_failure_titanic_ends_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from requite.storage import Log

    def fail(_log: Log, _payloads: Any) -> Any:
        raise LogFailed("the disk failed")

    async def serve() -> None:
        async with requite.Broker("tcp://127.0.0.1:0") as broker:
            url = broker.endpoints[0].replace("tcp://", "mdp://")
            async with (
                Titanic(url, tmp_path / "kept") as titanic,
                requite.AsyncClient(f"{url}/echo") as client,
            ):
                ticket = await client.submit(b"kept")
                monkeypatch.setattr(Log, "commit", fail)
                await failure_on_loop(
                    requite.StoreUnavailable,
                    "the disk failed",
                    lambda timeout: client.submit(b"x", timeout=timeout),
                )
                assert "the disk failed" in str(await titanic.until_failed())
                await failure_on_loop(
                    requite.CallTimeout,
                    "stored",
                    lambda timeout: client.result(ticket, timeout=timeout),
                )

    asyncio.run(serve())
