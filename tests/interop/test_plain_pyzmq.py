"""PLAIN (RFC 24): libzmq's clients and workers authenticate at a requite broker."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import zmq
from tests.support.live import Live, LiveBroker, MakeBroker
from tests.support.patience import failure
from tests.support.zmq_broker import HandBroker
from tests.support.zmq_peers import (
    RFC7,
    RFC18,
    WAIT_S,
    HandClient,
    HandWorker,
    Rfc,
    ServingWorker,
    Socket,
    Sockets,
)
from zmq.auth.thread import ThreadAuthenticator

import requite
from requite.broker import Broker

pytestmark = pytest.mark.interop

USERS = {"ann": "first secret", "bob": "zweites Geheimnis ☃"}


@pytest.fixture
def guarded(make_broker: MakeBroker) -> LiveBroker:
    """A broker that requires credentials. Its observer has none, so it cannot be queried."""
    return make_broker(users=USERS)


def credentials(user: str, password: str) -> dict[str, bytes]:
    """Return the socket options for the credentials."""
    return {"PLAIN_USERNAME": user.encode(), "PLAIN_PASSWORD": password.encode()}


@pytest.mark.parametrize("rfc", [RFC7, RFC18], ids=["0.1", "0.2"])
def test_whoever_shows_the_right_password_is_served(
    rfc: Rfc, sockets: Sockets, guarded: LiveBroker
) -> None:
    worker = HandWorker(sockets, guarded.endpoint, rfc, **credentials("bob", USERS["bob"]))
    client = HandClient(sockets, guarded.endpoint, rfc, **credentials("ann", USERS["ann"]))
    client.request(b"echo", b"x")
    worker.serve_one()
    assert client.reply()[2] == [b"x"]


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ann", "wrong"),
        ("ann", USERS["bob"]),
        ("nobody", USERS["ann"]),
        ("ann", "first secret and more"),
    ],
)
def test_whoever_does_not_is_refused_and_told_so(
    user: str,
    password: str,
    sockets: Sockets,
    guarded: LiveBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Socket(sockets, zmq.DEALER, guarded.endpoint, **credentials(user, password))
    # libzmq 4.3 misspells ERROR, so it treats ours as a violation; later versions report AUTH.
    assert client.had_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, WAIT_S)
    guarded.await_log(caplog, f"refused the credentials of user {user!r}")
    assert password not in caplog.text


@pytest.mark.parametrize(
    ("users", "options"),
    [(USERS, {}), (None, credentials("ann", USERS["ann"]))],
    ids=["no credentials where some are asked for", "credentials where none are"],
)
def test_another_mechanism_is_refused(
    users: dict[str, str] | None,
    options: dict[str, bytes],
    sockets: Sockets,
    make_broker: MakeBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = make_broker(users=users)
    client = Socket(sockets, zmq.DEALER, broker.endpoint, **options)
    assert client.had_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, WAIT_S)
    assert USERS["ann"] not in caplog.text


def test_passwords_are_not_shown() -> None:
    broker = Broker("tcp://127.0.0.1:0", users=USERS)
    assert not any(password in repr(vars(broker)) for password in USERS.values())


# --- requite's own peers --------------------------------------------------------------------------
@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


def with_credentials(url: str, user: str, password: str) -> str:
    """Return a broker's URL with credentials."""
    return url.replace("mdp://", f"mdp://{quote(user)}:{quote(password)}@")


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
def test_requite_shows_its_credentials(
    dialect: str, guarded: LiveBroker, workers: list[Live]
) -> None:
    url = with_credentials(guarded.url, "bob", USERS["bob"])
    workers.append(Live(requite.Worker(url, echo, dialect=dialect)))
    with requite.Client(f"{url}/echo", dialect=dialect, timeout=WAIT_S) as client:
        assert client.call(b"x").body == b"x"


@pytest.mark.parametrize("dialect", ["0.2", "0.3"])
def test_requite_says_that_its_credentials_were_refused(
    dialect: str, guarded: LiveBroker, caplog: pytest.LogCaptureFixture
) -> None:
    url = with_credentials(guarded.url, "bob", "wrong")
    with requite.Client(f"{url}/echo", dialect=dialect) as client:
        error = failure(
            requite.CallTimeout, "refused", lambda timeout: client.call(b"x", timeout=timeout)
        )
    assert not error.may_have_executed
    assert "refused the credentials of user 'bob'" in caplog.text
    assert "wrong" not in str(error) + caplog.text


def test_requite_shows_its_credentials_to_a_server_of_libzmq(sockets: Sockets) -> None:
    """libzmq asks its application for the verdict (ZAP, RFC 27)."""
    context = sockets.make(zmq.ROUTER).context
    gatekeeper = ThreadAuthenticator(context)
    gatekeeper.start()
    gatekeeper.configure_plain(domain="*", passwords=USERS)
    try:
        broker = HandBroker(sockets, RFC18, PLAIN_SERVER=1)
        url = with_credentials(broker.url, "ann", USERS["ann"])
        worker = ServingWorker(sockets, broker.endpoint, RFC18, **credentials("bob", USERS["bob"]))
        with worker, requite.Client(f"{url}/echo", dialect="0.2", timeout=WAIT_S) as client:
            assert client.call(b"x").body == b"x"
        broker.stop()
    finally:
        gatekeeper.stop()
