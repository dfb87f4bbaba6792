"""Titanic for plain MDP: pyzmq clients that follow the text of 9/TSP, and a pyzmq broker.

The frames are written by hand: no test uses requite's client for them, and the second half does not
use its broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.live import Live, LiveBroker, MakeBroker, eventually
from tests.support.zmq_broker import INTERVAL_S, HandBroker
from tests.support.zmq_peers import RFC7, RFC18, HandClient, HandWorker, Rfc, ServingWorker, Sockets

import requite
from requite.core.liveness import HeartbeatPolicy
from requite.protocols.titanic.policy import TitanicPolicy
from requite.titanic import Titanic, TitanicSettings

pytestmark = pytest.mark.interop

REQUEST, REPLY, CLOSE = b"titanic.request", b"titanic.reply", b"titanic.close"
NOBODY = b"0" * 32
QUICK = TitanicPolicy(backoff_s=0.05, check_every_s=0.05, attempt_timeout_s=2.0)


@pytest.fixture(params=[RFC7, RFC18], ids=["0.1", "0.2"])
def rfc(request: pytest.FixtureRequest) -> Rfc:
    """The dialect of all peers."""
    rfc: Rfc = request.param
    return rfc


@pytest.fixture
def keeper(make_broker: MakeBroker, tmp_path: Path) -> LiveBroker:
    """A requite broker with Titanic."""
    return make_broker(titanic=TitanicSettings(tmp_path / "kept", QUICK))


def submitted(client: HandClient, *body: bytes) -> bytes:
    """Submit a request to `echo`; return its ticket."""
    status, ticket = client.call(REQUEST, b"echo", *body)
    assert status == b"200"
    assert re.fullmatch(rb"[0-9A-F]{32}", ticket)
    return ticket


def answered(client: HandClient, ticket: bytes) -> list[bytes]:
    """Poll for the reply; return it."""

    def ask() -> list[bytes] | None:
        status, *body = client.call(REPLY, ticket)
        assert status in (b"200", b"300")
        return body if status == b"200" else None

    return eventually(ask, "a reply") or []


# --- at a requite broker --------------------------------------------------------------------------
def test_a_client_submits_leaves_and_comes_back(
    sockets: Sockets, keeper: LiveBroker, rfc: Rfc
) -> None:
    first = HandClient(sockets, keeper.endpoint, rfc)
    ticket = submitted(first, b"one", b"", b"two")
    assert first.call(REPLY, ticket) == [b"300"]
    first.socket.close()
    second = HandClient(sockets, keeper.endpoint, rfc)
    with ServingWorker(sockets, keeper.endpoint, rfc):
        assert answered(second, ticket) == [b"one", b"", b"two"]
    assert second.call(REPLY, ticket.lower()) == [b"200", b"one", b"", b"two"]  # lower case
    assert second.call(CLOSE, ticket) == [b"200"]
    assert second.call(REPLY, ticket)[0][:3] == b"400"
    assert second.call(CLOSE, ticket) == [b"200"]


def test_a_client_of_one_version_and_a_worker_of_the_other(
    sockets: Sockets, keeper: LiveBroker, rfc: Rfc
) -> None:
    client = HandClient(sockets, keeper.endpoint, rfc)
    with ServingWorker(sockets, keeper.endpoint, RFC7 if rfc is RFC18 else RFC18):
        assert answered(client, submitted(client, b"hello")) == [b"hello"]


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"ABC",
        NOBODY + b"0",
        b"../../../../../../../etc/passwd",
        b"..%2f..%2f..%2f..%2fetc%2fpasswd",
        b"G" * 32,
        b"\0" * 32,
        b"A" * 1_000_000,
    ],
    ids=lambda ticket: repr(ticket[:40]),
)
def test_what_is_no_ticket_is_unknown(sockets: Sockets, keeper: LiveBroker, ticket: bytes) -> None:
    client = HandClient(sockets, keeper.endpoint, RFC18)
    assert client.call(REPLY, ticket)[0][:3] == b"400"
    assert client.call(CLOSE, ticket)[0][:3] in (b"200", b"400")
    assert client.call(REPLY, NOBODY)[0][:3] == b"400"  # the broker is still running


@pytest.mark.parametrize(
    "frames",
    [
        (b"",),
        (b"",) * 3,
        (b"titanic.request", b"echo", b"x"),
        (b"mmi.service", b"echo"),
        (b"\xff\xfe", b"x"),
        (b"new\nline", b"x"),
        (b"s" * 256, b"x"),
    ],
    ids=lambda frames: repr(frames)[:30],
)
def test_a_request_that_cannot_be_kept_is_refused(
    sockets: Sockets, keeper: LiveBroker, frames: tuple[bytes, ...]
) -> None:
    client = HandClient(sockets, keeper.endpoint, RFC18)
    assert client.call(REQUEST, *frames)[0][:3] in (b"400", b"500")
    submitted(client, b"x")


def test_more_frames_than_a_question_has_do_no_harm(sockets: Sockets, keeper: LiveBroker) -> None:
    client = HandClient(sockets, keeper.endpoint, RFC18)
    ticket = submitted(client, b"x")
    assert client.call(REPLY, ticket, b"more")[0][:3] in (b"300", b"400")
    assert client.call(CLOSE, NOBODY, b"more")[0][:3] in (b"200", b"400")


def test_the_ticket_is_the_workers_idempotency_key_where_it_can_be_told(
    sockets: Sockets, keeper: LiveBroker, workers: list[Live]
) -> None:
    seen: list[bytes] = []

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        seen.append(request.idempotency_key)
        return request.body

    workers.append(Live(requite.Worker(keeper.url, echo)))
    client = HandClient(sockets, keeper.endpoint, RFC18)
    ticket = submitted(client, b"x")
    assert answered(client, ticket) == [b"x"]
    assert [key.upper() for key in seen] == [ticket]


def test_a_worker_that_vanishes_with_the_request_costs_nothing_but_time(
    sockets: Sockets, keeper: LiveBroker, rfc: Rfc
) -> None:
    client = HandClient(sockets, keeper.endpoint, rfc)
    vanishing = HandWorker(sockets, keeper.endpoint, rfc)
    ticket = submitted(client, b"hello")
    assert vanishing.take()[1] == [b"hello"]
    vanishing.close()
    with ServingWorker(sockets, keeper.endpoint, rfc):
        assert answered(client, ticket) == [b"hello"]


# --- next to a foreign broker ---------------------------------------------------------------------
MakeForeign = Callable[[Rfc], HandBroker]


@pytest.fixture
def foreign(sockets: Sockets, rfc: Rfc) -> Iterator[HandBroker]:
    """A scripted broker of either dialect, without `mmi`."""
    broker = HandBroker(sockets, rfc)
    yield broker
    broker.stop()


@pytest.fixture
def beside(foreign: HandBroker, tmp_path: Path, workers: list[Live]) -> Titanic:
    """A Titanic that uses the foreign broker."""
    blind = TitanicPolicy(
        backoff_s=0.05, check_every_s=0.05, attempt_timeout_s=2.0, check_service=False
    )
    titanic = Titanic(
        foreign.url,
        TitanicSettings(tmp_path / "kept", blind),
        dialect=foreign.rfc.version,
        heartbeat=HeartbeatPolicy(interval_s=INTERVAL_S, liveness=3),
    )
    workers.append(Live(titanic))
    eventually(
        lambda: {REQUEST, REPLY, CLOSE} <= {rest[0] for _, rest in foreign.said("ready")},
        "Titanic signs up",
    )
    return titanic


def test_titanic_serves_beside_a_foreign_broker(
    sockets: Sockets, foreign: HandBroker, beside: Titanic
) -> None:
    client = HandClient(sockets, foreign.endpoint, foreign.rfc)
    ticket = submitted(client, b"one", b"two")
    with ServingWorker(sockets, foreign.endpoint, foreign.rfc, interval_s=INTERVAL_S):
        assert answered(client, ticket) == [b"one", b"two"]
    assert client.call(CLOSE, ticket) == [b"200"]
    assert client.call(REPLY, ticket)[0][:3] == b"400"


def test_requites_clients_use_it_there_as_well(
    sockets: Sockets, foreign: HandBroker, beside: Titanic
) -> None:
    with (
        requite.Client(f"{foreign.url}/echo", dialect=foreign.rfc.version, timeout=20) as client,
        ServingWorker(sockets, foreign.endpoint, foreign.rfc, interval_s=INTERVAL_S),
    ):
        ticket = client.submit(b"hello")
        assert client.result(ticket).body == b"hello"
        client.forget(ticket)
        with pytest.raises(requite.UnknownTicket):
            client.result(ticket)
        with pytest.raises(requite.ConfigurationError, match="idempotency"):
            client.submit(b"hello", idempotency_key=b"order 7")
