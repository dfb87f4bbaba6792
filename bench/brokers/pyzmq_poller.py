"""A Majordomo 0.2 broker on pyzmq and `zmq.Poller`, in the idiom of the ZeroMQ Guide.

It receives one message per poll. Receiving until the socket is empty would save up to 10 % of the
processor time under load, and nothing otherwise; few programs do so.

Run as `python -m bench.brokers.pyzmq_poller --bind tcp://127.0.0.1:0`.
"""

from __future__ import annotations

from time import monotonic

import zmq

from bench.brokers import announce, bind_argument
from bench.brokers.reference import HEARTBEAT_S, Broker


def serve(router: zmq.Socket[bytes]) -> None:
    """Poll, receive a message, and send the resulting messages, in a loop."""
    broker = Broker()
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    tick_at = monotonic() + HEARTBEAT_S
    while True:
        ready = poller.poll(max(0.0, tick_at - monotonic()) * 1000)
        now = monotonic()
        if ready:
            for message in broker.handle(router.recv_multipart(), now):
                router.send_multipart(message)
        if now >= tick_at:
            tick_at = now + HEARTBEAT_S
            for message in broker.tick(now):
                router.send_multipart(message)


def main() -> None:
    """Bind, print the address, and serve until a signal."""
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(bind_argument(__doc__))
    announce(router.getsockopt_string(zmq.LAST_ENDPOINT))
    serve(router)


if __name__ == "__main__":
    main()
