"""A Majordomo 0.2 broker on `zmq.asyncio`, with uvloop if it is installed.

Run as `python -m bench.brokers.zmq_asyncio --bind tcp://127.0.0.1:0`.
"""

from __future__ import annotations

import asyncio
from time import monotonic

import zmq
import zmq.asyncio

from bench.brokers import announce, bind_argument
from bench.brokers.reference import HEARTBEAT_S, Broker
from bench.loop import run


async def receive(router: zmq.asyncio.Socket, broker: Broker) -> None:
    """Receive a message, and send the resulting messages, in a loop."""
    while True:
        frames = await router.recv_multipart()
        for message in broker.handle(frames, monotonic()):
            await router.send_multipart(message)


async def beat(router: zmq.asyncio.Socket, broker: Broker) -> None:
    """Do the broker's periodic work."""
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        for message in broker.tick(monotonic()):
            await router.send_multipart(message)


async def main(address: str) -> None:
    """Bind, print the address, and serve until a signal."""
    router = zmq.asyncio.Context().socket(zmq.ROUTER)
    router.bind(address)
    announce(router.getsockopt_string(zmq.LAST_ENDPOINT))
    broker = Broker()
    await asyncio.gather(receive(router, broker), beat(router, broker))


if __name__ == "__main__":
    run(main(bind_argument(__doc__)))
