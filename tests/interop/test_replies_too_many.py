"""Servers that reply twice, in protocols whose replies carry no request id.

A ZeroMQ socket drops earlier input before it sends the next request. A requite client does too, and
closes the connection, since its next input could be anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq

from requite import Client

pytestmark = pytest.mark.interop

CALLS = 20


class Stutterer:
    """A ROUTER that sends every reply twice. `said_twice` is released after each pair."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.said_twice = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while (message := self._socket.recv_multipart())[-1] != b"end":
            self._socket.send_multipart(message)
            self._socket.send_multipart(message)
            self.said_twice.release()

    def close(self) -> None:
        """Stop the thread."""
        with self._context.socket(zmq.DEALER) as bell:
            bell.linger = 1000
            bell.connect(f"tcp://127.0.0.1:{self.port}")
            bell.send(b"end")
            self._thread.join(10)
        self._context.destroy(linger=0)


@pytest.fixture
def stutterer() -> Iterator[Stutterer]:
    with closing(Stutterer()) as server:
        yield server


@pytest.mark.parametrize("url", ["pirate://127.0.0.1:{}", "flp://127.0.0.1:{}?model=failover"])
def test_a_second_reply_is_not_taken_for_the_next_one(url: str, stutterer: Stutterer) -> None:
    url = url.format(stutterer.port)
    with (
        Client(url) as client,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as witness,
    ):
        witness.connect(f"tcp://127.0.0.1:{stutterer.port}")
        for n in range(CALLS):
            assert client.call(b"%d" % n, timeout=20).body == b"%d" % n
            assert stutterer.said_twice.acquire(timeout=10)
            # The server sends the witness's reply after the second reply.
            witness.send(b"%d" % n)
            while witness.recv() != b"%d" % n:
                continue
            assert stutterer.said_twice.acquire(timeout=10)
