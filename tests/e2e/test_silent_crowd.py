"""Thousands of connections that send nothing: the broker keeps serving, and closes them."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import pytest
from tests.support.crowd import await_closed
from tests.support.live import Observed, Process, eventually
from tests.support.zmq_peers import RFC18, WAIT_S, HandClient, HandWorker, Sockets

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"),
]


class ConnectionPlan(NamedTuple):
    """The number of connections, and the broker's handshake timeout.

    All connections should be open at the same time, so the timeout is longer than it takes to open
    them. If half of the timeout has passed before all are open, the test uses fewer.
    """

    size: int
    handshake_s: float


CROWDS: Final = (
    pytest.param(ConnectionPlan(2_000, 3.0), id="2,000"),
    pytest.param(ConnectionPlan(10_000, 10.0), id="10,000", marks=pytest.mark.long),
)
CLOSE_S: Final = 20.0  # the time in which the broker closes all of them
SPARE_DESCRIPTORS: Final = 300
# A connection uses about 8 kB of the broker's memory: its transport, its link, its framing.
BYTES_PER_CONNECTION_MAX: Final = 32 << 10


class ShortBroker(Process, Observed):
    """A broker process with a short handshake timeout."""

    def __init__(self, *settings: object) -> None:
        super().__init__("-m", "tests.support.short_broker", *map(str, settings))
        self.endpoint = self.line().removeprefix("listening on ")

    def descriptors(self) -> int:
        """Return the number of its open file descriptors."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10


@pytest.fixture(params=CROWDS)
def planned(request: pytest.FixtureRequest) -> Iterator[ConnectionPlan]:
    """A number of connections that the limits of this machine allow."""
    crowd: ConnectionPlan = request.param
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, min(crowd.size + SPARE_DESCRIPTORS, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))  # the broker inherits it
    yield crowd._replace(size=min(crowd.size, limit - SPARE_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def broker(planned: ConnectionPlan, processes: list[Process]) -> ShortBroker:
    """The broker, started under the limit that `planned` has raised."""
    broker = ShortBroker(planned.handshake_s)
    processes.append(broker)
    return broker


def test_thousands_of_connections_that_send_nothing(
    planned: ConnectionPlan, broker: ShortBroker, sockets: Sockets
) -> None:
    worker = HandWorker(sockets, broker.endpoint, RFC18)
    client = HandClient(sockets, broker.endpoint, RFC18)
    serve(client, worker)
    before = broker.descriptors()
    memory_before = broker.memory()
    began = monotonic()
    crowd: list[socket.socket] = []
    try:
        open_connections(crowd, broker, planned, client, worker)
        eventually(
            lambda: broker.descriptors() >= before + len(crowd), "all are open at the same time"
        )
        assert broker.memory() - memory_before < len(crowd) * BYTES_PER_CONNECTION_MAX
        serve(client, worker)
        all_there_s = monotonic() - began
        await_closed(crowd, lambda: serve(client, worker), planned.handshake_s + CLOSE_S)
    finally:
        for member in crowd:
            member.close()
    took_s = monotonic() - began
    assert all_there_s < planned.handshake_s <= took_s
    serve(client, worker)
    assert broker.descriptors() <= before + 1  # the observer
    stats = broker.stats()
    assert (stats["clients"], stats["newcomers"], stats["pending"]) == (2, 0, 0)
    if len(crowd) < planned.size:
        pytest.skip(f"passed with {len(crowd)} connections only: this machine is too slow")


def serve(client: HandClient, worker: HandWorker) -> None:
    """Send a request from the healthy client to the healthy worker, and check the reply."""
    worker.heartbeat()
    client.request(b"echo", b"x")
    worker.serve_one()
    assert client.reply()[2] == [b"x"]


def open_connections(
    crowd: list[socket.socket],
    broker: ShortBroker,
    planned: ConnectionPlan,
    client: HandClient,
    worker: HandWorker,
) -> None:
    """Open the planned connections, or as many as half of the handshake timeout allows.

    Meanwhile, check that the healthy client and worker are served.
    """
    before = broker.descriptors()
    until = monotonic() + planned.handshake_s / 2
    host, _, port = broker.endpoint.removeprefix("tcp://").rpartition(":")
    for number in range(planned.size):
        crowd.append(socket.socket())
        crowd[-1].settimeout(WAIT_S)
        crowd[-1].connect((host, int(port)))
        if number % 500 == 499:  # less than the listener's backlog, beyond which TCP waits a second
            eventually(lambda: broker.descriptors() >= before + len(crowd), "all are open")
            serve(client, worker)
            if monotonic() > until:
                return
