"""The cases: what is added to which process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Final, NamedTuple

import requite
from bench.growth.point import Settings, job_for
from bench.job import SERVICE
from bench.load import mdp02, mdp03
from bench.load.dialect import Dialect
from bench.loop import run
from bench.memory.peers import Peer
from bench.memory.stage import START_S, Stage, Subject
from requite.framing import Framing, SocketType, SpStream, Zmtp
from requite.framing.websocket import SpWebSocket
from requite.framing.zmtp_mechanism import PlainClient
from requite.protocols.scalability.wire import REP, REQ, request_tag
from requite.testing import rabbitmq

_SP: Final = "sp+tcp://127.0.0.1:0"
_NO_LIMITS: Final = (
    "--client-pending-max=1000000",
    "--queue-max=1000000",
    "--client-pending-bytes-max=4000000000",
    "--pending-bytes-max=4000000000",
)
_QUEUED: Final = 500  # requests per connection of SP: less than a worker stops reading at
_IN_FLIGHT: Final = 64
_PASSWORD: Final = "a password"
_MDP_02: Final = mdp02.DIALECTS["mdp-0.2"]
_MDP_03: Final = mdp03.DIALECT
_JOB: Final = replace(job_for(Settings(1, None, False)), body_size_bytes=0, timeout_s=3600)


def _available() -> str | None:
    return None


class Case(NamedTuple):
    """`what` is added to a `process`, in the variant `how`; `count` at least for a good figure.

    `lack` returns why it cannot be measured here.
    """

    what: str
    how: str
    process: str
    count: int
    start: Callable[[Stage], Subject]
    lack: Callable[[], str | None] = _available


# --- idle connections -----------------------------------------------------------------------------
def _connecting(
    stage: Stage, port: int, make: Callable[[], Framing], context: ssl.SSLContext | None = None
) -> Callable[[int], None]:
    """Return what adds connections to a listener."""

    def add(number: int) -> None:
        stage.kept += [Peer(port, make(), context) for _ in range(number)]

    return add


def _null(stage: Stage) -> Subject:
    broker, port = stage.broker()
    return Subject(broker, _connecting(stage, port, partial(Zmtp, SocketType.DEALER)))


def _client(stage: Stage) -> Subject:
    """Each connection has made a request, and has its reply."""
    broker, port = stage.broker()
    request = mdp03.encode_request(b"mmi.ping", _JOB)

    def add(number: int) -> None:
        for _ in range(number):
            sock = _MDP_03.connect(port)
            sock.sendall(request)
            sock.recv(1)
            stage.kept.append(sock)

    return Subject(broker, add)


def _plain(stage: Stage) -> Subject:
    file = stage.folder() / "users"
    file.write_text(f"somebody:{_PASSWORD}\n")
    file.chmod(0o600)
    broker, port = stage.broker(f"--credentials-file={file}")
    mechanism = PlainClient("somebody", _PASSWORD)
    make = partial(Zmtp, SocketType.DEALER, mechanism=mechanism)
    return Subject(broker, _connecting(stage, port, make))


def _curve(stage: Stage) -> Subject:
    from requite.shell.curve import CurveDialler, create_key_file

    folder = stage.folder()
    (folder / "clients").write_text(create_key_file(folder / "peer"))
    key = create_key_file(folder / "broker")
    files = (f"--curve-key-file={folder}/broker", f"--curve-clients={folder}/clients")
    broker, port = stage.broker(*files)
    dialler = CurveDialler(key, folder / "peer")
    return Subject(
        broker,
        _connecting(stage, port, lambda: Zmtp(SocketType.DEALER, mechanism=dialler.mechanism())),
    )


def _tls(stage: Stage) -> Subject:
    from requite.cli.keys.certificates import new_authority

    issued = new_authority("bench", days=1)
    file = stage.folder() / "broker.pem"
    file.write_bytes(issued.key + issued.certificate)
    broker, port = stage.broker(f"--bind=tls://127.0.0.1:0?certificate={file}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return Subject(broker, _connecting(stage, port, partial(Zmtp, SocketType.DEALER), context))


def _sp(stage: Stage) -> Subject:
    worker, port = stage.listen("bench.memory.holder", _SP)
    return Subject(worker, _connecting(stage, port, partial(SpStream, REQ, REP)))


def _websocket(stage: Stage) -> Subject:
    worker, port = stage.listen("bench.memory.holder", "sp+ws://127.0.0.1:0/")
    host = f"127.0.0.1:{port}"
    make = partial(SpWebSocket, REQ, REP, is_client=True, host=host, path="/")
    return Subject(worker, _connecting(stage, port, make))


# --- idle workers ---------------------------------------------------------------------------------
def _workers(dialect: Dialect, stage: Stage) -> Subject:
    broker, port = stage.broker()
    hello = dialect.worker(_JOB, SERVICE).hello()

    def add(number: int) -> None:
        for _ in range(number):
            sock = dialect.connect(port)
            name = len(stage.kept).to_bytes(8, "big")
            sock.sendall(hello.replace(mdp03.INSTANCE, name))
            stage.kept.append(sock)

    return Subject(broker, add)


# --- pending requests -----------------------------------------------------------------------------
def _requests(dialect: Dialect, stage: Stage) -> Subject:
    """One client sends them, and one worker of MDP 0.2 has the first of them."""
    broker, port = stage.broker(*_NO_LIMITS)
    worker = _MDP_02.connect(port)
    worker.sendall(_MDP_02.worker(_JOB, SERVICE).hello())
    sock, side = dialect.connect(port), dialect.client(_JOB)
    stage.kept += worker, sock

    def add(number: int) -> None:
        sock.sendall(side.requests(number))

    return Subject(broker, add)


def _durable(stage: Stage) -> Subject:
    broker, port = stage.broker(f"--titanic={stage.folder()}")

    async def submit(number: int) -> None:
        left = number

        async def fill(client: requite.AsyncClient) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await client.submit(b"")

        async with requite.AsyncClient(f"mdp://127.0.0.1:{port}/absent", timeout=60) as client:
            await asyncio.gather(*(fill(client) for _ in range(_IN_FLIGHT)))

    return Subject(broker, lambda number: run(submit(number)))


def _sp_requests(stage: Stage) -> Subject:
    worker, port = stage.listen("bench.memory.holder", _SP)

    def add(number: int) -> None:
        for begin in range(0, number, _QUEUED):
            peer = Peer(port, SpStream(REQ, REP))
            peer.send(*([request_tag(at)] for at in range(min(_QUEUED, number - begin))))
            stage.kept.append(peer)

    return Subject(worker, add)


# --- pending calls --------------------------------------------------------------------------------
def _caller(stage: Stage, url: str) -> Subject:
    client = stage.run("bench.memory.caller", url)

    def add(number: int) -> None:
        client.write_line(str(number))
        while not client.read_line(START_S).startswith("made"):
            continue

    return Subject(client, add)


def _mdp_calls(stage: Stage) -> Subject:
    _, port = stage.broker(*_NO_LIMITS)
    url = f"mdp://127.0.0.1:{port}"
    stage.run("bench.memory.holder", url, measured=False).wait_for("ready", START_S)
    return _caller(stage, f"{url}/echo")


def _sp_calls(stage: Stage) -> Subject:
    _, port = stage.listen("bench.memory.holder", _SP, measured=False)
    return _caller(stage, f"sp+tcp://127.0.0.1:{port}")


def _amqp_calls(stage: Stage) -> Subject:
    rabbit = stage.enter(rabbitmq.RabbitServer(stage.folder()))
    url = f"amqp://guest:guest@127.0.0.1:{rabbit.port}/?queue=echo"
    stage.run("bench.memory.holder", url, measured=False).wait_for("ready", START_S)
    return _caller(stage, url)


def _no(module: str) -> Callable[[], str | None]:
    return lambda: None if find_spec(module) else f"no module {module}: run `scripts/setup bench`"


_CONNECTION, _WORKER, _REQUEST, _CALL = (
    "idle connection",
    "idle worker",
    "pending request",
    "pending call",
)
CASES: Final = {
    f"{case.what}, {case.how}": case
    for case in (
        Case(_REQUEST, "MDP 0.2", "broker", 20_000, partial(_requests, _MDP_02)),
        Case(_REQUEST, "MDP 0.3", "broker", 20_000, partial(_requests, _MDP_03)),
        Case(_REQUEST, "durable", "broker", 20_000, _durable),
        Case(_REQUEST, "SP", "worker", 20_000, _sp_requests),
        Case(_CALL, "MDP 0.3", "client", 20_000, _mdp_calls),
        Case(_CALL, "SP", "client", 20_000, _sp_calls),
        Case(_CALL, "AMQP", "client", 20_000, _amqp_calls, rabbitmq.unavailable),
        Case(_CONNECTION, "ZMTP NULL", "broker", 4_000, _null),
        Case(_CONNECTION, "ZMTP NULL, after a request of MDP 0.3", "broker", 4_000, _client),
        Case(_CONNECTION, "ZMTP PLAIN", "broker", 4_000, _plain),
        Case(_CONNECTION, "ZMTP CURVE", "broker", 4_000, _curve, _no("nacl")),
        Case(_CONNECTION, "ZMTP NULL over TLS", "broker", 2_000, _tls, _no("cryptography")),
        Case(_CONNECTION, "SP", "worker", 4_000, _sp),
        Case(_CONNECTION, "SP over WebSocket", "worker", 4_000, _websocket, _no("wsproto")),
        Case(_WORKER, "MDP 0.2", "broker", 4_000, partial(_workers, _MDP_02)),
        Case(_WORKER, "MDP 0.3", "broker", 4_000, partial(_workers, _MDP_03)),
    )
}
