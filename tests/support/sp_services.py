"""Services, clients and devices of SP as processes that tests kill.

    python -m tests.support.sp_services ROLE URL...

The roles are those of `ROLES`. A service says `got BODY` for each request and answers with the body
in capitals; with SWALLOW set in its environment it never answers. Everybody who listens says so.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

import requite

SWALLOW: Final = "SWALLOW"


def tell(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


# --- requite's ------------------------------------------------------------------------------------
@requite.service("tells")
async def tells(request: requite.Request) -> bytes:
    """Say what came; answer, or wait for ever and say when that is interrupted."""
    tell(f"got {request.body.decode()}")
    if SWALLOW in os.environ:
        try:
            await asyncio.Event().wait()
        finally:
            tell(f"abandoned {request.body.decode()}")
    return request.body.upper()


@requite.service("who")
async def who(request: requite.Request) -> bytes:
    """Tell the process that answers."""
    return str(os.getpid()).encode()


def service(url: str) -> None:
    """Serve `tells`, listening."""
    requite.Worker(tells, bind=url).run(lambda: tell("listening"))


def dialling_service(url: str) -> None:
    """Serve `tells`, dialling."""
    requite.Worker(url, tells).run(lambda: tell("dialling"))


def identity(url: str) -> None:
    """Serve `who`, listening."""
    requite.Worker(who, bind=url).run(lambda: tell("listening"))


def client(url: str, body: str) -> None:
    """Make one call."""
    with requite.Client(url) as client:
        tell(f"reply {client.call(body.encode()).body.decode()}")


def device(front: str, back: str) -> None:
    """Forward, listening in front and dialling behind."""
    requite.sp.Device(front=[front], connect_back=[back]).run(lambda: tell("listening"))


# --- nng's ----------------------------------------------------------------------------------------
def nng_service(url: str) -> None:
    """Serve, listening."""
    import pynng

    with pynng.Rep0(listen=url) as socket:
        tell("listening")
        while True:
            body = socket.recv()
            tell(f"got {body.decode()}")
            if SWALLOW not in os.environ:
                socket.send(body.upper())


def nng_client(url: str, body: str) -> None:
    """Make one call."""
    import pynng

    with pynng.Req0(reconnect_time_min=20, reconnect_time_max=20) as socket:
        socket.dial(url, block=False)
        socket.send(body.encode())
        tell(f"reply {socket.recv().decode()}")


ROLES: Final = {
    each.__name__: each
    for each in (service, dialling_service, identity, client, device, nng_service, nng_client)
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
