"""Plain pyzmq clients and workers follow a pair of brokers, as in the ZeroMQ Guide.

A client sends a request to one address; without an answer in time, it tries the other ("Binary Star
Implementation", bstarcli). A worker reconnects when it has missed several heartbeats of its broker
(the Majordomo worker); here it reconnects to the other address.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
import zmq
from tests.support.live import BrokerProcess, Process
from tests.support.zmq_peers import RFC7, RFC18, HandClient, HandWorker, Rfc, Silence, Sockets

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

BEAT_S: Final = 0.2
LIVENESS: Final = 4
ASK_FOR_S: Final = 0.6  # the Guide's REQUEST_TIMEOUT is 1 s
WITHIN_S: Final = 25.0


class BinaryStarClient:
    """The Guide's client: one address at a time, and a new socket after each timeout."""

    def __init__(self, sockets: Sockets, endpoints: list[str], rfc: Rfc, kind: int) -> None:
        self._sockets = sockets
        self._endpoints = cycle(endpoints)
        self._rfc, self._kind = rfc, kind
        self._client = self._dial()

    def _dial(self) -> HandClient:
        return HandClient(self._sockets, next(self._endpoints), self._rfc, kind=self._kind)

    def call(self, body: bytes) -> bytes:
        """Retry until a broker answers."""
        end = monotonic() + WITHIN_S
        while monotonic() < end:
            self._client.request(b"echo", body)
            try:
                return self._client.reply(ASK_FOR_S)[2][0]
            except Silence:
                self._client.socket.close()
                self._client = self._dial()
        raise AssertionError(f"no answer to {body!r} within {WITHIN_S:g} s")


class BinaryStarWorker:
    """The Guide's worker with two addresses, on its own thread."""

    def __init__(self, sockets: Sockets, endpoints: list[str], rfc: Rfc) -> None:
        self._sockets = sockets
        self._endpoints = cycle(endpoints)
        self._rfc = rfc
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._end.is_set():
            worker = HandWorker(self._sockets, next(self._endpoints), self._rfc)
            self._serve(worker)
            worker.close()

    def _serve(self, worker: HandWorker) -> None:
        """Serve one broker until it is silent for too long, or sends DISCONNECT."""
        heard_at = monotonic()
        while not self._end.is_set() and monotonic() < heard_at + LIVENESS * BEAT_S:
            try:
                name, rest = worker.command(BEAT_S)
            except Silence:
                worker.heartbeat()
                continue
            heard_at = monotonic()
            if name == "disconnect":
                return
            if name == "worker_request":
                worker.final(rest[0], *rest[2:])


@pytest.fixture
def pair(tmp_path: Path, processes: list[Process]) -> list[BrokerProcess]:
    """The primary and the backup."""
    links = {role: f"ipc://{tmp_path}/{role}" for role in ("primary", "backup")}
    for role, other in (("primary", "backup"), ("backup", "primary")):
        places = ("--pair-bind", links[role], "--peer", links[other])
        beats = ("--pair-heartbeat", "0.3", "--heartbeat-interval", str(BEAT_S), "--liveness", "4")
        processes.append(BrokerProcess(f"--{role}", *places, *beats))
    return processes[-2:]  # type: ignore[return-value]


@pytest.fixture
def crowd(pair: list[BrokerProcess], sockets: Sockets) -> Iterator[list[BinaryStarClient]]:
    """Clients of 7/MDP (REQ) and 18/MDP (DEALER), each served by a worker of its dialect."""
    endpoints = [broker.endpoint for broker in pair]
    workers = [BinaryStarWorker(sockets, endpoints, rfc) for rfc in (RFC7, RFC18)]
    yield [
        BinaryStarClient(sockets, endpoints, RFC7, zmq.REQ),
        BinaryStarClient(sockets, endpoints, RFC18, zmq.DEALER),
    ]
    for worker in workers:
        worker.stop()


def test_plain_clients_and_workers_follow_the_pair(
    pair: list[BrokerProcess], crowd: list[BinaryStarClient]
) -> None:
    primary, backup = pair
    blows = (
        lambda: None,
        lambda: primary.signal(signal.SIGSTOP),
        lambda: primary.signal(signal.SIGCONT),
        backup.kill,
    )
    for number, strike in enumerate(blows):
        strike()
        for who, client in enumerate(crowd):
            for call in range(3):
                body = b"%d %d %d" % (number, who, call)
                assert client.call(body) == body
