"""Journals of brokers, workers and clients: which events they have after calls."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.serving import ClientMethods, Serving, eventually
from tests.support.live import InBackground

from requite.broker import Broker
from requite.client import AsyncClient, Client
from requite.errors import CallTimeout, ConfigurationError, RemoteFailure, RequiteError
from requite.journal.event import Event
from requite.journal.reader import events
from requite.request import Partial
from requite.worker import Worker, service

pytestmark = pytest.mark.e2e


@service("sum")
def total(request):
    """Return the sum of the numbers; as a plain function, it runs in a thread."""
    return b"%d" % sum(map(int, request.body.split()))


class EventsByRequest:
    """The events of a journal by request and role."""

    def __init__(self, folder: Path) -> None:
        self.events = list(events(folder))
        self.by_request: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
        for each in sorted(self.events, key=lambda event: (event.ts, event.seq)):
            if each.request_id:
                self.by_request[each.request_id][each.role].append(each)

    def of(self, service_name: str) -> dict[str, list[Event]]:
        """Return the events of the only request to a service, by role."""
        [found] = [
            roles
            for roles in self.by_request.values()
            if roles["client"][0].service == service_name
        ]
        return found


def stop(serving: Serving) -> None:
    """Stop the worker and the broker, which completes their journals."""
    serving.stop_worker()
    serving.stop_broker()


def kinds(found: list[Event]) -> list[str | None]:
    return [each.kind for each in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def serving(folder: Path) -> Iterator[Serving]:
    serving = Serving(journal=folder)
    serving.start_worker(journal=folder)
    yield serving
    serving.close()


class OnLoop:
    """An `AsyncClient` on its own event loop."""

    def __init__(self, url: str, **settings: object) -> None:
        self._runner = asyncio.Runner()
        self._settings = settings
        self._url = url
        self.client = self._runner.run(self._make())

    async def _make(self) -> AsyncClient:
        return AsyncClient(self._url, **self._settings)  # type: ignore[arg-type]

    def call(self, body: bytes, **options: object) -> object:
        return self._runner.run(self.client.call(body, **options))  # type: ignore[arg-type]

    def close(self) -> None:
        self._runner.run(self.client.close())
        self._runner.close()


@pytest.fixture(params=[Client, OnLoop], ids=["Client", "AsyncClient"])
def make_client(request: pytest.FixtureRequest) -> Callable[..., ClientMethods]:
    return request.param


# --- one request, three journals ------------------------------------------------------------------
def test_a_request_has_one_id_at_client_broker_and_worker(serving, folder, make_client):
    client = make_client(serving.url("echo"), journal=folder)
    client.call(b"hello", timeout=20)
    client.close()
    stop(serving)
    found = EventsByRequest(folder).of("echo")
    assert kinds(found["client"]) == ["accepted", "sent", "answered"]
    assert kinds(found["broker"])[0] == "accepted"
    assert kinds(found["broker"])[-2:] == ["dispatched", "answered"]
    assert kinds(found["worker"]) == ["delivered", "started", "finished"]
    workers = {each.worker for each in found["worker"]} | {found["broker"][-1].worker}
    assert len(workers) == 1
    assert found["client"][-1].outcome == found["worker"][-1].outcome == "OK"
    assert found["client"][0].bytes == found["client"][-1].bytes == 5


def test_a_handler_in_a_thread_is_recorded(serving, folder):
    async def act() -> None:
        worker = Worker(serving.url(), total, journal=folder)
        async with worker, AsyncClient(serving.url("sum"), journal=folder) as client:
            assert (await client.call(b"1 2 3", timeout=20)).body == b"6"

    asyncio.run(act())
    stop(serving)
    assert kinds(EventsByRequest(folder).of("sum")["worker"]) == [
        "delivered",
        "started",
        "finished",
    ]


def test_failures_are_recorded_with_the_reason(serving, folder, make_client):
    client = make_client(serving.url("fail"), journal=folder)
    with pytest.raises(RemoteFailure):
        client.call(b"done", timeout=20)
    client.close()
    stop(serving)
    found = EventsByRequest(folder).of("fail")
    for role in ("client", "broker", "worker"):
        end = found[role][-1]
        assert (end.outcome, end.error_class) == ("FAILED", "RemoteFailure")
        assert "it cannot be done" in end.reason


def test_an_expired_request_is_recorded_by_all(serving, folder, make_client):
    client = make_client(serving.url("hold"), journal=folder)
    with pytest.raises(CallTimeout):
        client.call(b"x", timeout=1.5)
    eventually(lambda: serving.handlers.interrupted, "the handler is interrupted")
    client.close()
    stop(serving)
    found = EventsByRequest(folder).of("hold")
    assert kinds(found["client"])[-1] == "expired"
    assert kinds(found["broker"])[-1] in ("expired", "cancelled")
    assert "abandoned" in kinds(found["worker"])
    first = found["broker"][0]
    assert 0.1 < (first.deadline - first.ts).total_seconds() < 1.6


def test_each_part_of_a_stream_is_recorded(serving, folder):
    with Client(serving.url("count"), journal=folder) as client:
        parts = [part for part in client.stream(b"3", timeout=20) if isinstance(part, Partial)]
    assert len(parts) == 3
    stop(serving)
    found = EventsByRequest(folder).of("count")
    for role in ("client", "broker", "worker"):
        assert kinds(found[role]).count("partial") == 3


def test_a_request_keeps_its_id_after_a_restart_of_the_broker(serving, folder):
    with (
        Client(serving.url("hold"), journal=folder) as client,
        InBackground(lambda: client.call(b"x", timeout=30)),
    ):
        eventually(lambda: serving.handlers.seen, "it is held")
        serving.stop_broker()
        serving.start_broker()
        serving.handlers.gate.set()
    stop(serving)
    found = EventsByRequest(folder).of("hold")
    assert kinds(found["client"]).count("sent") >= 2  # more if the new broker is slow to answer
    assert kinds(found["client"]).count("answered") == 1
    assert len({each.log for each in found["broker"]}) == 2


@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_older_dialects_have_an_id_at_the_broker(serving, folder, dialect):
    with Client(serving.url("echo"), dialect=dialect, journal=folder) as client:
        client.call(b"hello", timeout=20)
    stop(serving)
    story = EventsByRequest(folder)
    by_broker = [roles for roles in story.by_request.values() if roles["broker"]]
    [roles] = by_broker
    assert kinds(roles["broker"])[-1] == "answered"
    assert kinds(roles["worker"]) == ["delivered", "started", "finished"]


def test_many_requests_are_all_recorded(serving, folder):
    with Client(serving.url("echo"), journal=folder) as client:
        for reply in client.map([b"x"] * 3000, concurrency=200):
            assert reply.body == b"x"
    stop(serving)
    story = EventsByRequest(folder)
    assert len(story.by_request) == 3000
    for roles in story.by_request.values():
        assert [kinds(roles[role]).count("answered") for role in ("client", "broker")] == [1, 1]


# --- clients --------------------------------------------------------------------------------------
def test_a_forked_child_writes_a_separate_log(serving, folder):
    with Client(serving.url("echo"), journal=folder) as client:
        client.call(b"parent", timeout=20)
        if (pid := os.fork()) == 0:
            client.call(b"child", timeout=20)
            client.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        client.call(b"parent", timeout=20)
    stop(serving)
    logs = {each.log for each in EventsByRequest(folder).events if each.role == "client"}
    assert len(logs) == 2
    answered = [
        each for each in events(folder) if each.role == "client" and each.kind == "answered"
    ]
    assert len({each.request_id for each in answered}) == 3


def test_a_call_refused_for_lack_of_slots_is_recorded(serving, folder):
    with Client(serving.url("hold"), slots=1, journal=folder) as client:
        held = client.start(b"x", timeout=20)
        refused = client.start(b"y", timeout=20)
        with pytest.raises(RequiteError, match="slots"):
            refused.result()
        serving.handlers.gate.set()
        held.result()
    stop(serving)
    assert "refused" in kinds(EventsByRequest(folder).events)


# --- an unusable folder ---------------------------------------------------------------------------
def test_a_folder_with_other_files_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear-aunt.txt").write_text("thank you")
    folder = tmp_path / "letters"
    with pytest.raises(ConfigurationError):
        Client("mdp://127.0.0.1:1/echo", journal=folder)

    async def start_a_broker() -> None:
        async with Broker("tcp://127.0.0.1:0", journal=folder):
            raise AssertionError("it started")

    with pytest.raises(ConfigurationError):
        asyncio.run(start_a_broker())
    assert [each.name for each in folder.iterdir()] == ["dear-aunt.txt"]
