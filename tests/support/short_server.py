"""A server of any kind with a low limit of file descriptors.

    python -m tests.support.short_server KIND DESCRIPTORS_MAX LOOP

KIND is `broker`, `queue`, `worker` or `device`; LOOP is `asyncio` or `uvloop`. The program prints
one address at which the server listens: tcp://HOST:PORT.
"""

from __future__ import annotations

import logging
import resource
import sys

import requite
from requite.broker import Broker
from requite.queue import Queue
from requite.shell.daemon import Daemon
from requite.sp import Device

_ANY = "sp+tcp://127.0.0.1:0"


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body."""
    return request.body


def make(kind: str) -> Daemon:
    """Create a server of this kind."""
    if kind == "broker":
        return Broker("tcp://127.0.0.1:0")
    if kind == "queue":
        return Queue("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    if kind == "worker":
        return requite.Worker(echo, bind=_ANY)
    return Device(front=_ANY, back=_ANY)


def place(server: Daemon) -> str:
    """Return one address of the server, as tcp://HOST:PORT."""
    if isinstance(server, Broker):
        return server.endpoints[0]
    if isinstance(server, Queue):
        return server.front_addresses[0].replace("pirate://", "tcp://")
    if isinstance(server, requite.Worker):
        return server.addresses[0].removeprefix("sp+")
    assert isinstance(server, Device)
    return server.front_addresses[0].removeprefix("sp+")


def main() -> None:
    """Run the server until SIGTERM."""
    kind, descriptors_max, loop = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(descriptors_max),) * 2)
    logging.basicConfig()
    server = make(kind)
    server.run(lambda: print(place(server), flush=True), use_uvloop=loop == "uvloop")


if __name__ == "__main__":
    main()
