"""ZAP (27/ZAP): a requite broker asks a handler on a REP socket of libzmq about its peers."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
from tests.spec.requirement import requirement
from tests.support.curve import CLIENT_PUBLIC, CLIENT_SECRET, SERVER_PUBLIC, SERVER_SECRET
from tests.support.live import Live, LiveBroker, MakeBroker
from tests.support.patience import failure
from tests.support.zap import ZapHandler, verdict
from tests.support.zmq_peers import RFC18, WAIT_S, HandClient, HandWorker, Socket, Sockets
from zmq.utils import z85

import requite
from requite.access.passwords import hash_password
from requite.zap import Zap

pytestmark = pytest.mark.interop

PASSWORD = "s3cret"
ANN = {"PLAIN_USERNAME": b"ann", "PLAIN_PASSWORD": PASSWORD.encode()}
BOB = {"PLAIN_USERNAME": b"bob", "PLAIN_PASSWORD": PASSWORD.encode()}
EVE = {
    "CURVE_SERVERKEY": SERVER_PUBLIC.encode(),
    "CURVE_PUBLICKEY": CLIENT_PUBLIC.encode(),
    "CURVE_SECRETKEY": CLIENT_SECRET.encode(),
}
RIGHTS = 'call = ["*"]\nserve = ["*"]\nadmin = ["*"]'


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.touch(0o600)
    hashed = hash_password(PASSWORD)
    path.write_text(
        f"[user.ann]\npassword = '{hashed}'\n{RIGHTS}\n"
        f"[user.bob]\npassword = '{hashed}'\n{RIGHTS}\n"
        f"[user.eve]\ncurve = '{CLIENT_PUBLIC}'\n{RIGHTS}\n"
        f"[user.guest]\nanonymous = true\n{RIGHTS}\n"
    )
    return path


@pytest.fixture
def broker_key(tmp_path: Path) -> Path:
    path = tmp_path / "server.key"
    path.touch(0o600)
    path.write_text(SERVER_SECRET)
    return path


def by_name(request: list[bytes]) -> list[bytes]:
    """Admit everybody but bob."""
    status, user = (b"400", b"") if b"bob" in request[6:] else (b"200", b"ann")
    return [b"1.0", request[1], status, b"by name", user, b""]


@requirement("zap:socket", "zap:dialog", "zap:request", "zap:delimiter", "zap:plain", "zap:curve")
def test_peers_of_libzmq_are_admitted_as_the_handler_decides(
    sockets: Sockets,
    make_broker: MakeBroker,
    access: Path,
    broker_key: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ZapHandler(by_name) as handler:
        zap = Zap(handler.url, domain="shop")
        broker = make_broker(access=access, curve=broker_key, authenticate=zap)
        worker = HandWorker(sockets, broker.endpoint, RFC18, **ANN)
        for options in (ANN, EVE, {}):
            client = HandClient(sockets, broker.endpoint, RFC18, **options)
            client.request(b"echo", b"x")
            assert worker.serve_one() == [b"x"]
            assert client.reply()[2] == [b"x"]
        refused = Socket(sockets, zmq.DEALER, broker.endpoint, **BOB)
        # libzmq 4.3 takes ERROR for a violation, see test_plain_pyzmq.py.
        assert refused.had_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, WAIT_S)
        broker.await_log(caplog, "refuses it (status 400): 'by name'")
    frames = [request[:1] + request[2:] for request in handler.requests]
    start = [b"1.0", b"shop", b"127.0.0.1", b""]
    assert [*start, b"PLAIN", b"ann", b""] in frames
    assert [*start, b"PLAIN", b"bob", b""] in frames
    assert [*start, b"CURVE", z85.decode(CLIENT_PUBLIC)] in frames
    assert [*start, b"NULL"] in frames
    ids = [request[1] for request in handler.requests]
    assert len(set(ids)) == len(ids)
    assert PASSWORD.encode() not in b"".join(b"".join(frames) for frames in handler.requests)


@requirement("zap:identity")
def test_the_handler_learns_the_identity_of_a_peer(
    sockets: Sockets, make_broker: MakeBroker, access: Path
) -> None:
    with ZapHandler(verdict("200")) as handler:
        broker = make_broker(access=access, authenticate=Zap(handler.url))
        HandWorker(sockets, broker.endpoint, RFC18, IDENTITY=b"number 7", **ANN)
        client = HandClient(sockets, broker.endpoint, RFC18, **ANN)
        assert client.call(b"mmi.service", b"none")
    assert b"number 7" in {request[4] for request in handler.requests}


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


def url_of(broker: LiveBroker, user: str) -> str:
    return broker.url.replace("mdp://", f"mdp://{user}:{PASSWORD}@")


def test_peers_of_requite_are_admitted_over_a_unix_socket_of_the_handler(
    make_broker: MakeBroker, access: Path, tmp_path: Path, workers: list[Live]
) -> None:
    with ZapHandler(by_name, f"ipc://{tmp_path}/zap") as handler:
        broker = make_broker(access=access, authenticate=Zap(handler.url))
        workers.append(Live(requite.Worker(url_of(broker, "ann"), echo)))
        with requite.Client(f"{url_of(broker, 'ann')}/echo", timeout=WAIT_S) as client:
            assert client.call(b"x").body == b"x"
        with requite.Client(f"{url_of(broker, 'bob')}/echo") as client:
            failure(
                requite.CallTimeout, "status 400", lambda limit: client.call(b"x", timeout=limit)
            )
    assert handler.requests


@requirement("zap:status")
@pytest.mark.parametrize("status", ["300", "500"])
def test_a_peer_comes_again_after_a_temporary_error(
    status: str, sockets: Sockets, make_broker: MakeBroker, access: Path
) -> None:
    """Also one of libzmq, which never comes again after ERROR."""
    tries: list[bytes] = []

    def later(request: list[bytes]) -> list[bytes]:
        tries.append(request[1])
        said = status.encode() if len(tries) < 3 else b"200"
        return [b"1.0", request[1], said, b"", b"", b""]

    with ZapHandler(later) as handler:
        broker = make_broker(access=access, authenticate=Zap(handler.url))
        client = HandClient(sockets, broker.endpoint, RFC18, **ANN)
        assert client.call(b"mmi.service", b"none")
    assert len(tries) >= 3
