"""CURVE (RFC 26): libzmq's clients and workers at a requite broker, and requite's at a libzmq
server; also Freelance and the Pirates."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import zmq
from tests.spec.requirement import requirement
from tests.support.curve import (
    CLIENT_PUBLIC,
    CLIENT_SECRET,
    SERVER_PUBLIC,
    SERVER_SECRET,
    STRANGER,
)
from tests.support.live import Live, LiveBroker, MakeBroker, eventually
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
from zmq.utils import z85

import requite
from requite.access.passwords import hash_password
from requite.framing.z85 import encode_z85
from requite.queue import Queue
from requite.shell.curve import create_key_file

pytestmark = pytest.mark.interop

KEYS = {
    "CURVE_SERVERKEY": SERVER_PUBLIC.encode(),
    "CURVE_PUBLICKEY": CLIENT_PUBLIC.encode(),
    "CURVE_SECRETKEY": CLIENT_SECRET.encode(),
}
STRANGE = KEYS | {
    "CURVE_PUBLICKEY": STRANGER.public_text.encode(),
    "CURVE_SECRETKEY": encode_z85(STRANGER.secret).encode(),
}


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def own_key(tmp_path: Path) -> Path:
    """The key file of the client that is admitted."""
    return written(tmp_path / "client.key", CLIENT_SECRET + "\n")


@pytest.fixture
def listener(tmp_path: Path) -> requite.CurveListener:
    """The keys of the broker."""
    clients = written(tmp_path / "clients.keys", f"# who may connect\n{CLIENT_PUBLIC} ann\n")
    return requite.CurveListener(written(tmp_path / "server.key", SERVER_SECRET), clients)


@pytest.fixture
def guarded(make_broker: MakeBroker, listener: requite.CurveListener) -> LiveBroker:
    """A broker that requires keys. Its observer has none, so it cannot be queried."""
    return make_broker(curve=listener)


def with_keys(url: str, key_file: Path, server_key: str = SERVER_PUBLIC) -> str:
    return f"{url}?curve={quote(server_key, safe='')}&curve_key_file={quote(str(key_file))}"


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


# --- libzmq at our broker -------------------------------------------------------------------------
@requirement("curve:handshake", "curve:message")
@pytest.mark.parametrize(
    ("rfc", "kind"),
    [(RFC7, zmq.REQ), (RFC7, zmq.DEALER), (RFC18, zmq.DEALER)],
    ids=["0.1 REQ", "0.1 DEALER", "0.2"],
)
def test_peers_of_libzmq_with_the_right_keys_are_served(
    rfc: Rfc, kind: int, sockets: Sockets, guarded: LiveBroker
) -> None:
    worker = HandWorker(sockets, guarded.endpoint, rfc, **KEYS)
    client = HandClient(sockets, guarded.endpoint, rfc, kind=kind, **KEYS)
    large = bytes(range(256)) * 4096 * 3
    bodies = [[b"x"], [b"", b"a", b"b" * 300, b""], [large], [large[:100_000]] * 9]
    for body in bodies:
        client.request(b"echo", *body)
        assert worker.serve_one() == body
        assert client.reply()[2] == body


@requirement("curve:error-rejects", "curve:authentication")
def test_a_client_of_libzmq_with_an_unknown_key_is_refused_and_told_so(
    sockets: Sockets, guarded: LiveBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = Socket(sockets, zmq.DEALER, guarded.endpoint, **STRANGE)
    assert client.had_event(zmq.EVENT_HANDSHAKE_FAILED_AUTH, WAIT_S)
    guarded.await_log(caplog, f"refused the client key {STRANGER.public_text!r}")


def test_a_client_of_libzmq_with_another_server_key_is_refused(
    sockets: Sockets, guarded: LiveBroker, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = KEYS | {"CURVE_SERVERKEY": STRANGER.public_text.encode()}
    Socket(sockets, zmq.DEALER, guarded.endpoint, **wrong)
    guarded.await_log(caplog, "another server key")
    assert SERVER_SECRET not in caplog.text


@requirement("curve:mechanism")
@pytest.mark.parametrize(
    "options",
    [{}, {"PLAIN_USERNAME": b"ann", "PLAIN_PASSWORD": b"secret"}],
    ids=["NULL", "PLAIN"],
)
def test_a_client_of_libzmq_without_keys_is_refused(
    options: dict[str, bytes], sockets: Sockets, guarded: LiveBroker
) -> None:
    client = Socket(sockets, zmq.DEALER, guarded.endpoint, **options)
    assert client.had_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, WAIT_S)


def test_a_client_of_libzmq_with_keys_is_refused_by_a_broker_without(
    sockets: Sockets, broker: LiveBroker
) -> None:
    client = Socket(sockets, zmq.DEALER, broker.endpoint, **KEYS)
    assert client.had_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, WAIT_S)


def test_pings_of_libzmq_are_answered(sockets: Sockets, guarded: LiveBroker) -> None:
    """libzmq drops a connection on which a PONG is missing, and the worker's registration with
    it."""
    often = {"HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 300, "HEARTBEAT_TTL": 3000}
    worker = HandWorker(sockets, guarded.endpoint, RFC18, **KEYS, **often)
    client = HandClient(sockets, guarded.endpoint, RFC18, **KEYS, **often)
    assert not worker.socket.had_event(zmq.EVENT_DISCONNECTED, 1.0)  # some 50 pings
    client.request(b"echo", b"x")
    assert worker.serve_one() == [b"x"]
    assert client.reply()[2] == [b"x"]


def test_a_worker_of_libzmq_reconnects(
    sockets: Sockets, make_broker: MakeBroker, listener: requite.CurveListener
) -> None:
    first = make_broker(curve=listener)
    client = HandClient(sockets, first.endpoint, RFC18, **KEYS)
    worker = HandWorker(sockets, first.endpoint, RFC18, **KEYS)
    client.request(b"echo", b"one")
    worker.serve_one()
    assert client.reply()[2] == [b"one"]
    first.close()
    make_broker(first.endpoint, curve=listener)
    worker.ready(b"echo")
    client.request(b"echo", b"two")
    assert worker.serve_one() == [b"two"]
    assert client.reply()[2] == [b"two"]


# --- ours at libzmq -------------------------------------------------------------------------------
def _libzmq_broker(sockets: Sockets) -> HandBroker:
    return HandBroker(sockets, RFC18, CURVE_SERVER=1, CURVE_SECRETKEY=SERVER_SECRET.encode())


@pytest.fixture
def gatekeeper(sockets: Sockets, tmp_path: Path) -> ThreadAuthenticator:
    """A ZAP handler that admits the holder of one key."""
    folder = tmp_path / "admitted"
    folder.mkdir()
    (folder / "client.key").write_text(f'curve\n    public-key = "{CLIENT_PUBLIC}"\n')
    keeper = ThreadAuthenticator(sockets.make(zmq.ROUTER).context)
    keeper.start()
    keeper.configure_curve(domain="*", location=str(folder))
    yield keeper
    keeper.stop()


def test_requite_at_a_server_of_libzmq(
    sockets: Sockets, gatekeeper: ThreadAuthenticator, own_key: Path
) -> None:
    broker = _libzmq_broker(sockets)
    worker = ServingWorker(sockets, broker.endpoint, RFC18, **KEYS)
    service_url = with_keys(f"{broker.url}/echo", own_key)
    with worker, requite.Client(service_url, dialect="0.2", timeout=WAIT_S) as client:
        for body in ([b"x"], [bytes(3 << 20)], [b"", b"many", bytes(70_000)]):
            assert list(client.call(body).frames) == body
    broker.stop()


def test_a_worker_of_requite_at_a_server_of_libzmq(
    sockets: Sockets, gatekeeper: ThreadAuthenticator, own_key: Path, workers: list[Live]
) -> None:
    broker = _libzmq_broker(sockets)
    workers.append(Live(requite.Worker(with_keys(broker.url, own_key), echo, dialect="0.2")))
    client = HandClient(sockets, broker.endpoint, RFC18, **KEYS)
    assert client.call(b"echo", b"x" * 100_000) == [b"x" * 100_000]
    broker.stop()


def test_requite_says_that_a_server_of_libzmq_refused_its_key(
    sockets: Sockets, gatekeeper: ThreadAuthenticator, tmp_path: Path
) -> None:
    strange = written(tmp_path / "strange.key", encode_z85(STRANGER.secret))
    broker = _libzmq_broker(sockets)
    with requite.Client(with_keys(f"{broker.url}/echo", strange), dialect="0.2") as client:
        error = failure(
            requite.CallTimeout,
            "does not admit the key",
            lambda timeout: client.call(b"x", timeout=timeout),
        )
    assert not error.may_have_executed
    assert encode_z85(STRANGER.secret) not in str(error)
    broker.stop()


def test_requite_with_another_server_key_at_a_server_of_libzmq(
    sockets: Sockets, gatekeeper: ThreadAuthenticator, own_key: Path
) -> None:
    broker = _libzmq_broker(sockets)
    url = with_keys(f"{broker.url}/echo", own_key, STRANGER.public_text)
    with requite.Client(url, dialect="0.2") as client:
        failure(
            requite.CallTimeout,
            "security mechanism or key",
            lambda timeout: client.call(b"x", timeout=timeout),
        )
    broker.stop()


# --- ours at ours ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
def test_requite_at_requite(
    dialect: str, guarded: LiveBroker, own_key: Path, workers: list[Live]
) -> None:
    url = with_keys(guarded.url, own_key)
    workers.append(Live(requite.Worker(url, echo, dialect=dialect)))
    service_url = with_keys(f"{guarded.url}/echo", own_key)
    with requite.Client(service_url, dialect=dialect, timeout=WAIT_S) as client:
        assert client.call(b"x").body == b"x"
        assert client.call(bytes(5 << 20)).body == bytes(5 << 20)


async def test_the_asyncio_client(guarded: LiveBroker, own_key: Path, workers: list[Live]) -> None:
    workers.append(Live(requite.Worker(with_keys(guarded.url, own_key), echo)))
    async with requite.AsyncClient(with_keys(f"{guarded.url}/echo", own_key)) as client:
        assert (await client.call(b"x", timeout=WAIT_S)).body == b"x"


@pytest.mark.parametrize(
    ("server_key", "secret", "told"),
    [
        (SERVER_PUBLIC, encode_z85(STRANGER.secret), "does not admit the key"),
        (STRANGER.public_text, CLIENT_SECRET, "does not have the server key"),
    ],
    ids=["the own key", "the server key"],
)
def test_requite_says_which_key_was_refused(
    server_key: str,
    secret: str,
    told: str,
    guarded: LiveBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    key_file = written(tmp_path / "mine.key", secret)
    with requite.Client(with_keys(f"{guarded.url}/echo", key_file, server_key)) as client:
        error = failure(
            requite.CallTimeout, told, lambda timeout: client.call(b"x", timeout=timeout)
        )
    assert not error.may_have_executed
    shown = str(error) + caplog.text
    assert secret not in shown
    assert SERVER_SECRET not in shown


@pytest.mark.parametrize("keys_here", [True, False])
def test_one_side_without_keys(
    keys_here: bool, make_broker: MakeBroker, listener: requite.CurveListener, own_key: Path
) -> None:
    broker = make_broker(curve=None if keys_here else listener)
    plain = f"{broker.url}/echo"
    told = "does not use CURVE" if keys_here else "requires keys"
    with requite.Client(with_keys(plain, own_key) if keys_here else plain) as client:
        failure(requite.CallTimeout, told, lambda timeout: client.call(b"x", timeout=timeout))


# --- keys that change -----------------------------------------------------------------------------
def test_keys_of_broker_and_client_are_rotated_without_a_restart(
    make_broker: MakeBroker, tmp_path: Path, workers: list[Live]
) -> None:
    """Each step adds the new key, changes the peers, and removes the old key. A worker with the old
    server key stays connected; new connections need the new one."""
    server_file, client_file = tmp_path / "server.key", tmp_path / "client.key"
    clients = tmp_path / "clients.keys"
    old_server, old_client = create_key_file(server_file), create_key_file(client_file)
    clients.write_text(f"{old_client}\n")
    broker = make_broker(curve=requite.CurveListener(server_file, clients))
    workers.append(Live(requite.Worker(with_keys(broker.url, client_file, old_server), echo)))

    def call(server_key: str) -> bytes:
        url = with_keys(f"{broker.url}/echo", client_file, server_key)
        with requite.Client(url, timeout=WAIT_S) as client:
            return client.call(b"x").body

    assert call(old_server) == b"x"
    new_server = create_key_file(tmp_path / "new_server.key")
    secrets = (tmp_path / "new_server.key").read_text() + server_file.read_text()
    written(server_file, secrets)
    assert call(old_server) == call(new_server) == b"x"
    new_client = create_key_file(tmp_path / "new_client.key")
    clients.write_text(f"{old_client} until May\n{new_client} ann\n")
    assert call(new_server) == b"x"
    (tmp_path / "new_client.key").replace(client_file)
    assert call(new_server) == b"x"
    clients.write_text(f"{new_client} ann\n")
    written(server_file, (tmp_path / "new_server.key").read_text())
    assert call(new_server) == b"x"
    url = with_keys(f"{broker.url}/echo", client_file, old_server)
    with requite.Client(url) as client:
        failure(
            requite.CallTimeout,
            "does not have the server key",
            lambda timeout: client.call(b"x", timeout=timeout),
        )


def test_a_client_reads_the_keys_again_when_it_reconnects(
    make_broker: MakeBroker, tmp_path: Path, workers: list[Live]
) -> None:
    server_file, client_file = tmp_path / "server.key", tmp_path / "client.key"
    clients = tmp_path / "clients.keys"
    old = create_key_file(client_file)
    clients.write_text(f"{old}\n")
    server_key = tmp_path / "server.pub"
    server_key.write_text(create_key_file(server_file))
    listener = requite.CurveListener(server_file, clients)
    first = make_broker(curve=listener)
    worker_file = tmp_path / "worker.key"
    worker_key = create_key_file(worker_file)
    with requite.Client(with_keys(f"{first.url}/echo", client_file, str(server_key))) as client:
        assert client.call(b"echo", service="mmi.service", timeout=WAIT_S).body == b"404"
        client_file.unlink()
        server_file.unlink()
        server_key.write_text(create_key_file(server_file))
        clients.write_text(f"{create_key_file(client_file)} new\n{worker_key} worker\n")
        endpoint = first.endpoint
        first.close()
        second = make_broker(endpoint, curve=listener)
        url = with_keys(second.url, worker_file, str(server_key))
        workers.append(Live(requite.Worker(url, echo)))
        assert client.call(b"x", timeout=WAIT_S).body == b"x"


# --- protocols without a broker -------------------------------------------------------------------
@pytest.mark.parametrize("model", ["agent", "failover", "shotgun"])
def test_freelance(model: str, listener: object, tmp_path: Path, own_key: Path) -> None:
    keys = f"curve_key_file={tmp_path}/server.key&curve_clients={tmp_path}/clients.keys"
    worker = requite.Worker(echo, bind=f"flp://127.0.0.1:0?model={model}&{keys}")
    live = Live(worker)
    try:
        url = eventually(lambda: worker.addresses, "the server listens")[0].partition("?")[0]
        query = f"?model={model}&curve={quote(SERVER_PUBLIC, safe='')}&curve_key_file={own_key}"
        with requite.Client(url + query, timeout=WAIT_S) as client:
            assert client.call(b"x").body == b"x"
        with requite.Client(f"{url}?model={model}") as client:
            failure(
                requite.CallTimeout,
                "requires keys",
                lambda timeout: client.call(b"x", timeout=timeout),
            )
    finally:
        live.close()


def test_a_lazy_pirate_and_a_req_socket_of_libzmq(
    listener: object, tmp_path: Path, own_key: Path, sockets: Sockets
) -> None:
    keys = f"curve_key_file={tmp_path}/server.key&curve_clients={tmp_path}/clients.keys"
    worker = requite.Worker(echo, bind=f"pirate://127.0.0.1:0?{keys}")
    live = Live(worker)
    try:
        url = eventually(lambda: worker.addresses, "the server listens")[0]
        with requite.Client(with_keys(url, own_key), timeout=WAIT_S) as client:
            assert client.call(b"x").body == b"x"
        peer = Socket(sockets, zmq.REQ, url.replace("pirate://", "tcp://"), **KEYS)
        peer.send(b"hello")
        assert peer.receive() == [b"hello"]
    finally:
        live.close()


def test_a_paranoid_queue(listener: object, tmp_path: Path, own_key: Path) -> None:
    keys = f"?curve_key_file={tmp_path}/server.key&curve_clients={tmp_path}/clients.keys"
    queue = Queue(f"pirate://127.0.0.1:0{keys}", f"pirate://127.0.0.1:0{keys}")
    live = Live(queue)
    try:
        back = with_keys(queue.back_addresses[0].partition("?")[0], own_key)
        served = Live(requite.Worker(back, echo))
        with requite.Client(with_keys(queue.front_addresses[0], own_key), timeout=WAIT_S) as client:
            assert client.call(b"x").body == b"x"
        served.close()
    finally:
        live.close()


def test_keys_of_pyzmq_are_ours() -> None:
    public, secret = zmq.curve_keypair()
    assert encode_z85(z85.decode(secret)) == secret.decode()
    assert encode_z85(z85.decode(public)) == public.decode()


@pytest.mark.parametrize("kind", ["curve", "plain", "anonymous"])
def test_one_listener_takes_peers_of_libzmq_with_each_mechanism(
    kind: str, sockets: Sockets, tmp_path: Path
) -> None:
    access = written(
        tmp_path / "access.toml",
        f"[user.curve]\ncurve = '{CLIENT_PUBLIC}'\ncall = ['*']\n"
        f"[user.plain]\npassword = '{hash_password('secret')}'\ncall = ['*']\n"
        "[user.anonymous]\nanonymous = true\nserve = ['whoami']\ncall = ['*']\n",
    )
    key = written(tmp_path / "server.key", SERVER_SECRET)
    broker = requite.Broker("tcp://127.0.0.1:0", access=access, curve=key)
    serving = Live(broker)
    [place] = broker.endpoints
    working = Live(requite.Worker(place.replace("tcp", "mdp"), whoami))
    options = {
        "curve": KEYS,
        "plain": {"PLAIN_USERNAME": b"plain", "PLAIN_PASSWORD": b"secret"},
        "anonymous": {},
    }[kind]
    try:
        client = HandClient(sockets, place, RFC18, **options)
        client.request(b"whoami", b"")
        assert client.reply() == ("final", b"whoami", [kind.encode()])
    finally:
        working.close()
        serving.close()


@requite.service("whoami")
async def whoami(request: requite.Request) -> bytes:
    return request.principal.encode()
